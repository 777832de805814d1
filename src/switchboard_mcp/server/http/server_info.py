"""`.switchboard/server_info.json`: where agents in this workspace find the HTTP front.

One front serves a workspace at a time, since its token is in a file beside. A file that a dead process has left behind
is recognised and replaced. Owns the file; does not know how requests are served.
"""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPException
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import refused
from switchboard_mcp.system.atomic_write import write_whole
from switchboard_mcp.system.processes import is_running

FILE = "server_info.json"
# It is on this machine, and answers such questions at once.
ASK_WITHIN_S = 5.0
MOST_FILE_BYTES = 65_536
MOST_ANSWER_BYTES = 16 * 1024 * 1024

T = TypeVar("T")


class ServerInfo(Struct, rename="camel", kw_only=True):
    """What the file says."""

    port: int
    host: str
    transport: str = "sse"
    transports: tuple[str, ...] = ("streamable-http", "sse")
    mcp_endpoint: str = "/mcp"
    sse_endpoint: str = "/sse"
    messages_endpoint: str = "/messages"
    health_endpoint: str = "/health"
    pid: int
    started_at: str


class _Health(Struct):
    name: str = ""
    pid: int = 0


def read(folder: str) -> ServerInfo | None:
    """What is there; None where it is nothing of ours."""
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
            return msgspec.json.decode(file.read(MOST_FILE_BYTES), type=ServerInfo)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def demand_free(folder: str) -> None:
    """Refuse where another front serves this workspace."""
    found = read(folder)
    if found is not None and found.pid != os.getpid() and is_alive(found):
        told = f"Switchboard (process {found.pid}) serves this workspace already, at http://{found.host}:{found.port}."
        raise refused("already_serving", told)


def is_alive(info: ServerInfo) -> bool:
    """Whether the process is there, and is a Switchboard that listens there: numbers of processes are used again."""
    if not is_running(info.pid):
        return False
    told = ask(info, info.health_endpoint, _Health)
    return isinstance(told, _Health) and told.name == "switchboard" and told.pid == info.pid


def ask(info: ServerInfo, path: str, answer: type[T], token: str = "") -> T | str:
    """What the front answers to a GET; or why it does not."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = HTTPConnection(info.host, info.port, timeout=ASK_WITHIN_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            return f"it answers with HTTP {response.status}"
        return msgspec.json.decode(response.read(MOST_ANSWER_BYTES), type=answer)
    except (OSError, HTTPException, msgspec.DecodeError, UnicodeDecodeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    finally:
        connection.close()


def write(folder: str, info: ServerInfo) -> None:
    """Say where we are."""
    write_whole(os.path.join(folder, FILE), msgspec.json.format(msgspec.json.encode(info)) + b"\n")


def remove(folder: str) -> None:
    """We are gone; what another has written meanwhile stays."""
    found = read(folder)
    if found is not None and found.pid == os.getpid():
        os.unlink(os.path.join(folder, FILE))
