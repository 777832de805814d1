"""A program of ten calls, a server that counts them, and crashes at any point of its run.

Run as a program with a folder and the number of a log record, it executes the run and kills itself at that record;
without a number it continues the run and prints its outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from switchboard_mcp.programs.engine import Limits, Module, Program, Settled
from switchboard_mcp.programs.helper_engine import HelperEngine
from switchboard_mcp.programs.run_log import Record, RunLog, RunStore
from switchboard_mcp.programs.run_loop import Outcome, open_log, recover, run
from switchboard_mcp.transport.process.launcher import Launcher

MODULES = [Module("m", {"add": "add_item"})]
CODE = """
import m, asyncio, random
seen = []
async def add(n):
    try:
        seen.append((await m.add(n=n))["sum"])
    except RuntimeError as problem:
        seen.append("uncertain" if "may have been carried out" in str(problem) else str(problem))
for n in range(4):
    await add(n)
print("half", random.random())
await asyncio.gather(add(4), add(5))
for n in range(6, 10):
    await add(n)
seen
"""
PROGRAM = Program(CODE, MODULES, seed=7, clock=1e9)
LIMITS = Limits()


class CrashError(BaseException):
    """The end of the process, as far as the run is concerned."""


class Server:
    """Carries out calls, and may end the process after one."""

    def __init__(self) -> None:
        self.effects: list[int] = []
        self.crash_after = -1

    async def call(self, module: str, subtool: str, arguments: bytes) -> Settled:
        """Carry out a call of the program."""
        assert (module, subtool) == ("m", "add_item")
        number = json.loads(arguments)["n"]
        self.effects.append(number)
        if len(self.effects) == self.crash_after:
            raise CrashError
        return Settled(value=json.dumps({"sum": number * 10}).encode())


class CrashingLog:
    """Counts the records of a log, and ends the process before or after one of them."""

    def __init__(self, log: RunLog, at: int, *, before: bool, crash: Callable[[], None]) -> None:
        self._log = log
        self._left = at
        self._before = before
        self._crash = crash
        self.run = log.run
        self.has_room = log.has_room
        self.read = log.read
        self.close = log.close

    async def sync(self) -> None:
        """Do nothing: the end of a process loses nothing that was written."""

    def write(self, *records: Record) -> None:
        """Write records, unless it is time to crash."""
        self._left -= 1
        if self._left == 0 and self._before:
            self._crash()
        self._log.write(*records)
        if self._left == 0:
            self._crash()


@asynccontextmanager
async def opened(folder: str) -> AsyncIterator[tuple[RunStore, HelperEngine]]:
    store = RunStore(folder)
    launcher = Launcher(asyncio.get_running_loop())
    engine = HelperEngine(launcher, LIMITS)
    try:
        yield store, engine
    finally:
        await engine.close()
        await launcher.aclose()


def begin(store: RunStore, engine: HelperEngine) -> RunLog:
    return open_log(store, PROGRAM, LIMITS, engine.version)


async def start(engine: HelperEngine, server: Server, log: Any) -> Outcome:
    return await run(engine, PROGRAM, server.call, log, LIMITS, is_stopping=lambda: True)


async def resume(store: RunStore, engine: HelperEngine, server: Server, version: str = "") -> Outcome:
    """Continue the only run of a store."""
    [number] = store.unfinished()
    log, recorded = store.reopen(number)
    return await recover(engine, recorded, version or engine.version, server.call, log)


class FileServer(Server):
    """Writes its effects to a file, so that they outlive the process."""

    def __init__(self, folder: str, engine: HelperEngine) -> None:
        super().__init__()
        self._folder = folder
        self._engine = engine
        self._file = os.open(os.path.join(folder, "effects"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def call(self, module: str, subtool: str, arguments: bytes) -> Settled:
        """Carry out a call of the program."""
        os.write(self._file, b"%d\n" % json.loads(arguments)["n"])
        pids = [pid for one in self._engine.helpers for pid in (one.pid, one.worker)]
        with open(os.path.join(self._folder, "pids"), "w") as file:  # noqa: ASYNC230 -- a few bytes
            file.write(json.dumps(pids))
        return await super().call(module, subtool, arguments)


async def main(folder: str, *at: str) -> None:
    async with opened(folder) as (store, engine):
        server = FileServer(folder, engine)
        if at:
            kill = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
            log = CrashingLog(begin(store, engine), int(at[0]), before=len(at) > 1, crash=kill)
            await start(engine, server, log)
        elif store.unfinished():
            outcome = await resume(store, engine, server)
            print(json.dumps([outcome.value.decode(), len(outcome.uncertain), str(outcome.failure)]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
