"""Reads files of a workspace that somebody else may have written, as in a cloned repository.

Only plain files are read, and only so much of each: no link makes another file readable, and no pipe or device stops
the reader or fills its memory.
"""

from __future__ import annotations

import errno
import os
import stat


def open_plain(path: str, flags: int) -> int:
    """Open a plain file; an `opener` of `open`. Raises `OSError` for a link, and for a file of any other kind."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "It is no plain file", path)
    return descriptor


def read_plain(path: str, most: int, below: str = "") -> bytes:
    """Return at most so many bytes of a plain file. Raises `OSError`.

    With `below`, no folder between that one and the file may be a link either.
    """
    if below:
        require_no_links(path, below)
    with open(path, "rb", opener=open_plain) as file:
        return file.read(most)


def require_no_links(path: str, below: str) -> None:
    """Raise `OSError` if a path leads elsewhere: whoever wrote the workspace chose where to."""
    real = os.path.realpath(below)
    if os.path.realpath(path) != os.path.normpath(os.path.join(real, os.path.relpath(path, below))):
        raise OSError(errno.ELOOP, "It is a symbolic link, or below one", path)
