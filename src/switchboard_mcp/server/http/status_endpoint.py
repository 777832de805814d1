"""What `GET /status` answers, and how a running front is asked for it.

The children's part of it is `gateway.status`'s.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.gateway.status import ChildStatus as ChildStatus
from switchboard_mcp.gateway.status import children as children
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.server_info import ServerInfo

PATH = "/status"


class ServerStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a running Switchboard says of itself."""

    version: str
    pid: int
    uptime_seconds: int
    sessions: int
    children: list[ChildStatus]


def request_status(info: ServerInfo, folder: str) -> ServerStatus | str:
    """What the front that serves a workspace says; or why it does not."""
    try:
        token = auth.read_token(folder)
    except (OSError, UnicodeDecodeError) as problem:
        return f"its token cannot be read: {problem}"
    return server_info.request(info, PATH, ServerStatus, token)
