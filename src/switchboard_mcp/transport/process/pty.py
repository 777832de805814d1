"""A program under a pseudo-terminal of its own, and a guard that ends it should we be killed.

The program waits until it is let go, so that everything else is ready when it starts. The guard is a process of ours
that holds one end of a pipe: when that ends without a farewell, it hangs up, kills, and puts the user's terminal back.
Owns processes and descriptors; does not know keyboards, screens or mail. Both are forked, so that this must be called
before there are threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

HANGUP_GRACE_S = 2.0
_POLL_S = 0.02
FAREWELL = b"!"
# What a killed program may have left switched on: the other screen, a hidden cursor, the mouse, pasting, colours.
RESET_SCREEN = b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n"
_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGQUIT,
    signal.SIGTTOU,
    signal.SIGTTIN,
    signal.SIGTSTP,
)


class TerminalGuard:
    """The process that outlives us for as long as it takes to end the program."""

    def __init__(self, terminal: int, attributes: list[Any] | None) -> None:
        """`terminal` is the user's, with the settings it had."""
        read, self._write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._write)
                _watch(read, terminal, attributes)
            finally:
                os._exit(0)
        os.close(read)

    def watch(self, pid: int) -> None:
        """This is the program."""
        os.write(self._write, b"%d\n" % pid)

    def dismiss(self) -> None:
        """All has ended well."""
        with suppress(OSError):
            os.write(self._write, FAREWELL)
        os.close(self._write)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _watch(pipe: int, terminal: int, attributes: list[Any] | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    said, handle = b"", -1
    while part := os.read(pipe, 64):
        said += part
        if handle < 0 and said.endswith(b"\n"):
            handle = _handle(int(said))
    if said.endswith(FAREWELL):
        return
    if said:
        _end(int(said), handle)
    if attributes is not None:
        with suppress(termios.error, OSError):
            termios.tcsetattr(terminal, termios.TCSAFLUSH, attributes)
            os.write(terminal, RESET_SCREEN)


def _handle(pid: int) -> int:
    """What stands for this process and no later one of the same number; -1 where there is no such thing."""
    if sys.platform != "linux":
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _end(pid: int, handle: int) -> None:
    """Hang up, and kill who does not go."""
    _signal(handle, pid, signal.SIGHUP)
    until = time.monotonic() + HANGUP_GRACE_S
    while _alive(pid):
        if time.monotonic() >= until:
            _signal(handle, pid, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def _signal(handle: int, pid: int, number: signal.Signals) -> None:
    with suppress(OSError):
        if sys.platform == "linux" and handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] != [b"Z"]
    except OSError:
        return not os.path.isdir("/proc/self")


class StartError(Exception):
    """The program could not be run."""

    def __init__(self, code: int) -> None:
        super().__init__(os.strerror(code))
        self.code = code


class PtyProcess:
    """The program and our end of its terminal, `master`, which never blocks."""

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        size: tuple[int, int],
        attributes: list[Any] | None = None,
    ) -> None:
        """Columns and rows; `attributes` are those of the user's own terminal, which the program finds in its."""
        self.master, slave = os.openpty()
        go, self._go = os.pipe()
        self._problem, problem = os.pipe()
        self.resize(*size)
        if attributes is not None:
            termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, environ, slave, go, problem, (self.master, self._go, self._problem))
        for fd in (slave, go, problem):
            os.close(fd)
        os.set_blocking(self.master, False)

    def start(self) -> None:
        """Let it go. Raises `StartError`; then it has ended."""
        os.write(self._go, b"!")
        os.close(self._go)
        self._go = -1
        code = os.read(self._problem, 16)
        os.close(self._problem)
        if code:
            raise StartError(int(code))

    def resize(self, columns: int, rows: int) -> None:
        """The window has another size; the program hears of it."""
        with suppress(OSError):
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def foreground(self) -> int:
        """The process group that has the keyboard; 0 where nobody knows."""
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return 0

    def hang_up(self) -> None:
        """As when a window is closed: our end goes, and the program is told."""
        if self._go >= 0:
            os.close(self._go)
            self._go = -1
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def signal(self, number: int) -> None:
        """Signal the program."""
        with suppress(OSError):
            os.kill(self.pid, number)


def _become(
    argv: Sequence[str], environ: Mapping[str, str], slave: int, go: int, problem: int, others: Sequence[int]
) -> NoReturn:
    """In the forked process: wait, then turn into the program."""
    try:
        for fd in others:
            os.close(fd)
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in (*_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for target in range(3):
            os.dup2(slave, target)
        if slave > 2:
            os.close(slave)
        if os.read(go, 1) != b"!":
            os._exit(127)
        os.execvpe(argv[0], list(argv), dict(environ))
    except OSError as trouble:
        os.write(problem, b"%d" % (trouble.errno or errno.EINVAL))
    except ValueError:
        os.write(problem, b"%d" % errno.EINVAL)
    finally:
        os._exit(127)


def terminal_size(terminal: int) -> tuple[int, int]:
    """Columns and rows of a window."""
    try:
        found = os.get_terminal_size(terminal)
    except OSError:
        return 80, 24
    return found.columns or 80, found.lines or 24
