"""The desk's tools, all in one table."""

from __future__ import annotations

from switchboard_mcp.mail import tools_agents, tools_letters, workflow_tools

TOOLS = (*tools_agents.TOOLS, *tools_letters.TOOLS, *workflow_tools.TOOLS)
