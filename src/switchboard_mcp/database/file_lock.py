"""A lock between the processes of a machine: the kernel keeps its queue in order and releases it at a death."""

from __future__ import annotations

import fcntl
import os

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FileLock:
    """An exclusive `flock` on a file of its own."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, _FLAGS, 0o600)

    def acquire(self) -> None:
        """Wait for the lock; `flock` has no time limit."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> str:
        """Describe the process that holds the lock; empty if the kernel does not say."""
        info = os.fstat(self._descriptor)
        file = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
        try:
            with open("/proc/locks", encoding="ascii") as locks:
                holders = [
                    fields[4] for line in locks if file in (fields := line.split()) and "->" not in fields
                ]
        except OSError:
            return ""
        return f"process {holders[0]}" if holders else ""

    def close(self) -> None:
        """Close the file, which releases the lock."""
        os.close(self._descriptor)
