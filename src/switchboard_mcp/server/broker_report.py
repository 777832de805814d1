"""The broker's report about itself, for `switchboard broker status`, `status`, `top` and `doctor`."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.gateway.status import ChildStatus


class SessionReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """One session. `client` is the name of the host program; `started_at` is in milliseconds since the epoch."""

    client: str
    pid: int
    profile: str
    started_at: int
    calls: int
    in_flight: int


class BrokerReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """A running broker, its sessions and its children."""

    pid: int
    version: str
    workspace: str
    started_at: int
    log: str
    sessions: list[SessionReport]
    children: list[ChildStatus]
