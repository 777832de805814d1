"""All tools of the mail server, in the order clients see them. The rows are in `agents`, `messaging`, `workflows`."""

from __future__ import annotations

from switchboard_mcp.mail.tools import agents, messaging, workflows

TOOLS = (*agents.TOOLS, *messaging.TOOLS, *workflows.TOOLS)
