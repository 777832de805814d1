"""Looking after brokers from outside: those that tests have started, and that wait for further sessions."""

from __future__ import annotations

import os
import time
from pathlib import Path

from switchboard_mcp.broker.broker_client import ask_broker, broker_pid, find_all_brokers, find_brokers

# A session whose host has gone ends in milliseconds; on a busy machine, later.
END_TIMEOUT_S = 2.0
POLL_S = 0.02


def stop_idle_brokers(runtime: Path, mark: str = "") -> list[str]:
    """Stop the brokers below a runtime folder. Return the sockets of those that still have sessions.

    With a `mark`, only those that have it in their environment: others serve sessions that tests share.
    """
    if not (runtime / "switchboard").exists():
        return []
    found = find_all_brokers({"XDG_RUNTIME_DIR": str(runtime)})
    paths = [path for path in found if path.startswith(f"{runtime}/")]  # others are the user's
    if mark:
        paths = [path for path in paths if _has_mark(path, mark)]
    deadline = time.monotonic() + END_TIMEOUT_S
    while paths:
        paths = [path for path in paths if ask_broker(path, "stop") not in ("ok", "", None)]
        if time.monotonic() > deadline:
            break
        if paths:
            time.sleep(POLL_S)
    return paths


def brokers_of(workspace: Path) -> list[int]:
    """Return the processes of the brokers of a workspace."""
    return [pid for path in find_brokers(str(workspace), None, os.environ) if (pid := broker_pid(path))]


def _has_mark(path: str, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{broker_pid(path) or 'none'}/environ").read_bytes()
    except OSError:
        return False  # it has ended
