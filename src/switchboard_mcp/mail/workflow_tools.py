"""Tools for workflows and reservations, as further rows of the desk's table (see `tools`).

Each row's function gets the seat of the caller (`seat.agent()` is who asks, `seat.desk.post()` the store).
"""

from __future__ import annotations

from switchboard_mcp.mail.desk import Desk
from switchboard_mcp.transport.program import Tool

TOOLS: tuple[Tool, ...] = ()


async def workflow_of(desk: Desk, agent: str) -> object:
    """What `switchboard://workflow/<agent>` holds."""
    return {"agent": agent, "workflow": None}
