from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from switchboard_mcp.config.sandbox import PRESETS, SandboxWords
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.denials import Denial
from switchboard_mcp.sandbox.runner import Launch, RunningSandbox, SandboxRunner
from switchboard_mcp.transport.process.launcher import ChildProcess, Launcher
from tests.patience import PATIENCE_S

OWN_PYTHON = os.path.realpath(sys.executable)


class Sandboxed:
    """Runs commands in sandboxes of one workspace, and returns what they print."""

    def __init__(self, runner: SandboxRunner, workspace: Path) -> None:
        self.runner = runner
        self.workspace = workspace
        self.denials: list[Denial] = []
        self.last: RunningSandbox | None = None

    async def run(
        self, words: SandboxWords, *argv: str, env: dict[str, str] | None = None, child: str = "child"
    ) -> str:
        launch = Launch(list(argv), {**os.environ, **(env or {})}, str(self.workspace))
        started = await self.runner.start(child, words, launch, os.environ, self.denials.append)
        assert not isinstance(started, Failure), started
        return await self.output_of(*started)

    async def output_of(self, process: ChildProcess, sandbox: RunningSandbox) -> str:
        """Wait for the end of a process, and return what it prints."""
        self.last = sandbox
        os.close(process.stdin)
        try:
            async with asyncio.timeout(PATIENCE_S):
                out, err = await asyncio.gather(
                    asyncio.to_thread(read_all, process.stdout), asyncio.to_thread(read_all, process.stderr)
                )
                await process.exited
        finally:
            process.end()
            sandbox.close()
        assert out or not err, err
        return out


def read_all(fd: int) -> str:
    """Read a pipe to its end, and close it."""
    with open(fd, encoding="utf-8", errors="replace") as file:
        return file.read()


@pytest_asyncio.fixture
async def sandboxed(tmp_path: Path) -> AsyncIterator[Sandboxed]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    launcher = Launcher(asyncio.get_running_loop())
    environ = {**os.environ, "HOME": str(tmp_path / "home")}
    yield Sandboxed(SandboxRunner(launcher, str(workspace), environ, str(tmp_path / "cache")), workspace)
    await launcher.aclose()


@pytest.fixture
def targets(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Everything that a child could reach for: files, sockets and a process of the same user."""
    outside, workspace = tmp_path / "home", tmp_path / "workspace"
    (outside / ".ssh").mkdir(parents=True)
    (outside / ".ssh" / "id").write_text("key")
    (outside / "file").write_text("text")
    workspace.mkdir(exist_ok=True)
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "switchboard.config.json").write_text("{}")
    (workspace / ".switchboard").mkdir()
    (workspace / ".switchboard" / "message").write_text("mail")
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(
            socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        )
        udp = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        udp.bind(("::", 0))
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        unix = _listen(stack, f"{folder}/s")
        os.symlink(workspace / ".switchboard", f"{folder}/b")
        _listen(stack, f"{folder}/b/control.sock")
        abstract = f"switchboard-test-{os.getpid()}"
        _listen(stack, f"\0{abstract}")
        for name in (f"{unix}-datagram", f"\0{abstract}-datagram"):
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind(name)
        shm = stack.enter_context(tempfile.NamedTemporaryFile(dir="/dev/shm"))
        file = stack.enter_context(open(outside / "file"))
        os.set_inheritable(file.fileno(), True)
        terminal = os.openpty()
        for end in terminal:
            stack.callback(os.close, end)
        journal = os.memfd_create("journal")  # as the waiting process of a session holds it
        stack.callback(os.close, journal)
        os.write(journal, b"text")
        victim = subprocess.Popen(["/bin/sleep", "1000"], pass_fds=[journal])
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        _serve(tcp, udp)
        yield {
            "outside": str(outside),
            "workspace": str(workspace),
            "pid": victim.pid,
            "journal": journal,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "unix": unix,
            "abstract": abstract,
            "dbus": _session_bus(stack, folder) or unix,
            "terminal": os.ttyname(terminal[1]),
            "sysv": _shared_memory(stack),
            "address": _own_address(socket.AF_INET, "192.0.2.1", "127.0.0.2"),
            "address6": _own_address(socket.AF_INET6, "2001:db8::1", "::1"),
            "shm": os.path.basename(shm.name),
            "fd": file.fileno(),
            "forks": 200,
            "memory": 5 << 30,
            "disk": 200 << 20,
            "files": 5000,
        }


def _listen(stack: contextlib.ExitStack, address: str) -> str:
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(address)
    listener.listen()
    return address


def _own_address(family: int, outside: str, loopback: str) -> str:
    """Return an address of this machine that is not loopback, or loopback if there is none."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((outside, 9))
        except OSError:
            return loopback
        return str(probe.getsockname()[0])


def _session_bus(stack: contextlib.ExitStack, folder: str) -> str:
    """Start a session bus and return the path of its socket; empty if this machine has none."""
    program = shutil.which("dbus-daemon")
    if program is None:
        return ""
    command = [
        program,
        "--session",
        "--nofork",
        "--nopidfile",
        f"--address=unix:path={folder}/bus",
        "--print-address",
    ]
    bus = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    stack.callback(bus.kill)
    assert bus.stdout is not None
    return f"{folder}/bus" if bus.stdout.readline() else ""


def _shared_memory(stack: contextlib.ExitStack) -> int:
    """Create shared memory of System V, and return its key."""
    libc = ctypes.CDLL(None)
    key = os.getpid() & 0xFFFF | 0x5BD0_0000
    number = libc.shmget(key, 4096, 0o1600)
    stack.callback(lambda: libc.shmctl(number, 0, None))
    return key


def _serve(tcp: socket.socket, udp: socket.socket) -> None:
    """Answer one byte on each connection and datagram until the sockets are closed."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = tcp.accept()
                with contextlib.suppress(OSError), connection:
                    connection.send(b"x")

    def echo() -> None:
        with contextlib.suppress(OSError):
            while True:
                udp.sendto(b"x", udp.recvfrom(10)[1])

    for serve in (accept, echo):
        threading.Thread(target=serve, daemon=True).start()


def words_of(preset: str, **changes: Any) -> SandboxWords:
    """Return the words of a preset with changes."""
    from msgspec.structs import replace

    return replace(PRESETS[preset], **changes)


def outcomes(text: str) -> dict[str, str]:
    """Return the last line of an escape program's output."""
    parsed: dict[str, str] = json.loads(text.strip().splitlines()[-1])
    return parsed
