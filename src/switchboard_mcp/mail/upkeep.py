"""Periodic work of the mail server, loaded when it first runs: workflow notices and deadlines."""

from __future__ import annotations

from switchboard_mcp.mail.conversations.deadlines import act_on_deadlines
from switchboard_mcp.mail.workflows.engine import send_pending_notices

__all__ = ["act_on_deadlines", "send_pending_notices"]
