"""Periodic work of the mail server, loaded when it first runs: workflow notices, deadlines,
retention and the bridge to Claude Code's teams.
"""

from __future__ import annotations

from switchboard_mcp.mail.claude_teams.team_bridge import ClaudeTeamsBridge
from switchboard_mcp.mail.conversations.deadlines import DeadlineWatch
from switchboard_mcp.mail.store.maintenance.retention import prune
from switchboard_mcp.mail.workflows.engine import send_pending_notices

__all__ = ["ClaudeTeamsBridge", "DeadlineWatch", "prune", "send_pending_notices"]
