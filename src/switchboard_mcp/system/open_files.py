"""Looks after the limit of open files of this process."""

from __future__ import annotations

import os
import resource

# For the children of the sessions that are served already, and the files that serving them opens.
RESERVED_FILES = 24


def has_room() -> bool:
    """Return True if this process may open more files than it keeps in reserve."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return True
    try:
        return len(os.listdir("/proc/self/fd")) + RESERVED_FILES <= limit
    except OSError:
        return False
