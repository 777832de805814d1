"""`.switchboard/server_info.json`: tells agents in this workspace the address of the HTTP server.

Only one HTTP server serves a workspace at a time, because its token is in the file beside. A file left behind by a dead
process is detected and replaced.
"""

from __future__ import annotations

import os
import socket
from http.client import HTTPConnection, HTTPException
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import refused
from switchboard_mcp.server.http.sockets import format_address
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.plain_files import open_plain
from switchboard_mcp.system.processes import is_running

FILE = "server_info.json"
# The server is on this machine and answers at once.
REQUEST_TIMEOUT_S = 5.0
MAX_FILE_BYTES = 65_536
MAX_RESPONSE_BYTES = 16 * 1024 * 1024

T = TypeVar("T")


class ServerInfo(Struct, rename="camel", kw_only=True):
    """Content of the file. `host` is for clients on this machine, `bind_address` is the address listened on."""

    port: int
    host: str
    bind_address: str = ""
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
    """Read the file. Return None if it is missing or not ours."""
    try:
        with open(os.path.join(folder, FILE), "rb", opener=open_plain) as file:
            return msgspec.json.decode(file.read(MAX_FILE_BYTES), type=ServerInfo)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _is_local(host: str) -> bool:
    """Return True if this is an address of this machine. The file may come with a cloned repository."""
    if host == "localhost":
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)  # Never asks a name server.
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return True


def require_free(folder: str) -> None:
    """Raise if another server serves this workspace."""
    info = read(folder)
    if info is not None and info.pid != os.getpid() and is_alive(info):
        url = f"http://{format_address(info.host, info.port)}"
        message = f"Switchboard (process {info.pid}) already serves this workspace at {url}."
        raise refused("already_serving", message)


def is_alive(info: ServerInfo) -> bool:
    """Return True if the process runs and answers as this server. Pids are reused, so the pid alone proves nothing."""
    if not is_running(info.pid) or not _is_local(info.host):
        return False
    health = request(info, info.health_endpoint, _Health)
    return isinstance(health, _Health) and health.name == "switchboard" and health.pid == info.pid


def request(
    info: ServerInfo, path: str, answer: type[T], token: str = "", *, body: bytes | None = None
) -> T | str:
    """Send a GET, or a POST with a JSON body. Return the decoded response, or a sentence on why there is none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = HTTPConnection(info.host, info.port, timeout=REQUEST_TIMEOUT_S)
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        if response.status != 200:
            return f"it answers with HTTP {response.status}"
        return msgspec.json.decode(response.read(MAX_RESPONSE_BYTES), type=answer)
    except (OSError, HTTPException, msgspec.DecodeError, UnicodeDecodeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    finally:
        connection.close()


def write(folder: str, info: ServerInfo) -> None:
    """Write the file."""
    write_atomically(os.path.join(folder, FILE), msgspec.json.format(msgspec.json.encode(info)) + b"\n")


def remove(folder: str) -> None:
    """Remove the file, unless another server has written it meanwhile."""
    info = read(folder)
    if info is not None and info.pid == os.getpid():
        os.unlink(os.path.join(folder, FILE))
