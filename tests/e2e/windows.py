"""A terminal window as tests have one: a pseudo-terminal with a program in it, keys to press, a screen to read."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

# The program's terminal is the window; done in the new process, since forks with threads are frowned upon.
BECOME = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
COMMAND = [sys.executable, "-m", "switchboard_mcp"]


class Window:
    """A pseudo-terminal with a running program."""

    def __init__(self, argv: list[str], cwd: Path, environ: dict[str, str]) -> None:
        self._master, self._slave = os.openpty()
        self.resize(80, 24)
        self.before: list[Any] = termios.tcgetattr(self._slave)
        self.written = b""
        self._read = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", BECOME, *argv],
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", "PS1": "prompt> ", "ENV": "", **environ},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def type(self, text: str) -> None:
        data = text.encode()
        while data:
            self._fill(0.0)
            if select.select([], [self._master], [], 0.05)[1]:
                data = data[os.write(self._master, data[:1024]) :]

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, text: str) -> str:
        """Everything up to and with this text, since what was waited for before."""
        until = time.monotonic() + PATIENCE_S
        wanted = text.encode()
        while (found := self.written.find(wanted, self._read)) < 0:
            assert time.monotonic() < until, f"{text!r} did not come: {self.written[self._read :]!r}"
            self._fill(0.1)
        begin, self._read = self._read, found + len(wanted)
        return self.written[begin : self._read].decode("utf-8", "replace")

    def ended(self) -> int:
        """The exit code, when it has ended."""
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < until, self.written
            self._fill(0.05)
        self._fill(0.0)
        return self.process.returncode

    def settings(self) -> list[Any]:
        """Of the terminal, as a shell would find them now."""
        return termios.tcgetattr(self._slave)

    def _fill(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            self.written += os.read(self._master, 65_536)
            seconds = 0.0

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)
            self.ended()
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def window(workspace: Path, *arguments: str, **environ: str) -> Iterator[Window]:
    """A window in which `switchboard` runs."""
    found = Window([*COMMAND, *arguments], workspace, environ)
    try:
        yield found
    finally:
        found.close()
