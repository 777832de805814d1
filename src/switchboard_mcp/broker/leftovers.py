"""Removes the files of brokers that were killed from the runtime folder.

Only the holder of a broker's lock may remove its files. Whoever starts a broker meanwhile finds the lock taken or gone,
and tries again (`shim.start_broker`).
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress

from switchboard_mcp.broker.address import PREFIX
from switchboard_mcp.broker.shim import names_file

_LOCK = re.compile(rf"{PREFIX}[0-9a-f]{{8}}-[0-9a-f]{{16}}\.lock")


def remove_leftovers(folder: str) -> None:
    """Remove the socket, the log and the lock of every broker that does not run."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if _LOCK.fullmatch(name):
            with suppress(OSError):  # it runs, another process removes it, or the file is not ours to open
                _remove_if_free(os.path.join(folder, name.removesuffix(".lock")))


def _remove_if_free(path: str) -> None:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if names_file(f"{path}.lock", lock):
            remove_files(path)
    finally:
        os.close(lock)


def remove_files(path: str) -> None:
    """Remove the files of a broker whose lock this process holds: the lock last, since it protects the others."""
    for name in (path, f"{path}.log", f"{path}.lock"):
        with suppress(FileNotFoundError):
            os.unlink(name)
