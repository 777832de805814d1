"""Who is here: one file an agent in `.switchboard/presence/`, locked by the process that it is connected to.

The lock dies with its holder, so that a name is free again the moment its process is gone, however it went, and no
two live processes are one agent. When an agent was last active, and when it was last told of mail, is the time of a
file. Nothing here is forced to the disk: after a power cut nobody is here. Blocking; called in threads.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import Literal

from msgspec import Struct

FOLDER = "presence"
Here = Literal["online", "idle", "offline"]
# An agent that thinks, or runs a long command, is silent for a while and still here.
ACTIVE_S = 300.0
# Somebody who only looks whether a file is locked holds the lock for an instant.
TRIES, BETWEEN_S = 5, 0.01
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Waiting(Struct, rename="camel", frozen=True):
    """Mail in an inbox that nobody has claimed."""

    unread: int = 0
    oldest_s: float = 0.0
    starving: bool = False


class Hold(Struct):
    """A name that is ours as long as this is kept."""

    fd: int

    def release(self) -> None:
        """Let others have it. That its access time is none says that it was left."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.utime(fd, (0.0, time.time()))
            os.close(fd)


class Presence:
    """Those of one workspace; `folder` is its `.switchboard`."""

    def __init__(self, folder: str) -> None:
        self._root = folder
        self._folder = os.path.join(folder, FOLDER)

    def hold(self, agent: str) -> Hold | None:
        """Be this agent; None while another process is."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        fd = os.open(self._path(agent), _FLAGS, 0o600)
        for attempt in range(TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt + 1 < TRIES:
                    time.sleep(BETWEEN_S)
            else:
                os.utime(fd)
                return Hold(fd)
        os.close(fd)
        return None

    def beat(self, agent: str) -> None:
        """The agent does something."""
        self._touch(self._path(agent))

    def woken(self, agent: str) -> None:
        """The agent has been told that there is mail."""
        self._touch(self._path(agent) + ".woken")

    def here(self, agent: str, pid: int = 0) -> tuple[Here, float]:
        """Whether the agent is here, and when it was last active; `pid` is a process that stands for it."""
        try:
            file = os.lstat(self._path(agent))
        except OSError:
            return ("idle" if pid and _alive(pid) else "offline"), 0.0
        recent = time.time() - file.st_mtime < ACTIVE_S
        if self._held(agent) or (pid and _alive(pid)):
            return ("online" if recent else "idle"), file.st_mtime
        # One without MCP holds nothing, and is here while it does something.
        left = bool(pid) or file.st_atime < 1
        return ("online" if recent and not left else "offline"), file.st_mtime

    def waiting(self, agent: str, starving_s: float) -> Waiting:
        """What lies in its inbox, and whether somebody should be worried."""
        inbox = os.path.join(self._root, "inbox", agent)
        try:
            names = [name for name in os.listdir(inbox) if name.startswith("msg_") and name.endswith(".json")]
        except OSError:
            return Waiting()
        if not names:
            return Waiting()
        came = _time(os.path.join(inbox, min(names)))  # names begin with when they were written
        age = max(0.0, time.time() - came) if came else 0.0
        told = _time(self._path(agent) + ".woken") >= came
        return Waiting(len(names), round(age, 1), age >= starving_s and not told)

    def _held(self, agent: str) -> bool:
        try:
            fd = os.open(self._path(agent), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(fd)
        return False

    def _touch(self, path: str) -> None:
        with suppress(OSError):  # a sign of life that cannot be given is none
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            fd = os.open(path, _FLAGS, 0o600)
            try:
                os.utime(fd)
            finally:
                os.close(fd)

    def _path(self, agent: str) -> str:
        return os.path.join(self._folder, agent)


def _time(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True
