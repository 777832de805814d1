"""Atomic file operations: each either has happened or has not.

All calls use folder descriptors, follow no links and overwrite nothing unless told to. Owns the system calls and the
meaning of their errors; not aware of what the files contain.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from switchboard_mcp.errors import Failure, failure, refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
# These concern the process, not the file it was about to open.
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# A lock is held for a few renames only; a stopped holder must not block the others forever.
LOCK_TIMEOUT_S = 30.0


class RejectedFile(Struct, frozen=True):
    """Reason why a directory entry is not accepted as a file of the store."""

    reason: str
    gone: bool = False


class FileContent(Struct, frozen=True):
    """Content of a file, when it was last modified or renamed (seconds), its inode and the number of its names."""

    data: bytes
    changed: float
    inode: int
    links: int = 1


def open_folder(name: str, parent: int | None = None) -> int:
    """Open a folder that belongs to us, without following links."""
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    info = os.fstat(descriptor)
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        os.close(descriptor)
        whose = "belongs to another user" if info.st_uid != os.geteuid() else "can be written by others"
        raise refused("mail_unsafe", f"The mail folder '{name}' {whose}.")
    return descriptor


def make_folder(name: str, parent: int) -> bool:
    """Create a folder durably; returns False if the name exists already."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    os.fsync(parent)
    return True


def make_and_open_folder(path: str, name: str) -> int:
    """Open a folder in the one at `path`, creating it if it is missing. Neither may be a link or belong to others."""
    parent = open_folder(path)
    try:
        make_folder(name, parent)
        return open_folder(name, parent)
    finally:
        os.close(parent)


def create(folder: int, name: str, data: bytes) -> int:
    """Create a file with this content, not yet synced; returns its descriptor."""
    descriptor = os.open(name, _FRESH, 0o600, dir_fd=folder)
    try:
        append(descriptor, data)
    except BaseException:
        os.close(descriptor)
        os.unlink(name, dir_fd=folder)
        raise
    return descriptor


def sync(descriptor: int) -> None:
    """Sync a file's content or a folder's entries to disk."""
    os.fsync(descriptor)


def append(descriptor: int, data: bytes) -> None:
    """Write all of this at the end of an open file."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def replace(folder: int, name: str, target_folder: int, target: str) -> None:
    """Rename a file, replacing the target."""
    os.rename(name, target, src_dir_fd=folder, dst_dir_fd=target_folder)


def inode(folder: int, name: str) -> int:
    """Return the inode of a file; 0 if it is gone."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return 0


def links(folder: int, name: str) -> int:
    """Return the number of names of a file; 0 if it is gone."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink
    except FileNotFoundError:
        return 0


def read(folder: int, name: str, limit: int) -> FileContent | RejectedFile:
    """Read a regular file of ours with at most `limit` bytes, or return why it is rejected.

    Anything else is not even opened: opening a device or a pipe may have side effects.
    """
    try:
        unfit = _rejection(os.stat(name, dir_fd=folder, follow_symlinks=False), limit)
        if unfit is not None:
            return unfit
        descriptor = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return RejectedFile("it is gone", gone=True)
    except OSError as problem:
        return _unreadable(problem, "opened")
    try:
        info = os.fstat(descriptor)
        unfit = _rejection(info, limit)
        if unfit is not None:
            return unfit
        data = os.read(descriptor, min(info.st_size, limit) + 1)
        # A file that is being written may have more by now.
        while len(data) != info.st_size and len(data) <= limit:
            more = os.read(descriptor, limit + 1 - len(data))
            if not more:
                break
            data += more
        if len(data) > limit:
            return _too_large(limit)
    except OSError as problem:
        return _unreadable(problem, "read")
    else:
        return FileContent(data, max(info.st_mtime, info.st_ctime), info.st_ino, info.st_nlink)
    finally:
        os.close(descriptor)


def _unreadable(problem: OSError, how: str) -> RejectedFile:
    """Return the reason that concerns this file. Raises if it is this process that has no room."""
    if problem.errno in _NO_ROOM:
        raise problem
    return RejectedFile(f"it cannot be {how}: {problem.strerror}")


def _rejection(info: os.stat_result, limit: int) -> RejectedFile | None:
    if stat.S_ISLNK(info.st_mode):
        return RejectedFile("it is a symbolic link")
    if not stat.S_ISREG(info.st_mode):
        return RejectedFile("it is not a regular file")
    if info.st_uid != os.geteuid():
        return RejectedFile("it belongs to another user")
    return _too_large(limit) if info.st_size > limit else None


def _too_large(limit: int) -> RejectedFile:
    return RejectedFile(f"it is larger than {limit} bytes")


@contextmanager
def lock(folder: int, name: str, path: str, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[int]:
    """Hold a named lock and yield the lock file's descriptor. The lock ends with this process at the latest."""
    descriptor = take_lock(folder, name, path, timeout_s=timeout_s)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_lock(folder: int, name: str, path: str, *, timeout_s: float = LOCK_TIMEOUT_S) -> int:
    """Take a named lock; returns the lock file's descriptor, which holds it until it is closed."""
    descriptor = open_lock(folder, name)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise refused("mail_unsafe", f"{path}/{name} is not a regular file.")
        if not _acquire(descriptor, path, timeout_s):
            message = f"Another process has held the lock {path}/{name} for {timeout_s:g} s."
            raise refused(
                "mail_not_stored", message, hint="Find the process with `fuser` and resume or stop it."
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_lock(folder: int, name: str) -> int:
    """Open a lock file, creating it; returns its descriptor."""
    return os.open(name, _LOCK, 0o600, dir_fd=folder)


def try_lock(descriptor: int) -> bool:
    """Lock an open file if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(descriptor: int, path: str, timeout_s: float) -> bool:
    until = 0.0
    pause = 0.0001
    while True:
        try:
            if try_lock(descriptor):
                return True
            until = until or time.monotonic() + timeout_s
        except OSError as problem:
            message = f"The file system of {path} does not support file locks: {problem.strerror}."
            hint = "Put the workspace on a local disk, or mount the file system with locks."
            raise refused("mail_not_stored", message, hint=hint) from None
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def failure_for(problem: OSError, path: str) -> Failure:
    """Translate an OSError into a failure for the sender of a message."""
    code = problem.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        return failure(
            "mail_not_stored",
            f"No space is left on the disk of {path}.",
            hint="Free some space, then try again.",
        )
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        message = f"{path} is not writable: {problem.strerror}."
        return failure("mail_not_stored", message, hint="Make the folder writable, then try again.")
    if code in (errno.ENOENT, errno.ESTALE):
        message = f"A folder in {path} is missing: {problem.filename or 'unknown'}."
        return failure(
            "mail_not_stored", message, hint="Restore the folder, or start over with an empty one."
        )
    if code in (errno.ELOOP, errno.ENOTDIR):
        message = f"{path} contains a link or a file in place of a folder: {problem.filename or 'unknown'}."
        return failure("mail_unsafe", message)
    if code in (errno.EMFILE, errno.ENFILE):
        return failure("mail_not_stored", f"Too many open files to write to {path}.")
    return failure("mail_not_stored", f"{path}: {problem.strerror or problem}.")
