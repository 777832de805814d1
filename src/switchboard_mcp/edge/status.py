"""What `GET /status` answers, and how a running front is asked for it.

The children's part of it is `gateway.status`'s.
"""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPException

import msgspec
from msgspec import Struct

from switchboard_mcp.edge import auth
from switchboard_mcp.edge.server_info import ASK_WITHIN_S, ServerInfo
from switchboard_mcp.gateway.status import ChildStatus as ChildStatus
from switchboard_mcp.gateway.status import children as children

PATH = "/status"
MOST_ANSWER_BYTES = 16 * 1024 * 1024


class Status(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a running Switchboard says of itself."""

    version: str
    pid: int
    uptime_seconds: int
    sessions: int
    children: list[ChildStatus]


def ask(info: ServerInfo, folder: str) -> Status | str:
    """What the front that serves a workspace says; or why it does not."""
    try:
        with open(os.path.join(folder, auth.FILE), encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as problem:
        return f"its token cannot be read: {problem}"
    connection = HTTPConnection(info.host, info.port, timeout=ASK_WITHIN_S)
    try:
        connection.request("GET", PATH, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        if response.status != 200:
            return f"it answers with HTTP {response.status}"
        return msgspec.json.decode(response.read(MOST_ANSWER_BYTES), type=Status)
    except (OSError, HTTPException, msgspec.DecodeError, UnicodeDecodeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    finally:
        connection.close()
