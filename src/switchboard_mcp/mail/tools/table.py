"""The desk's tools, all in one table."""

from __future__ import annotations

from switchboard_mcp.mail.tools import agents, messaging, workflows

TOOLS = (*agents.TOOLS, *messaging.TOOLS, *workflows.TOOLS)
