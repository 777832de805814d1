"""The few things that are done to files, each one step that has happened or has not.

Everything goes through descriptors of folders, follows no links and overwrites nothing it was not told to. Owns the
system calls and what their errors mean; does not know what the files are.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from switchboard_mcp.errors import Failure, failure, refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_NO_REPLACE = 1
_UNKNOWN_CALL = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY})
# Holders keep a lock for a few renames; one that is stopped in the middle must not hang the others for ever.
LOCK_TIMEOUT_S = 30.0

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)


def _load_syncfs() -> Callable[[int], int] | None:
    """`syncfs`, where it tells of errors: since Linux 5.8."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    reports_errors = (
        sys.platform == "linux" and release is not None and (int(release[1]), int(release[2])) >= (5, 8)
    )
    found: Callable[[int], int] | None = getattr(_libc, "syncfs", None) if reports_errors else None
    return found


_syncfs = _load_syncfs()


class RejectedFile(Struct, frozen=True):
    """Why something in a folder is not taken for a file of the desk."""

    reason: str
    gone: bool = False
    links: int = 1


class FileContent(Struct, frozen=True):
    """The content of a file, and when it was last changed (seconds)."""

    data: bytes
    changed: float
    inode: int


def open_folder(name: str, parent: int | None = None) -> int:
    """A folder of our own, not a link to one."""
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(descriptor)
        whose = "belongs to another user" if found.st_uid != os.geteuid() else "can be written by others"
        raise refused("mail_unsafe", f"The folder '{name}' of the message desk {whose}.")
    return descriptor


