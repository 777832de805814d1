"""Runs Switchboard's commands in processes forked from one that has imported the program.

A command needs 0.2 s of CPU time to be imported, and the tests run more than a thousand. Each still has a process of
its own, with its own arguments, folder, environment and descriptors. One whose environment changes how Python itself
starts is started as usual.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tests.patience import PATIENCE_S

COMMAND = [sys.executable, "-m", "switchboard_mcp"]
# Variables that the interpreter reads when it starts.
START_VARIABLES = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC")
MAX_REQUEST = 1 << 20
_servers: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []  # at most one
_commands: list[int] = []


class Command:
    """A command that runs."""

    def __init__(self, reply: socket.socket, argv: Sequence[str]) -> None:
        self.argv = argv
        self._reply = reply
        self._lines = reply.makefile("r")
        self.pid = int(self._lines.readline())
        _commands.append(self.pid)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Return the exit code, negative for a signal. The command is killed if it does not end in time."""
        self._reply.settimeout(timeout)
        try:
            status = int(self._lines.readline())
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(self.argv), timeout) from None
        finally:
            self._lines.close()
            self._reply.close()
        return os.waitstatus_to_exitcode(status)


def start(
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    fds: tuple[int, int, int],
    *,
    new_session: bool = False,
) -> Command | subprocess.Popen[bytes]:
    """Start a command whose stdin, stdout and stderr are these descriptors."""
    if _start_variables(env) != _start_variables(os.environ):
        stdin, stdout, stderr = fds
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=new_session,
        )
    ours, theirs = socket.socketpair()
    request = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "session": new_session}
    try:
        with theirs:
            body = json.dumps(request).encode("utf-8", "surrogateescape")
            assert len(body) < MAX_REQUEST
            socket.send_fds(_connect(), [body], [*fds, theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    return Command(ours, [*COMMAND, *arguments])


def run(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with this text as its input."""
    read_out, write_out = os.pipe()
    read_err, write_err = os.pipe()
    read_in, write_in = os.pipe()
    try:
        command = start(arguments, cwd, env, (read_in, write_out, write_err))
    finally:
        for fd in (read_in, write_out, write_err):
            os.close(fd)
    out, err = _exchange(write_in, (stdin or "").encode(), read_out, read_err)
    code = command.wait(PATIENCE_S)
    return subprocess.CompletedProcess([*COMMAND, *arguments], code, out.decode(), err.decode())


def _exchange(write_in: int, data: bytes, read_out: int, read_err: int) -> tuple[bytes, bytes]:
    """Write the input and read both outputs to their ends."""
    texts = {read_out: b"", read_err: b""}
    os.set_blocking(write_in, False)
    with selectors.DefaultSelector() as ready:
        for fd in texts:
            ready.register(fd, selectors.EVENT_READ)
        ready.register(write_in, selectors.EVENT_WRITE)
        while ready.get_map():
            events = ready.select(PATIENCE_S)
            assert events, f"a command does not end; so far {texts}"
            for key, _ in events:
                if key.fd == write_in:
                    try:
                        data = data[os.write(write_in, data) :]
                    except BrokenPipeError:
                        data = b""
                    got = data
                else:
                    got = os.read(key.fd, 65_536)
                    texts[key.fd] += got
                if not got:
                    ready.unregister(key.fd)
                    os.close(key.fd)
    return texts[read_out], texts[read_err]


def pids() -> set[int]:
    """Return the process id of this process's server, if it runs."""
    return {server.pid for _, server in _servers}


def count() -> int:
    """Return the number of commands that were forked so far."""
    return len(_commands)


def _start_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how Python starts. A locale with the encoding of the server does not."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(START_VARIABLES) and not value.endswith("UTF-8")
    }


def _connect() -> socket.socket:
    """Return the socket of this process's server, which is started first, and again if a test has killed it."""
    if _servers and _servers[0][1].poll() is not None:
        _servers.pop()[0].close()
    if not _servers:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_REQUEST)
        with theirs:
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.command_server", str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                env={
                    name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")
                },
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,  # in our session: a launcher in this process takes others for strays
            )
        _servers.append((ours, server))
        atexit.unregister(_disconnect)
        atexit.register(_disconnect)
    return _servers[0][0]


def _disconnect() -> None:
    control, server = _servers.pop()
    control.close()
    server.wait(PATIENCE_S)


def serve(control: socket.socket) -> None:
    """Fork a process per request, and report how each ended, until the tests have gone."""
    _import_all()
    gc.freeze()  # so that the processes share it
    waiting: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _report(waiting)
                    continue
                body, fds, _, _ = socket.recv_fds(control, MAX_REQUEST, 4)
                if not body:
                    return
                reply = socket.socket(fileno=fds[3])
                pid = os.fork()
                if pid == 0:
                    for one in (control, woken, wake, reply, *waiting.values()):
                        one.close()
                    _become(json.loads(body.decode("utf-8", "surrogateescape")), fds[:3])
                for fd in fds[:3]:
                    os.close(fd)
                waiting[pid] = reply
                reply.sendall(b"%d\n" % pid)


def _report(waiting: dict[int, socket.socket]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with waiting.pop(pid) as reply:
            try:
                reply.sendall(b"%d\n" % status)
            except OSError:  # nobody waits for it
                pass


def _become(request: dict[str, object], fds: Sequence[int]) -> NoReturn:
    """Be the command that a request names."""
    atexit.unregister(_disconnect)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
    os.closerange(3, 1024)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    env, arguments = request["env"], request["arguments"]
    assert isinstance(env, dict)
    assert isinstance(arguments, list)
    os.environ.update(env)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
    from switchboard_mcp import __main__ as program

    sys.argv = [str(program.__file__), *arguments]
    try:
        code = program.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - shown as Python would
        traceback.print_exc()
        code = 1
    # What Python does at its end, apart from taking every module apart: that takes longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    os._exit(code)


def _import_all() -> None:
    """Import what commands load when they run."""
    import switchboard_mcp.cli as commands

    for module in pkgutil.walk_packages(commands.__path__, "switchboard_mcp.cli."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
