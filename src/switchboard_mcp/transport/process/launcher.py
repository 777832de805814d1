"""Starting child processes through the keeper program, and hearing of their end.

Owns descriptors and processes; it does not know what the child says. See `keeper` for why there is a process between.
"""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

REAPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reaper.py")

# The launcher takes a request at once, since the socket holds several; one that does not is stuck.
HANDOVER_S = 2.0
# With its last keeper gone a launcher ends at once.
FAREWELL_S = 1.0


class SpawnError(Exception):
    """The child could not be started. `where` is `exec` or `chdir`."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(os.strerror(code))
        self.code = code
        self.where = where


class ChildProcess:
    """A running child: our ends of its pipes, and its lifeline."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stdin: int, stdout: int, stderr: int, lifeline: socket.socket
    ):
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
        if not data and not self.exited.done():
            self._keeper_killed()
        if self.exited.done():  # nothing more comes
            self._loop.remove_reader(self._lifeline.fileno())
            self._lifeline.close()

    def _keeper_killed(self) -> None:
        """It has not reported. The launcher ends what it leaves; should that be gone too, this is what we can do."""
        if self.pid:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except OSError:
                pass
        self._learn("exited", str(int(signal.SIGKILL)))

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
        self._programs: list[subprocess.Popen[bytes]] = []

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ChildProcess:
        """Start a child; raises SpawnError where it cannot be, OSError where we lack what it takes."""
        request = _encode(argv, env, cwd)
        try:
            return await self._spawn(request)
        except SpawnError as problem:
            if problem.code != errno.ECHILD:
                raise
            # Nobody has heard of it: the launcher was killed with the request still before it.
            return await self._spawn(request)

    async def _spawn(self, request: bytes) -> ChildProcess:
        process = self._hand_over(request)
        try:
            await process.started
        except BaseException:
            process.end()
            for fd in (process.stdin, process.stdout, process.stderr):
                os.close(fd)
            raise
        return process

    def _hand_over(self, request: bytes) -> ChildProcess:
        """Make the pipes, send their far ends with the request, keep ours. Leaves nothing open where it fails."""
        theirs: list[int] = []
        ours: list[int] = []
        try:
            for near_end in (1, 0, 0):  # of stdin we write, the other two we read
                pipe = os.pipe()
                ours.append(pipe[near_end])
                theirs.append(pipe[1 - near_end])
            lifeline, keepers_end = socket.socketpair()
            ours.append(lifeline.detach())
            theirs.append(keepers_end.detach())
            self._request(request, theirs)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        stdin, stdout, stderr, line = ours
        return ChildProcess(self._loop, stdin, stdout, stderr, socket.socket(fileno=line))

    def _request(self, request: bytes, fds: list[int]) -> None:
        if self._control is None:
            self._start()
        try:
            self._send(request, fds)
        except OSError:  # it has died, or hangs: another takes over
            self._let_go()
            self._start()
            self._send(request, fds)

    def _send(self, request: bytes, fds: list[int]) -> None:
        assert self._control is not None
        socket.send_fds(self._control, [len(request).to_bytes(4, "big")], fds)
        self._control.sendall(request)

    def _start(self) -> None:
        self._programs = [program for program in self._programs if program.poll() is None]
        self._control, theirs = socket.socketpair()
        self._control.settimeout(HANDOVER_S)
        with theirs:
            self._programs.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", REAPER, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            )

    def _let_go(self) -> None:
        """Keepers stay until their lifelines end, and a launcher as long as it has keepers."""
        if self._control is not None:
            self._control.close()
            self._control = None

    async def aclose(self) -> None:
        """Let the launcher go and wait for its end. All children have been stopped before."""
        self._let_go()
        for program in self._programs:
            try:
                program.wait(FAREWELL_S)
            except subprocess.TimeoutExpired:  # a child that cannot be killed; its keeper stays with it
                program.kill()
                program.wait()
        self._programs.clear()


def _encode(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> bytes:
    """A request for the launcher. As bytes, since it may see another encoding in its environment than we do."""
    try:
        variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        return marshal.dumps(([os.fsencode(argument) for argument in argv], variables, os.fsencode(cwd)))
    except UnicodeEncodeError:
        raise SpawnError(errno.EINVAL, "exec") from None


def describe_status(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"
