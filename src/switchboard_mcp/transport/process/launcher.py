"""Starts child processes through the reaper program and reports their exit.

Owns descriptors and processes; not aware of what the child writes. See `reaper` for why a process stands in between.
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
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from switchboard_mcp.transport.process import reaper

REAPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reaper.py")

# Variables with which a host gives its own servers a way to its session: who has them speaks to it in their name.
HOST_CHANNELS = "CLAUDE_CODE_MESSAGING_"
# The socket buffers several requests, so a launcher that does not accept one in this time is stuck.
REQUEST_TIMEOUT_S = 2.0
# Without reapers the launcher exits at once.
EXIT_TIMEOUT_S = 1.0
# Killing takes the kernel some milliseconds; whatever is left after this cannot be killed.
KILL_TIMEOUT_S = 2.0
# Between two looks for processes that have lost their reaper, for as long as there are some.
STRAYS_POLL_S = 0.05


class SpawnError(Exception):
    """The child could not be started. `where` is `exec`, `chdir`, or `sandbox:` and its step."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(os.strerror(code))
        self.code = code
        self.where = where


class SandboxRequest(NamedTuple):
    """A sandbox for a child: the file of the module that applies it, its plan, and a socket for what it sends.

    `send_launch` is called if the plan is `reaper.LATER`, while the process is forked. It sends the other end of the
    socket what `encode_launch` returns.
    """

    file: str
    plan: dict[str, Any]
    channel: int
    send_launch: Callable[[], None] | None = None


