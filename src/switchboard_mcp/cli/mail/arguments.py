"""Arguments that several `switchboard mail` commands share."""

from __future__ import annotations

from switchboard_mcp.cli.parser import option

ACTIONS = ("delegate_task", "request_review", "submit_result", "status_update", "execute")
AS = option("--as", "NAME", "which agent you are", dest="agent")
ID = "id of a message, or enough of its last characters"
LIMIT = option("--limit", "N", "how many to show (default: 20)", 20)
