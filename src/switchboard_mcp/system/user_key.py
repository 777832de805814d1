"""Files that only their user can read and write, and secret keys in such files."""

from __future__ import annotations

import errno
import os
import stat

from switchboard_mcp.system.atomic_write import write_atomically

KEY_BYTES = 32


def user_key(path: str) -> bytes:
    """Return the key in a file, created on first use. Of two processes that create it, the first one wins.

    Raises `OSError` if the file cannot be written, or is not a key that only this user can read.
    """
    key = read_private(path, KEY_BYTES + 1)
    if key is None:
        fresh = f"{path}.{os.getpid()}"
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomically(fresh, os.urandom(KEY_BYTES), 0o600)
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        os.remove(fresh)
        key = read_private(path, KEY_BYTES + 1)
    if key is None or len(key) != KEY_BYTES:
        raise OSError(errno.EINVAL, f"is not a key of {KEY_BYTES} bytes", path)
    return key


def read_private(path: str, most: int) -> bytes | None:
    """Return at most so many bytes of a file, or None if it does not exist.

    Raises `OSError` if it is a link, or not a file that only this user can read and write.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise OSError(errno.EPERM, "is not a file that only you can read and write", path)
        return file.read(most)