class ChildProcess:
    """A running child: our ends of its pipes, and its lifeline."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stdin: int,
        stdout: int,
        stderr: int,
        lifeline: socket.socket,
        on_end: Callable[[ChildProcess, bool], None],
    ):
        self.pid = 0
        self.reaper_pid = 0
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self._loop = loop
        self._lifeline = lifeline
        self._on_end = on_end  # called with True if the reaper was killed
        self._buffer = b""
        lifeline.setblocking(False)
        loop.add_reader(lifeline.fileno(), self._read_reports)

    def _read_reports(self) -> None:
        try:
            data = self._lifeline.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._handle_report(*line.decode().split())
        was_killed = not data and not self.exited.done()
        if was_killed:
            self._reaper_killed()
        if self.exited.done():  # no more reports will come
            self._on_end(self, was_killed)
            self._loop.remove_reader(self._lifeline.fileno())
            self._lifeline.close()

    def _reaper_killed(self) -> None:
        """Handle a lifeline that ended without a report.

        The launcher kills what the reaper left behind; if the launcher is gone too, `Launcher` does.
        """
        if self.pid:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except OSError:
                pass
        self._handle_report("exited", str(int(signal.SIGKILL)))

    def _handle_report(self, kind: str, value: str, where: str = "") -> None:
        if kind == "started":
            self.pid, self.reaper_pid = int(value), int(where)
            _set_result(self.started, None)
        elif kind == "error":
            if not self.started.done():
                self.started.set_exception(SpawnError(int(value), where))
            _set_result(self.exited, 127 << 8)
        else:
            if not self.started.done():
                self.started.set_exception(SpawnError(errno.ECHILD, "exec"))
            _set_result(self.exited, int(value))

    def end(self) -> None:
        """Close the lifeline: the reaper then kills the whole process tree. `exited` is set when it has."""
        if self._lifeline.fileno() >= 0:
            try:
                self._lifeline.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self._signal_reaper(signal.SIGCONT)  # a child may have stopped it

    def kill_reaper(self) -> None:
        """Kill a reaper that does not do its work, because a child has stopped or traced it."""
        self._signal_reaper(signal.SIGKILL)

    def _signal_reaper(self, number: int) -> None:
        # As long as its end of the lifeline is open it lives, and its pid is not another's.
        if self.reaper_pid and self._lifeline.fileno() >= 0 and not _is_at_end(self._lifeline):
            reaper.signal_all([self.reaper_pid], number)


def _is_at_end(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _set_result(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


class LauncherProcess:
    """A running launcher and the socket that carries requests to it."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        self.control.settimeout(REQUEST_TIMEOUT_S)
        with theirs:
            try:
                self.program = subprocess.Popen(
                    [sys.executable, "-I", "-S", REAPER, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                self.control.close()
                raise
        self.pid = self.program.pid

    def send(self, request: bytes, fds: list[int]) -> None:
        """Send a request. Raises OSError if the launcher has died or hangs."""
        socket.send_fds(self.control, [len(request).to_bytes(4, "big")], fds)
        self.control.sendall(request)

    def finish(self) -> None:
        """Send no more requests: the launcher exits as soon as it has no reapers."""
        try:
            self.control.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Launcher:
    """The launcher process of this Switchboard, started with the first child and again if it has died."""

    # Adopting orphans is a property of the whole process, which may run several of these one after the other.
    _adopting: ClassVar[set[Launcher]] = set()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._current: LauncherProcess | None = None
        self._launchers: list[LauncherProcess] = []
        self._processes: set[ChildProcess] = set()
        self._dying: set[int] = set()  # launchers and killed reapers that have closed their sockets
        self._adopted: set[int] = set()  # orphans of dead launchers and reapers, to be waited for
        self._next_look: asyncio.TimerHandle | None = None

    async def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        sandbox: SandboxRequest | None = None,
    ) -> ChildProcess:
        """Start a child. Raises SpawnError if it cannot be started, OSError if we lack resources."""
        request = _encode(argv, env, cwd, None if sandbox is None else (sandbox.file, sandbox.plan))
        try:
            return await self._spawn(request, sandbox)
        except SpawnError as problem:
            if problem.code != errno.ECHILD:
                raise
            # The launcher was killed before it handled the request.
            return await self._spawn(request, sandbox)

    async def _spawn(self, request: bytes, sandbox: SandboxRequest | None) -> ChildProcess:
        process = self._start_child(request, None if sandbox is None else sandbox.channel)
        try:
            if sandbox is not None and sandbox.send_launch is not None:
                sandbox.send_launch()
            await process.started
        except BaseException:
            process.end()
            for fd in (process.stdin, process.stdout, process.stderr):
                os.close(fd)
            raise
        return process

    def _start_child(self, request: bytes, channel: int | None) -> ChildProcess:
        """Create the pipes, send their far ends with the request, keep ours. Leaves nothing open on failure."""
        theirs: list[int] = []
        ours: list[int] = []
        try:
            for near_end in (1, 0, 0):  # we write to stdin and read from the other two
                pipe = os.pipe()
                ours.append(pipe[near_end])
                theirs.append(pipe[1 - near_end])
            lifeline, reaper_end = socket.socketpair()
            ours.append(lifeline.detach())
            theirs.append(reaper_end.detach())
            if channel is not None:
                theirs.append(os.dup(channel))
            self._request(request, theirs)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        stdin, stdout, stderr, line = ours
        lifeline = socket.socket(fileno=line)
        process = ChildProcess(self._loop, stdin, stdout, stderr, lifeline, self._on_child_end)
        self._processes.add(process)
        return process

    def _on_child_end(self, process: ChildProcess, reaper_killed: bool) -> None:
        self._processes.discard(process)
        self._adopted.add(process.reaper_pid)  # ours if the launcher has died
        if reaper_killed:
            self._continue_launchers()
            self._dying.add(process.reaper_pid)
            self._kill_strays()
        else:
            self._loop.call_later(STRAYS_POLL_S, self._reap_dead)

    def _on_launcher_end(self, launcher: LauncherProcess) -> None:
        """Handle a control socket that has become readable: the launcher sends nothing, so that is its end."""
        self._close_control(launcher)
        self._dying.add(launcher.pid)
        self._kill_strays()

    def _continue_launchers(self) -> None:
        """Continue launchers that a child has stopped."""
        for launcher in self._launchers:
            launcher.program.send_signal(signal.SIGCONT)

    def _kill_strays(self) -> None:
        """Kill processes that were adopted because launcher and reaper are dead, until there are none."""
        if self._next_look is not None:
            self._next_look.cancel()
        again = self._signal_strays()
        self._next_look = self._loop.call_later(STRAYS_POLL_S, self._kill_strays) if again else None

    def _signal_strays(self) -> bool:
        """Kill adopted processes once. Return True if there were any, or may be soon."""
        # A process closes its sockets some time before its children are adopted, so those that are dying are looked at
        # first: when they are dead, whatever they have left is in the list that is read after.
        self._dying.intersection_update(reaper.descendants_of([os.getpid()], reaper.children_by_parent()))
        self._reap_dead()
        children = reaper.children_by_parent(zombies=True)
        ours = {launcher.pid for launcher in self._launchers} | {
            process.reaper_pid for process in self._processes
        }
        # Children and reapers have sessions of their own, and no process can enter another's: whatever shares ours was
        # started by something else in this process.
        strays = [pid for pid in children.get(os.getpid(), []) if pid not in ours and _has_left_session(pid)]
        reaper.signal_all(strays + reaper.descendants_of(strays, children), signal.SIGKILL)
        self._adopted.update(strays)
        return bool(strays or self._dying)

    def _reap_dead(self) -> None:
        """Collect the exit status of launchers and of adopted processes, which otherwise stay as zombies."""
        for launcher in self._launchers:
            launcher.program.poll()
        for pid in list(self._adopted):
            try:
                if pid and os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            except ChildProcessError:  # the launcher's, or reaped
                pass
            self._adopted.discard(pid)

    def _request(self, request: bytes, fds: list[int]) -> None:
        launcher = self._current or self._start()
        try:
            launcher.send(request, fds)
        except OSError:  # it has died or hangs: start another
            launcher.finish()
            self._start().send(request, fds)
        if self not in self._adopting:  # while the launcher works
            self._adopting.add(self)
            reaper.become_subreaper()

    def _start(self) -> LauncherProcess:
        self._launchers = [other for other in self._launchers if other.program.poll() is None]
        self._current = launcher = LauncherProcess()
        self._launchers.append(launcher)
        self._loop.add_reader(launcher.control.fileno(), self._on_launcher_end, launcher)
        return launcher

    def _close_control(self, launcher: LauncherProcess) -> None:
        if launcher.control.fileno() >= 0:
            self._loop.remove_reader(launcher.control.fileno())
            launcher.control.close()
        if self._current is launcher:
            self._current = None

    async def aclose(self) -> None:
        """Wait for the launcher to exit, and kill whatever is left. All children have been stopped before."""
        for launcher in self._launchers:
            self._close_control(launcher)
        self._continue_launchers()
        for launcher in self._launchers:
            try:
                launcher.program.wait(EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:  # stopped or traced by a child, or a child cannot be killed
                _kill_below(launcher.pid)
                launcher.program.kill()
                launcher.program.wait()
        self._launchers.clear()
        self._processes.clear()
        if self._next_look is not None:
            self._next_look.cancel()
        _poll_until_false(self._signal_strays)
        if self in self._adopting:
            self._adopting.remove(self)
            reaper.become_subreaper(bool(self._adopting))


def _kill_below(pid: int) -> None:
    """Kill all descendants of a process. As a subreaper it keeps them until they are dead."""

    def kill_once() -> bool:
        left = reaper.descendants_of([pid], reaper.children_by_parent())
        reaper.signal_all(left, signal.SIGKILL)
        return bool(left)

    _poll_until_false(kill_once)


def _poll_until_false(action: Callable[[], bool]) -> None:
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while action() and time.monotonic() < deadline:
        time.sleep(reaper.POLL_S)


def _has_left_session(pid: int) -> bool:
    try:
        return os.getsid(pid) != os.getsid(0)
    except OSError:
        return False


def encode_launch(argv: Sequence[str], env: Mapping[str, str], cwd: str, plan: dict[str, Any]) -> bytes:
    """Encode a launch with its plan, as `confine` reads it from a socket."""
    body = _encode(argv, env, cwd, plan)
    return len(body).to_bytes(4, "big") + body


def _encode(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    sandbox: tuple[str, dict[str, Any]] | dict[str, Any] | None,
) -> bytes:
    """Encode a request for the launcher, as bytes since the launcher may have another file system encoding."""
    try:
        variables = {
            os.fsencode(name): os.fsencode(value)
            for name, value in env.items()
            if not name.startswith(HOST_CHANNELS)
        }
        words = [os.fsencode(argument) for argument in argv]
        return marshal.dumps((words, variables, os.fsencode(cwd), sandbox))
    except UnicodeEncodeError:
        raise SpawnError(errno.EINVAL, "exec") from None


def describe_status(status: int) -> str:
    """Describe a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"
