"""The broker's report about itself, for `switchboard broker status`, `status`, `top` and `doctor`."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.gateway.status import ChildUse, SessionStatus
from switchboard_mcp.observability.timeline import TimelinePoint
from switchboard_mcp.server.dashboard.call_log import LiveCall

# The argument of `status` that asks for calls as well; the next one is the number of the last known call.
CALLS = "--calls"


class WatchedCalls(Struct, frozen=True, kw_only=True, rename="camel"):
    """Calls since somebody began to look. `history` has the points of a timeline."""

    calls: list[LiveCall]
    history: list[TimelinePoint]


class BrokerReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A running broker, its sessions and its children."""

    pid: int
    version: str
    workspace: str
    started_at: int
    log: str
    hosts_served: int = 0
    sessions: list[SessionStatus]
    children: list[ChildUse]
    watched: WatchedCalls | None = None
