"""The desk's tools, all in one table."""

from __future__ import annotations

from switchboard_mcp.mail import tools_agents, tools_letters, tools_workflows

TOOLS = (*tools_agents.TOOLS, *tools_letters.TOOLS, *tools_workflows.TOOLS)