def make_folder(name: str, parent: int) -> bool:
    """Make a folder, durably, unless something of this name is there; True where it is new."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return False
    os.fsync(parent)
    return True


def create(folder: int, name: str, data: bytes) -> int:
    """A new file with this content, not yet on the disk; returns its descriptor, to be synced and closed."""
    descriptor = os.open(name, _FRESH, 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.close(descriptor)
        os.unlink(name, dir_fd=folder)
        raise
    return descriptor


def sync(descriptor: int) -> None:
    """The content of a file, or the names in a folder, are on the disk when this returns."""
    os.fsync(descriptor)


def sync_all(descriptor: int) -> bool:
    """Everything on the file system of this file is on the disk when this returns; False where that cannot be had."""
    if _syncfs is None:
        return False
    if _syncfs(descriptor) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN_CALL:
        return False
    raise OSError(code, os.strerror(code))


def dirty_kb() -> int:
    """How much of all programs waits to be written; very much where that is not known."""
    try:
        with open("/proc/meminfo", "rb") as file:
            found = re.findall(rb"^(?:Dirty|Writeback): +(\d+) kB", file.read(), re.MULTILINE)
    except OSError:
        return sys.maxsize
    return sum(map(int, found))


def move(folder: int, name: str, target_folder: int, target: str) -> None:
    """Give a file another name, unless that one is taken (FileExistsError)."""
    if _renameat2 is not None:
        done = _renameat2(folder, os.fsencode(name), target_folder, os.fsencode(target), _NO_REPLACE)
        if done == 0:
            return
        code = ctypes.get_errno()
        if code not in _UNKNOWN_CALL:
            raise OSError(code, os.strerror(code), name)
    # Two steps: a crash between them leaves two names for one file, which `repair` knows.
    link(folder, name, target_folder, target)
    remove(folder, name)


def link(folder: int, name: str, target_folder: int, target: str) -> None:
    """A second name for a file."""
    os.link(name, target, src_dir_fd=folder, dst_dir_fd=target_folder, follow_symlinks=False)


def replace(folder: int, name: str, target_folder: int, target: str) -> None:
    """Give a file another name, in place of whatever has it."""
    os.rename(name, target, src_dir_fd=folder, dst_dir_fd=target_folder)


def remove(folder: int, name: str) -> None:
    """Take a name away."""
    os.unlink(name, dir_fd=folder)


def exists(folder: int, name: str) -> bool:
    """Whether anything has this name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def mtime(folder: int, name: str) -> float | None:
    """When a file was last changed, or came to its name, in seconds; None where it is gone."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return max(found.st_mtime, found.st_ctime)


def size(folder: int, name: str) -> int:
    """The bytes of a file; 0 where it is gone."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def links(folder: int, name: str) -> int:
    """How many names a file has; 0 where it is gone."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink
    except FileNotFoundError:
        return 0


def names(folder: int) -> list[str]:
    """Every name in a folder, in no order."""
    return os.listdir(folder)


def entries(folder: int) -> list[tuple[str, int]]:
    """Every name in a folder with its inode, in no order."""
    with os.scandir(folder) as found:
        return [(entry.name, entry.inode()) for entry in found]


def read(folder: int, name: str, limit: int) -> FileContent | RejectedFile:
    """The content of a regular file of our own with one name and at most `limit` bytes; else why not.

    Nothing else is even opened: to open a device or a pipe may do something.
    """
    try:
        unfit = _rejection(os.stat(name, dir_fd=folder, follow_symlinks=False), limit)
        if unfit is not None:
            return unfit
        descriptor = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return RejectedFile("it is gone", gone=True)
    except OSError as problem:
        return RejectedFile(f"it cannot be opened: {problem.strerror}")
    try:
        found = os.fstat(descriptor)
        unfit = _rejection(found, limit)
        if unfit is not None:
            return unfit
        data = b""
        while len(data) <= limit and (more := os.read(descriptor, limit + 1 - len(data))):
            data = data + more if data else more
        return FileContent(data, found.st_mtime, found.st_ino) if len(data) <= limit else _too_large(limit)
    finally:
        os.close(descriptor)


def _rejection(found: os.stat_result, limit: int) -> RejectedFile | None:
    if stat.S_ISLNK(found.st_mode):
        return RejectedFile("it is a symbolic link")
    if not stat.S_ISREG(found.st_mode):
        return RejectedFile("it is no regular file")
    if found.st_uid != os.geteuid():
        return RejectedFile("it belongs to another user")
    if found.st_nlink != 1:
        return RejectedFile("it is a hard link to a file that has other names", links=found.st_nlink)
    return _too_large(limit) if found.st_size > limit else None


def _too_large(limit: int) -> RejectedFile:
    return RejectedFile(f"it is larger than {limit} bytes")


@contextmanager
def lock(folder: int, name: str, path: str, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[int]:
    """Hold the lock of this name; it ends with this process at the latest. Yields the lock file's descriptor."""
    descriptor = os.open(name, _LOCK, 0o600, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise refused("mail_unsafe", f"{path}/{name} is no regular file.")
        if not _acquire(descriptor, path, timeout_s):
            message = f"Another process has held the lock {path}/{name} for {timeout_s:g} s."
            raise refused("mail_not_stored", message, hint="Find it (`fuser` tells) and let it go on.")
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the lock on an open file if nobody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(descriptor: int, path: str, timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    pause = 0.0001
    while True:
        try:
            if try_lock(descriptor):
                return True
        except OSError as problem:
            message = f"The file system of {path} cannot lock files: {problem.strerror}."
            hint = "Put the workspace on a local disk, or mount it with locks."
            raise refused("mail_not_stored", message, hint=hint) from None
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def failure_for(problem: OSError, path: str) -> Failure:
    """What an error of the system means for somebody who sends a message."""
    code = problem.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        return failure(
            "mail_not_stored", f"No room is left on the disk of {path}.", hint="Make room, then try again."
        )
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        message = f"{path} cannot be written: {problem.strerror}."
        return failure("mail_not_stored", message, hint="Make the folder writable, then try again.")
    if code in (errno.ENOENT, errno.ESTALE):
        message = f"Something in {path} has vanished: {problem.filename or 'a folder'}."
        return failure(
            "mail_not_stored", message, hint="Put the folder back, or start anew with an empty one."
        )
    if code in (errno.ELOOP, errno.ENOTDIR):
        message = f"{path} holds a link or a file where a folder must be: {problem.filename or 'unknown'}."
        return failure("mail_unsafe", message)
    if code in (errno.EMFILE, errno.ENFILE):
        return failure("mail_not_stored", f"Too many files are open to write into {path}.")
    return failure("mail_not_stored", f"{path}: {problem.strerror or problem}.")
