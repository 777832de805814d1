"""Checks on processes by pid."""

from __future__ import annotations

import os


def is_running(pid: object) -> bool:
    """Return True if a process with this pid exists, of any user. Pids are reused: it may be a different process."""
    if not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
