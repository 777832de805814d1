"""Files that let `status` finds the servers that hosts have started over stdio.

Each server writes one file with its pid, below the user's state folder, and removes it at its end. A file left behind
by a dead process is ignored, and removed by the next reader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.processes import is_running, started_at
from switchboard_mcp.system.user_folders import state_folder

MAX_FILE_BYTES = 65_536
# Start times of processes are known to the second.
CLOCK_TOLERANCE_S = 2.0


class StdioInfo(Struct, frozen=True, rename="camel"):
    """Content of a file. `client` is the name of the host program; times are in milliseconds since the epoch.

    `broker` is the process that serves the session, if it is not `pid` itself. `alone` is why it is, if the broker is
    enabled.
    """

    pid: int
    workspace: str
    client: str = ""
    started_at: int = 0
    broker: int = 0
    alone: str = ""


def write(info: StdioInfo, environ: Mapping[str, str]) -> None:
    """Write the file of this process. Serving does not depend on it, so a failure is ignored."""
    folder = state_folder(environ, "servers")
    if folder:
        with suppress(OSError):
            os.makedirs(folder, 0o700, exist_ok=True)
            write_atomically(os.path.join(folder, f"{info.pid}.json"), msgspec.json.encode(info), sync=False)


def remove(environ: Mapping[str, str], pid: int = 0) -> None:
    """Remove the file of a process, by default this one, if it has one."""
    folder = state_folder(environ, "servers")
    if folder:
        with suppress(OSError):
            os.unlink(os.path.join(folder, f"{pid or os.getpid()}.json"))


def read_all(workspace: str, environ: Mapping[str, str]) -> list[StdioInfo]:
    """Return the servers that run for a workspace, oldest first. Removes the files of those that have ended."""
    folder = state_folder(environ, "servers")
    servers: list[StdioInfo] = []
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".json")] if folder else []
    except OSError:
        names = []
    for name in names:
        path = os.path.join(folder, name)
        with suppress(OSError):
            info, written_s = _read(path)
            if info is not None and f"{info.pid}.json" == name and _is_alive(info.pid, written_s):
                servers.append(info)
            else:
                os.unlink(path)
    folder = os.path.realpath(workspace)
    servers = [info for info in servers if os.path.realpath(info.workspace) == folder]
    return sorted(servers, key=lambda info: info.started_at)


def _read(path: str) -> tuple[StdioInfo | None, float]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        written_s = os.fstat(descriptor).st_mtime
        try:
            return msgspec.json.decode(file.read(MAX_FILE_BYTES), type=StdioInfo), written_s
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None, written_s


def _is_alive(pid: int, written_s: float) -> bool:
    """Return True if the process that wrote the file runs. A process that got its pid later is younger than it."""
    return is_running(pid) and started_at(pid) / 1000 <= written_s + CLOCK_TOLERANCE_S
