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
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.processes import is_running

FILE = "server_info.json"
# It is on this machine, and answers such questions at once.
REQUEST_TIMEOUT_S = 5.0
MAX_FILE_BYTES = 65_536
MAX_RESPONSE_BYTES = 16 * 1024 * 1024

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
            return msgspec.json.decode(file.read(MAX_FILE_BYTES), type=ServerInfo)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def require_free(folder: str) -> None:
    """Refuse where another front serves this workspace."""
    info = read(folder)
    if info is not None and info.pid != os.getpid() and is_alive(info):
        message = f"Switchboard (process {info.pid}) serves this workspace already, at http://{info.host}:{info.port}."
        raise refused("already_serving", message)


def is_alive(info: ServerInfo) -> bool:
    """Whether the process is there, and is a Switchboard that listens there: numbers of processes are used again."""
    if not is_running(info.pid):
        return False
    health = request(info, info.health_endpoint, _Health)
    return isinstance(health, _Health) and health.name == "switchboard" and health.pid == info.pid


def request(info: ServerInfo, path: str, answer: type[T], token: str = "") -> T | str:
    """What the front answers to a GET; or why it does not."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = HTTPConnection(info.host, info.port, timeout=REQUEST_TIMEOUT_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            return f"it answers with HTTP {response.status}"
        return msgspec.json.decode(response.read(MAX_RESPONSE_BYTES), type=answer)
    except (OSError, HTTPException, msgspec.DecodeError, UnicodeDecodeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    finally:
        connection.close()


def write(folder: str, info: ServerInfo) -> None:
    """Say where we are."""
    write_atomically(os.path.join(folder, FILE), msgspec.json.format(msgspec.json.encode(info)) + b"\n")


def remove(folder: str) -> None:
    """We are gone; what another has written meanwhile stays."""
    info = read(folder)
    if info is not None and info.pid == os.getpid():
        os.unlink(os.path.join(folder, FILE))
