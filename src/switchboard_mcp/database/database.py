"""The database of a workspace: open it, run functions that read or write, hear of changes.

`async with await Database.open(target, parts) as database: await database.write(work)`. A function that writes gets a
transaction in the writer thread; when `write` returns, its changes survive a power cut, unless `durable` is False.
The engine and its library are imported when a database is opened.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, TimerHandle, create_task, get_running_loop
from asyncio import Task as AsyncTask
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from switchboard_mcp.database.job_threads import (
    WAIT_S,
    DatabaseJob,
    GroupCommitter,
    JobThread,
    read_each,
    retry_lost,
)
from switchboard_mcp.database.machine_clocks import MachineClocks, machine_clocks
from switchboard_mcp.database.table_versions import Part
from switchboard_mcp.database.transactions import Engine, StorageError, Transaction
from switchboard_mcp.database.wake_ups import FileWakeUps, WakeUps
from switchboard_mcp.system.installation import install_hint

T = TypeVar("T")
POSTGRESQL = ("postgresql://", "postgres://")
# A process that is killed between its commit and its wake-up wakes nobody.
LOOK_S = 1.0
OPEN_S = 5.0
# Called with a topic; empty if anything may have changed.
Listener = Callable[[str], None]


class Database:
    """Runs jobs on an engine."""

    def __init__(self, engine: Engine, wake_ups: WakeUps, wait_s: float) -> None:
        """Initialize; use `open` instead."""
        self.engine = engine
        self._wake_ups = wake_ups
        self._wait_s = wait_s
        self._loop: AbstractEventLoop = get_running_loop()
        groups = GroupCommitter(engine, self._on_commit)
        self._writer = JobThread("switchboard-database-writer", groups.work, engine.close_writer)
        self._reader = JobThread(
            "switchboard-database-reader", partial(read_each, engine), engine.close_reader
        )
        self._listeners: list[tuple[Listener, frozenset[str] | None]] = []
        self._look_timer: TimerHandle | None = None
        self._look: AsyncTask[None] | None = None
        self._mark: object = None

    @classmethod
    async def open(
        cls,
        target: str,
        parts: Sequence[Part],
        *,
        clocks: MachineClocks | None = None,
        wait_s: float = WAIT_S,
    ) -> Database:
        """Open the file at `target`, or the server and schema of a URL. Raises `StorageError`."""
        engine, wake_ups = _engine(target, parts, clocks)
        try:
            # A server that was restarted just now refuses connections for a moment.
            await get_running_loop().run_in_executor(None, retry_lost, lambda _: engine.open(), OPEN_S)
        except StorageError:
            engine.close_writer()
            raise
        return cls(engine, wake_ups, wait_s)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish the queued jobs and stop."""
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._look is not None:
            self._look.cancel()
        self._listeners.clear()
        self._wake_ups.close()
        await self._reader.close()
        await self._writer.close()

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run a function that changes something, in a group with others. Raises `StorageError`."""
        job = DatabaseJob(work, durable=durable)
        job.timer = self._loop.call_later(self._wait_s, self._give_up, job)
        self._writer.submit(job)
        return await job.future  # type: ignore[no-any-return]

    def _give_up(self, job: DatabaseJob) -> None:
        """Answer a caller whose job waits for another process."""
        if job.has_begun:
            return  # The disk or the server is slow; its answer is waited for.
        job.is_abandoned = True
        holder = self.engine.writer_description() or "another process"
        text = f"The database has been locked for {self._wait_s:g} s by {holder}."
        job.problem = StorageError(text, "If that process is stopped, continue or end it.")
        job.resolve()

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a function that only reads; it waits for no writer."""
        job = DatabaseJob(work, durable=False)
        self._reader.submit(job)
        return await job.future  # type: ignore[no-any-return]

    def listen(self, listener: Listener, topics: Sequence[str] | None = None) -> Callable[[], None]:
        """Call `listener` on the event loop when a topic was named in a commit, here or elsewhere; returns the end.

        Without topics it hears of all commits.
        """
        entry = (listener, None if topics is None else frozenset(topics))
        self._listeners.append(entry)
        self._watch()

        def stop() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)
                self._watch()

        return stop

    def _watch(self) -> None:
        wanted = [topics for _, topics in self._listeners]
        topics = frozenset().union(*filter(None, wanted))
        self._wake_ups.watch(topics, self._hear, everything=None in wanted)
        if self._listeners and self._look_timer is None:
            self._begin_look()

    def _begin_look(self) -> None:
        self._look = create_task(self._look_for_changes())

    async def _look_for_changes(self) -> None:
        """Find the commits that woke nobody."""
        job = DatabaseJob(lambda _: self.engine.change_mark(), durable=False)
        try:
            self._reader.submit(job)
            mark = await job.future
        except StorageError:
            mark = None
        if mark != self._mark:
            is_first, self._mark = self._mark is None, mark
            if not is_first:
                self._hear("")
        self._look_timer = self._loop.call_later(LOOK_S, self._begin_look) if self._listeners else None

    def _on_commit(self, topics: frozenset[str]) -> None:
        """Wake the listeners of this process; called in the writer thread."""
        if self._listeners:
            try:
                self._loop.call_soon_threadsafe(self._hear_all, topics)
            except RuntimeError:
                pass  # The loop is closed.

    def _hear_all(self, topics: frozenset[str]) -> None:
        for topic in topics:
            self._hear(topic)

    def _hear(self, topic: str) -> None:
        for listener, topics in tuple(self._listeners):
            if not topic or topics is None or topic in topics:
                listener(topic)


def _engine(target: str, parts: Sequence[Part], clocks: MachineClocks | None) -> tuple[Engine, WakeUps]:
    if not target.startswith(POSTGRESQL):
        from switchboard_mcp.database.sqlite import SqliteEngine

        engine = SqliteEngine(os.path.abspath(target), parts, clocks or machine_clocks())
        return engine, FileWakeUps(engine.wake_file)
    try:
        from switchboard_mcp.database.postgresql import PostgresEngine, PostgresWakeUps
    except ImportError as problem:
        text = f"A PostgreSQL database needs a package that is missing: {problem.name}."
        raise StorageError(text, install_hint("postgres")) from problem
    server = PostgresEngine(target, parts, clocks)
    return server, PostgresWakeUps(server)
