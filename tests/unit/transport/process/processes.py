"""Real children under real reapers, and looking for what is left of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from switchboard_mcp.transport.process.launcher import ChildProcess, Launcher
from tests.patience import PATIENCE_S
from tests.processes import lives

# Reapers give a deaf process 0.3 s; whatever lives longer than this was forgotten.

PYTHON = [sys.executable, "-I", "-S", "-c"]
# Each prints the pid of what it leaves behind, or lets live beside itself.
TREES: dict[str, list[str]] = {
    "plain": ["/bin/sh", "-c", "sleep 1000 & echo $!; wait"],
    "setsid": ["/bin/sh", "-c", "setsid sh -c 'echo $$; exec sleep 1000' & wait"],
    "daemon": [
        *PYTHON,
        """if True:
        import os, signal, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.environ.clear()
                code = "import os, time; os.write(1, b'%d\\\\n' % os.getpid()); os.close(1); time.sleep(1000)"
                os.execve("/proc/self/exe", ["python", "-I", "-S", "-c", code], {})
            os._exit(0)
        os.wait()
        time.sleep(1000)
        """,
    ],
    "deaf": [
        *PYTHON,
        """if True:
        import os, signal, time
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.write(1, b"%d\\n" % os.getpid())
        while True:
            time.sleep(1000)
        """,
    ],
}


class Nursery:
    """A launcher and all it started; on leaving, everything is ended and every descriptor closed."""

    def __init__(self) -> None:
        self.launcher = Launcher(asyncio.get_running_loop())
        self.processes: list[ChildProcess] = []

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = "/"
    ) -> ChildProcess:
        process = await self.launcher.spawn(argv, os.environ if env is None else env, cwd)
        self.processes.append(process)
        return process

    async def spawn_tree(self, name: str) -> tuple[ChildProcess, list[int]]:
        """A child and the pids that must vanish with it."""
        process = await self.spawn(TREES[name])
        return process, [process.pid, int(await read_line(process.stdout))]

    async def close(self) -> None:
        for process in self.processes:
            process.end()
        async with asyncio.timeout(PATIENCE_S):
            for process in self.processes:
                await process.exited
        for process in self.processes:
            for fd in (process.stdin, process.stdout, process.stderr):
                close(fd)
        await self.launcher.aclose()


def close(fd: int) -> None:
    """Close a descriptor that the test may have closed already."""
    try:
        os.close(fd)
    except OSError:
        pass


async def read_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = await asyncio.to_thread(os.read, fd, 1)
        if not part:
            break
        line += part
    return line


async def read_all(fd: int) -> bytes:
    whole = b""
    while part := await asyncio.to_thread(os.read, fd, 65_536):
        whole += part
    return whole


async def exit_status(process: ChildProcess) -> int:
    async with asyncio.timeout(PATIENCE_S):
        return await process.exited


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


async def eventually(happened: Callable[[], bool]) -> None:
    """Wait for what other processes do, of which no event tells."""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def vanish(pids: Iterable[int]) -> None:
    """Wait until none of these processes lives."""
    watched = list(pids)
    await eventually(lambda: not any(map(lives, watched)))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def descriptors(pid: int | str = "self") -> dict[int, str]:
    """Return the open descriptors of a process."""
    found: dict[int, str] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # the listing itself
    return found


def signals(pid: int, field: str) -> int:
    """One of the signal masks of a process: SigBlk, SigIgn or SigCgt."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith(field + ":"))


def start_owner() -> subprocess.Popen[bytes]:
    """A process of its own group that owns one tree of each kind; it prints all pids on one line."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "owner.py")
    return subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, start_new_session=True)
