"""Writes files atomically: readers see the old file or the new one, never a part.

Not aware of what is written. Preserving owner and mode of an existing file is up to `setup.journal`.
"""

from __future__ import annotations

import os

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Tokens, salts and messages must not be committed.
GITIGNORE = b"# Written by Switchboard. Shared servers belong in mcps/, next to this folder.\n*\n"


def write_gitignore(folder: str) -> None:
    """Keep a folder of ours that was just created out of git."""
    write_atomically(os.path.join(folder, ".gitignore"), GITIGNORE, sync=False)


def write_atomically(path: str, data: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Write a new file with this mode and rename it over `path`. Without `sync` a power cut may undo it."""
    # The pid alone is not unique: two containers that share a folder may have the same.
    temporary = f"{path}.{os.urandom(4).hex()}.{os.getpid()}.new"
    descriptor = os.open(temporary, _CREATE_FLAGS, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def sync_folder(path: str) -> None:
    """Sync a folder, so that a rename survives a power failure."""
    descriptor = os.open(path or os.curdir, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
