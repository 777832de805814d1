"""The response of `GET /status`, and a client that requests it from a running server.

The part about children is in `gateway.status`.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.gateway.status import ChildStatus
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.server_info import ServerInfo

PATH = "/status"


class ServerStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Status of a running Switchboard."""

    version: str
    pid: int
    uptime_seconds: int
    sessions: int
    children: list[ChildStatus]


def request_status(info: ServerInfo, folder: str) -> ServerStatus | str:
    """Request the status of the server of a workspace. Return it, or a sentence on why there is none."""
    try:
        token = auth.read_token(folder)
    except (OSError, UnicodeDecodeError) as problem:
        return f"cannot read its token: {problem}"
    return server_info.request(info, PATH, ServerStatus, token)
