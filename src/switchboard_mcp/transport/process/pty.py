"""Runs a program in a pseudo-terminal, with a guard process that kills it if we are killed.

The program waits for `start`, so everything else is ready when it runs. The guard is a forked process that holds one
end of a pipe: if the pipe ends without a farewell, it hangs up, kills the program and restores the user's terminal.
Owns processes and descriptors; not aware of keyboards, screens or mail. Both processes are forked, so this must be used
before any thread is started.
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
from os import _exit
from typing import Any, NoReturn

HANGUP_GRACE_S = 2.0
_POLL_S = 0.02
FAREWELL = b"!"
# Modes a killed program may have left on: alternate screen, hidden cursor, mouse, bracketed paste, colours.
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
    """A process that outlives us for as long as it takes to kill the program."""

    def __init__(self, terminal: int, attributes: list[Any] | None) -> None:
        """Fork the guard. `terminal` is the user's, with the attributes to restore."""
        read, self._write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._write)
                _guard(read, terminal, attributes)
            finally:
                _exit(0)
        os.close(read)

    def watch(self, pid: int) -> None:
        """Set the program to guard."""
        os.write(self._write, b"%d\n" % pid)

    def dismiss(self) -> None:
        """End the guard: the program has exited normally."""
        with suppress(OSError):
            os.write(self._write, FAREWELL)
        os.close(self._write)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _guard(pipe: int, terminal: int, attributes: list[Any] | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    received, pidfd = b"", -1
    while part := os.read(pipe, 64):
        received += part
        if pidfd < 0 and received.endswith(b"\n"):
            pidfd = _open_pidfd(int(received))
    if received.endswith(FAREWELL):
        return
    if received:
        _kill(int(received), pidfd)
    if attributes is not None:
        with suppress(termios.error, OSError):
            termios.tcsetattr(terminal, termios.TCSAFLUSH, attributes)
            os.write(terminal, RESET_SCREEN)


def _open_pidfd(pid: int) -> int:
    """Open a pidfd, which cannot refer to a later process with the same pid; -1 if there is none."""
    if sys.platform != "linux":
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _kill(pid: int, pidfd: int) -> None:
    """Hang up, then kill the process if it does not exit."""
    _signal(pidfd, pid, signal.SIGHUP)
    until = time.monotonic() + HANGUP_GRACE_S
    while _alive(pid):
        if time.monotonic() >= until:
            _signal(pidfd, pid, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def _signal(pidfd: int, pid: int, number: signal.Signals) -> None:
    with suppress(OSError):
        if sys.platform == "linux" and pidfd >= 0:
            signal.pidfd_send_signal(pidfd, number)
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
    """The program and our end of its terminal, `master`, which is non-blocking."""

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        size: tuple[int, int],
        attributes: list[Any] | None = None,
    ) -> None:
        """Fork the program. `size` is columns and rows; `attributes` are copied from the user's terminal."""
        self.master, slave = os.openpty()
        go, self._go = os.pipe()
        self._problem, problem = os.pipe()
        self.resize(*size)
        if attributes is not None:
            termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.pid = os.fork()
        if self.pid == 0:
            _exec_program(argv, environ, slave, go, problem, (self.master, self._go, self._problem))
        for fd in (slave, go, problem):
            os.close(fd)
        os.set_blocking(self.master, False)

    def start(self) -> None:
        """Run the program. Raises `StartError`; the process has exited then."""
        os.write(self._go, b"!")
        os.close(self._go)
        self._go = -1
        code = os.read(self._problem, 16)
        os.close(self._problem)
        if code:
            raise StartError(int(code))

    def resize(self, columns: int, rows: int) -> None:
        """Set the window size; the program is signalled."""
        with suppress(OSError):
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def foreground(self) -> int:
        """Return the foreground process group; 0 if unknown."""
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return 0

    def hang_up(self) -> None:
        """Close our end, as when a window is closed."""
        if self._go >= 0:
            os.close(self._go)
            self._go = -1
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def signal(self, number: int) -> None:
        """Send a signal to the program."""
        with suppress(OSError):
            os.kill(self.pid, number)


def _exec_program(
    argv: Sequence[str], environ: Mapping[str, str], slave: int, go: int, problem: int, others: Sequence[int]
) -> NoReturn:
    """Wait for `start` in the forked process, then execute the program."""
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
            _exit(127)
        os.execvpe(argv[0], list(argv), dict(environ))
    except OSError as error:
        os.write(problem, b"%d" % (error.errno or errno.EINVAL))
    except ValueError:
        os.write(problem, b"%d" % errno.EINVAL)
    finally:
        _exit(127)


def terminal_size(terminal: int) -> tuple[int, int]:
    """Return columns and rows of a terminal."""
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24
