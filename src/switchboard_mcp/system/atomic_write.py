"""Putting a file in place whole: who reads it sees the old one or the new one, never a part; and keeping it out of git.

Owns how that is done. It does not know what is written, nor who may see it; an owner and rights that are to be kept are
the affair of `setup.journal`.
"""

from __future__ import annotations

import os

_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Tokens, salts and letters are nobody else's.
GITIGNORE = b"# Written by Switchboard. What is shared belongs into mcps/, beside this folder.\n*\n"


def write_gitignore(folder: str) -> None:
    """For a folder of our own that was just made."""
    write_atomically(os.path.join(folder, ".gitignore"), GITIGNORE, sync=False)


def write_atomically(path: str, data: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Write beside, then rename; with these rights from its first moment on. Without `sync` a power cut may undo it."""
    # Not by the process's number alone: two containers that share a folder have the same.
    fresh = f"{path}.{os.urandom(4).hex()}.{os.getpid()}.new"
    descriptor = os.open(fresh, _FRESH, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
