"""Helpers for stress tests: process trees, descriptors, memory, and waiting with a deadline.

Knows how Switchboard's own processes are arranged (launcher, reapers), nothing of the protocol.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from switchboard_mcp.broker.broker_client import ask_broker, find_all_brokers
from tests.e2e.host import Host
from tests.e2e.workspaces import faulty
from tests.patience import PATIENCE_S
from tests.processes import lives

T = TypeVar("T")
# Between two looks at a condition that nobody announces.
LOOK_S = 0.01
PLAIN = faulty("slow-start", "0")


def until(condition: Callable[[], T], what: str, patience: float = PATIENCE_S) -> T:
    """Look again and again until the condition gives something true, and hand that over."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {patience:g} s in vain: {what}"
        time.sleep(LOOK_S)
    return value


def tree(pid: int) -> list[psutil.Process]:
    """Everybody beneath a process; nobody beneath one that has gone."""
    return _beneath(pid, recursive=True)


def _beneath(pid: int, *, recursive: bool) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive)
    except psutil.NoSuchProcess:
        return []


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended."""
    return [process for process in processes if lives(process)]


def survivors(processes: Sequence[psutil.Process], patience: float = PATIENCE_S) -> list[str]:
    """Return processes that are left over after a deadline, and end them; empty if there are none."""
    deadline = time.monotonic() + patience
    while left := alive(processes):
        if time.monotonic() > deadline:
            names = [f"{process.pid} {' '.join(process.cmdline())}" for process in left]
            for process in left:
                process.kill()
            return names
        time.sleep(LOOK_S)
    return []


def launchers(pid: int) -> list[psutil.Process]:
    """The launcher of a Switchboard; empty before the first child."""
    return [process for process in alive(_beneath(pid, recursive=False)) if _is_reaper(process)]


def reapers(pid: int) -> list[psutil.Process]:
    """The reapers of a Switchboard's children, as long as their launcher lives."""
    return [reaper for one in launchers(pid) for reaper in alive(_beneath(one.pid, recursive=False))]


def _is_reaper(process: psutil.Process) -> bool:
    try:
        return any(part.endswith("reaper.py") for part in process.cmdline())
    except psutil.Error:
        return False


def descriptors(pid: int) -> list[str]:
    """Return the open descriptors of a process."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}").partition(":")[0])
        except FileNotFoundError:
            continue
    return sorted(found)


def memory_mib(pid: int) -> float:
    """Resident memory, now."""
    size: int = psutil.Process(pid).memory_info().rss
    return size / (1 << 20)


def recorded(file: Path) -> list[int]:
    """The pids that faulty children have written down."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def next_line(host: Host) -> bytes:
    """The next message in one piece; for large ones, of which nothing may have been read yet."""
    assert host.process.stdout is not None
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        ready, _, _ = select.select([host.process.stdout], [], [], PATIENCE_S)
        assert ready, "nothing came"
        parts.append(os.read(host.process.stdout.fileno(), 1 << 20))
        assert parts[-1], "it closed its stdout"
    return b"".join(parts)


def processes_of(host: Host) -> list[psutil.Process]:
    """A Switchboard and everybody beneath it."""
    return [psutil.Process(host.process.pid), *tree(host.process.pid)]


def server_of(host: Host) -> int:
    """The process that serves: that which the host has started, or the broker that it waits for."""
    waiting = host.process.pid
    for path in find_all_brokers(os.environ):
        report = json.loads(ask_broker(path, "status") or "{}")
        if waiting in [session["pid"] for session in report.get("sessions", [])]:
            pid: int = report["pid"]
            return pid
    return waiting


def serves_again(host: Host, suite: str) -> None:
    """A child that has died is started anew by a call; one that comes before its death is noticed may still fail."""

    def served() -> bool:
        result = host.call(suite, "echo", message="again")
        if result.get("isError"):
            assert result["structuredContent"]["error"]["code"] == "child_crashed", result
            return False
        assert result["content"][0]["text"] == "again"
        return True

    until(served, f"{suite} serves again")
