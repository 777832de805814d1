"""Periodic work of the mail server, loaded when it first runs: workflow notices, deadlines
and retention.
"""

from __future__ import annotations

from switchboard_mcp.mail.conversations.deadlines import DeadlineWatch
from switchboard_mcp.mail.store.maintenance.retention import prune
from switchboard_mcp.mail.workflows.engine import send_pending_notices

__all__ = ["DeadlineWatch", "prune", "send_pending_notices"]
