"""Bindings for inotify, the kernel's file change events (Linux only).

Not aware of what is watched and why.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
ATTRIB, DELETE_SELF, MOVE_SELF, OVERFLOW, IGNORED, IS_FOLDER = 0x4, 0x400, 0x800, 0x4000, 0x8000, 0x4000_0000
ONLY_FOLDERS, NO_LINKS = 0x0100_0000, 0x0200_0000
# Number of the watch, what happened, and the name in the folder.
Event = tuple[int, int, str]
_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536


def open_inotify() -> int:
    """Return a new non-blocking descriptor; negative if there is no inotify."""
    try:
        return int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except AttributeError:
        return -errno.ENOSYS


def add_watch(descriptor: int, path: str, mask: int) -> int:
    """Return the number of a new watch; negative on failure, see `last_error`."""
    return int(_libc().inotify_add_watch(descriptor, os.fsencode(path), mask))


def remove_watch(descriptor: int, watch: int) -> None:
    """Remove a watch."""
    _libc().inotify_rm_watch(descriptor, watch)


def last_error() -> int:
    """Return the errno of the last failed call."""
    import ctypes

    return ctypes.get_errno()


def read_events(descriptor: int) -> Iterator[Event]:
    """Yield the pending events."""
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
        at += _EVENT.size + length
        yield watch, mask, name


def _libc() -> ctypes.CDLL:
    import ctypes  # takes 4 ms, and a host waits for what is loaded before the first watch

    return ctypes.CDLL(None, use_errno=True)
