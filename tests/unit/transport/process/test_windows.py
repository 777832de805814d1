"""The parts of the Windows transport that are not Windows itself, run with its API replaced.

This shows that pipes are looked at, that children are started in jobs and reported. That Windows does what it is asked
for is not shown here.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import importlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from switchboard_mcp.transport.process.launcher import SpawnError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="replaces what Windows has")
ECHO = [sys.executable, "-S", "-c", "import sys; [print(line, end='', flush=True) for line in sys.stdin]"]


class Api:
    """What is called of kernel32. A handle of a process is its number, that of a pipe its descriptor."""

    def __init__(self) -> None:
        self.jobs: dict[int, list[int]] = {}
        self.CreateJobObjectW = self._function(self._create)
        self.SetInformationJobObject = self._function(lambda *_: 1)
        self.AssignProcessToJobObject = self._function(self._assign)
        self.TerminateJobObject = self._function(self._terminate)
        self.CloseHandle = self._function(lambda job: self.jobs.pop(job) is not None)
        self.GetCurrentProcess = self._function(lambda: -1)
        self.PeekNamedPipe = self._function(self._peek)

    def _function(self, body: Any) -> Any:
        def function(*arguments: Any) -> Any:
            return body(*arguments)

        return function

    def _create(self, *_: object) -> int:
        number = 100 + len(self.jobs)
        self.jobs[number] = []
        return number

    def _assign(self, job: int, process: int) -> int:
        self.jobs[job].append(process)
        return 1

    def _terminate(self, job: int, code: int) -> int:
        for process in self.jobs[job]:
            os.kill(process, signal.SIGKILL)
        return 1

    def _peek(self, handle: int, _a: None, _b: int, _c: None, waiting: Any, _d: None) -> int:
        ready = bool(select.select([handle], [], [], 0)[0])
        waiting._obj.value = ready
        return 1


class Program(subprocess.Popen[bytes]):
    @property
    def _handle(self) -> int:
        return self.pid


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, api: Api) -> Iterator[ModuleType]:
    name = "switchboard_mcp.transport.process.windows"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        patch.setitem(sys.modules, "msvcrt", SimpleNamespace(get_osfhandle=lambda fd: fd))
        module = importlib.import_module(name)
    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: api, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0, raising=False)
    monkeypatch.setattr(subprocess, "Popen", Program)
    yield module
    del sys.modules[name]


def run(windows: ModuleType, main: Any) -> None:
    with asyncio.Runner(loop_factory=windows.PipeLoop) as runner:
        runner.run(asyncio.wait_for(main, 20))


async def read_line(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        loop.remove_reader(fd)
        found.set_result(os.read(fd, 100))

    loop.add_reader(fd, read)
    return await found


def close(process: Any) -> None:
    for fd in (process.stdin, process.stdout, process.stderr):
        os.close(fd)


def test_a_child_is_started_in_a_job_heard_and_reported(windows: ModuleType, api: Api) -> None:
    async def main() -> None:
        launcher = windows.WindowsLauncher(asyncio.get_running_loop())
        process = await launcher.spawn(ECHO, os.environ, os.getcwd())
        everybody, own = api.jobs.values()
        assert (everybody, own) == ([-1], [process.pid])
        os.write(process.stdin, b"hello\n")
        assert await read_line(process.stdout) == b"hello\n"
        os.close(process.stdin)
        assert await process.exited == 0
        assert list(api.jobs.values()) == [[-1]]
        os.close(process.stdout)
        os.close(process.stderr)
        await launcher.aclose()

    run(windows, main())


def test_ending_a_child_ends_its_job(windows: ModuleType) -> None:
    async def main() -> None:
        process = await windows.WindowsLauncher(asyncio.get_running_loop()).spawn(
            ECHO, os.environ, os.getcwd()
        )
        process.end()
        assert await process.exited == -signal.SIGKILL << 8
        close(process)

    run(windows, main())


@pytest.mark.parametrize(
    ("argv", "cwd", "problem"),
    [
        (["no-such-program-anywhere"], ".", (errno.ENOENT, "exec")),
        (ECHO, "no such folder", (errno.ENOENT, "chdir")),
        (["tool.cmd", "a&calc"], ".", (errno.EINVAL, "exec")),
    ],
)
def test_what_cannot_be_started_leaves_nothing_behind(
    windows: ModuleType, api: Api, tmp_path: Any, argv: list[str], cwd: str, problem: tuple[int, str]
) -> None:
    (tmp_path / "tool.cmd").touch(mode=0o755)
    before = len(os.listdir("/proc/self/fd"))

    async def main() -> None:
        launcher = windows.WindowsLauncher(asyncio.get_running_loop())
        with pytest.raises(SpawnError) as refused:
            await launcher.spawn(argv, {"PATH": str(tmp_path)}, cwd)
        assert (refused.value.code, refused.value.where) == problem

    run(windows, main())
    assert len(api.jobs) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_signal_ends_the_wait_for_it(windows: ModuleType) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        done = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
        os.kill(os.getpid(), signal.SIGTERM)
        await done.wait()

    try:
        run(windows, main())
    finally:
        signal.signal(signal.SIGTERM, before)
