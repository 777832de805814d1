"""The desk's tools, all in one table."""

from __future__ import annotations

from switchboard_mcp.mail.tools import agents, messages, workflows

TOOLS = (*agents.TOOLS, *messages.TOOLS, *workflows.TOOLS)
