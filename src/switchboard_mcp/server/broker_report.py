"""The broker's report about itself, for `switchboard broker status`, `status` and `doctor`."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.gateway.status import ChildUse, SessionStatus


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
