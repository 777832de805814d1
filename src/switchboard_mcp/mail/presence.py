"""Presence of agents: one file per agent in `.switchboard/presence/`, locked by the process it is connected to.

The lock ends with its holder, so a name is free as soon as its process is gone, and no two live processes are the same
agent. File times record the last activity and the last notification. Nothing is synced: after a power cut every agent
is offline anyway. Blocking; call in threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.mail.store.reading import Waiting
from switchboard_mcp.system.processes import is_running

FOLDER = "presence"
PresenceStatus = Literal["online", "idle", "offline"]
# An agent that is thinking or running a long command is silent for a while.
ACTIVE_S = 300.0
# A process checking whether a file is locked holds the lock for an instant.
LOCK_ATTEMPTS, RETRY_S = 5, 0.01
NOTIFIED_SUFFIX = ".woken"
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnclaimedMail(Struct, rename="camel", frozen=True):
    """Unclaimed mail in an inbox."""

    unread: int = 0
    oldest_s: float = 0.0
    overdue: bool = False


class PresenceLock(Struct):
    """A held name."""

    fd: int

    def release(self) -> None:
        """Release the name. An access time of 0 marks a clean departure."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.utime(fd, (0.0, time.time()))
            os.close(fd)


class Presence:
    """Presence in one workspace; `folder` is its `.switchboard`."""

    def __init__(self, folder: str) -> None:
        self._root = folder

    def acquire(self, agent: str) -> PresenceLock | None:
        """Lock an agent's name; None if another process holds it. Raises OSError if files cannot be locked."""
        with self._open(agent) as file:
            for attempt in range(LOCK_ATTEMPTS):
                try:
                    fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if attempt + 1 < LOCK_ATTEMPTS:
                        time.sleep(RETRY_S)
                else:
                    os.utime(file.fd)
                    return PresenceLock(file.detach())
        return None

    def record_activity(self, agent: str) -> None:
        """Record that the agent is active."""
        self._touch(agent)

    def record_notified(self, agent: str) -> None:
        """Record that the agent was notified of its mail."""
        self._touch(agent + NOTIFIED_SUFFIX)

    def status(self, agent: str, pid: int = 0) -> tuple[PresenceStatus, float]:
        """Return the agent's status and last activity; `pid` is a process that represents it."""
        alive = is_running(pid)
        try:
            with self._open(agent, create=False) as file:
                info, locked = os.fstat(file.fd), _is_locked(file.fd)
        except OSError:
            return ("idle" if alive else "offline"), 0.0
        recent = time.time() - info.st_mtime < ACTIVE_S
        if locked or alive:
            return ("online" if recent else "idle"), info.st_mtime
        # An agent without MCP holds no lock; it counts as online while it is active.
        departed = bool(pid) or info.st_atime < 1
        return ("online" if recent and not departed else "offline"), info.st_mtime

    def is_connected(self, agent: str) -> bool:
        """Return True if a process holds the agent's name; a shell does so briefly."""
        try:
            with self._open(agent, create=False) as file:
                return _is_locked(file.fd)
        except OSError:
            return False

    def unclaimed(self, agent: str, unread_warn_s: float, waiting: Waiting) -> UnclaimedMail:
        """Return what waits for an agent, and if a warning is due."""
        if not waiting.count:
            return UnclaimedMail()
        age = max(0.0, time.time() - waiting.oldest_s)
        notified = _mtime(os.path.join(self._root, FOLDER, agent + NOTIFIED_SUFFIX)) >= waiting.oldest_s
        return UnclaimedMail(waiting.count, round(age, 1), age >= unread_warn_s and not notified)

    def _touch(self, name: str) -> None:
        with suppress(OSError), self._open(name) as file:  # activity that cannot be recorded is skipped
            os.utime(file.fd)

    def _open(self, name: str, *, create: bool = True) -> _File:
        """Open a presence file without following links."""
        if not is_agent_name(name.removesuffix(NOTIFIED_SUFFIX)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
        root = os.open(self._root, _FOLDER_FLAGS)
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(FOLDER, 0o700, dir_fd=root)
            folder = os.open(FOLDER, _FOLDER_FLAGS, dir_fd=root)
        finally:
            os.close(root)
        try:
            fd = os.open(name, _FLAGS | (os.O_CREAT if create else 0), 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        info = os.fstat(fd)
        # Ours are empty, so one with other names is in a snapshot that was made with hard links.
        if not stat.S_ISREG(info.st_mode) or (info.st_nlink != 1 and info.st_size):
            os.close(fd)
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), name)
        return _File(fd)


class _File(Struct):
    fd: int

    def detach(self) -> int:
        """Return the descriptor without closing it; the caller closes it."""
        fd, self.fd = self.fd, -1
        return fd

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _mtime(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
