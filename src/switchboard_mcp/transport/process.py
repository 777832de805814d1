"""Starting child processes through the keeper program, and hearing of their end.

Owns descriptors and processes; it does not know what the child says. See `keeper` for why there is a process between.
"""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")


class SpawnError(Exception):
    """The child could not be started. `where` is `exec` or `chdir`."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(os.strerror(code))
        self.code = code
        self.where = where


class Process:
    """A running child: our ends of its pipes, and its lifeline."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stdin: int, stdout: int, stderr: int, lifeline: socket.socket):
        self.pid = 0
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self._loop = loop
        self._lifeline = lifeline
        self._heard = b""
        lifeline.setblocking(False)
        loop.add_reader(lifeline.fileno(), self._hear)

    def _hear(self) -> None:
        try:
            data = self._lifeline.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._learn(*line.decode().split())
        if not data:  # the keeper is gone; had it not reported, it was killed
            self._learn("exited", "9")
            self._loop.remove_reader(self._lifeline.fileno())
            self._lifeline.close()

    def _learn(self, what: str, value: str, where: str = "") -> None:
        if what == "started":
            self.pid = int(value)
            _settle(self.started, None)
        elif what == "error":
            if not self.started.done():
                self.started.set_exception(SpawnError(int(value), where))
            _settle(self.exited, 127 << 8)
        else:
            if not self.started.done():
                self.started.set_exception(SpawnError(errno.ECHILD, "exec"))
            _settle(self.exited, int(value))

    def end(self) -> None:
        """Let go of the lifeline: the keeper ends everything beneath it. `exited` tells when."""
        if self._lifeline.fileno() >= 0:
            try:
                self._lifeline.shutdown(socket.SHUT_WR)
            except OSError:
                pass


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


class Launcher:
    """The one launcher process of a Switchboard, started with the first child and again should it have died."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._control: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Process:
        """Start a child; raises SpawnError where it cannot be."""
        request = marshal.dumps({"argv": list(argv), "env": dict(env), "cwd": cwd})
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        stderr_read, stderr_write = os.pipe()
        lifeline, keepers_end = socket.socketpair()
        process = Process(self._loop, stdin_write, stdout_read, stderr_read, lifeline)
        try:
            self._request(request, [stdin_read, stdout_write, stderr_write, keepers_end.fileno()])
        finally:
            for fd in (stdin_read, stdout_write, stderr_write):
                os.close(fd)
            keepers_end.close()
        try:
            await process.started
        except BaseException:
            process.end()
            for fd in (stdin_write, stdout_read, stderr_read):
                os.close(fd)
            raise
        return process

    def _request(self, request: bytes, fds: list[int]) -> None:
        if self._control is None:
            self._start()
        try:
            self._send(request, fds)
        except OSError:
            self.close()
            self._start()
            self._send(request, fds)

    def _send(self, request: bytes, fds: list[int]) -> None:
        assert self._control is not None
        socket.send_fds(self._control, [len(request).to_bytes(4, "big")], fds)
        self._control.sendall(request)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, "-I", "-S", KEEPER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def close(self) -> None:
        """Let the launcher go. Keepers stay until their lifelines end."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._program is not None:
            self._program.wait()
            self._program = None


def describe_status(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        import signal

        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"
