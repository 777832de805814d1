"""Whether a process is there, by the number that some file names."""

from __future__ import annotations

import os


def is_running(pid: object) -> bool:
    """True also for somebody else's. Numbers are used again: it may be another process by now."""
    if not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
