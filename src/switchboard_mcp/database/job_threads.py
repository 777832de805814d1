"""Threads for the database: one that writes, where concurrent jobs share a commit, and one that reads.

A job that refuses something (`SwitchboardError`) before it changed anything ends only itself. Any other error rolls
the group back, and its jobs run again one by one, so that one bad job harms nobody. If the connection is lost, the
jobs are repeated on another one: each must be idempotent, which `Transaction.is_repeated` helps with.
"""

from __future__ import annotations

import threading
import time
from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from queue import SimpleQueue
from typing import Any, TypeVar

from switchboard_mcp.database.transactions import Engine, StorageError, Transaction
from switchboard_mcp.errors import SwitchboardError

T = TypeVar("T")
# A larger group saves little more, and whoever came first waits for the last.
MAX_GROUP = 64
# A caller waits this long for another process that holds the lock, such as one that was stopped in a debugger.
WAIT_S = 30.0
# A restarted server refuses connections for some seconds.
RECONNECT_S = 30.0
PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0)
CLOSE_S = 10.0


class DatabaseJob:
    """A unit of work and the future for its result."""

    def __init__(self, work: Callable[[Transaction], Any], *, durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.loop: AbstractEventLoop = get_running_loop()
        self.future: Future[Any] = self.loop.create_future()
        self.has_begun = False
        self.is_abandoned = False
        self.result: Any = None
        self.problem: BaseException | None = None
        self.timer: TimerHandle | None = None

    def resolve(self) -> None:
        """Set the future; runs on the event loop."""
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():
            return
        if self.problem is not None:
            self.future.set_exception(self.problem)
        else:
            self.future.set_result(self.result)


class _GroupError(Exception):
    """A job failed after it had changed something, or unexpectedly."""


class JobThread:
    """A thread with a queue of jobs, which `work` runs; `end` releases what that has opened."""

    def __init__(self, name: str, work: Callable[[list[DatabaseJob]], None], end: Callable[[], None]) -> None:
        self._queue: SimpleQueue[DatabaseJob | None] = SimpleQueue()
        self._is_closing = False
        self._work = work
        self._end = end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: DatabaseJob) -> None:
        """Queue a job."""
        if self._is_closing:
            raise StorageError("The database is closed.")
        self._queue.put(job)

    async def close(self) -> None:
        """Finish the queued jobs and stop; a thread that waits for a stopped process is left behind."""
        self._is_closing = True
        self._queue.put(None)
        await get_running_loop().run_in_executor(None, self._thread.join, CLOSE_S)

    def _run(self) -> None:
        while jobs := self._next_jobs():
            self._work(jobs)
            _resolve(jobs)
        self._end()

    def _next_jobs(self) -> list[DatabaseJob]:
        """Wait for a job and return it with those that came meanwhile; none at the end."""
        jobs: list[DatabaseJob] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == MAX_GROUP or self._queue.empty():
                return jobs
            job = self._queue.get()
        if jobs:
            self._queue.put(None)
        return jobs


class GroupCommitter:
    """Commits jobs in groups."""

    def __init__(self, engine: Engine, on_commit: Callable[[frozenset[str]], None]) -> None:
        self._engine = engine
        self._on_commit = on_commit

    def work(self, jobs: list[DatabaseJob]) -> None:
        """Commit the jobs as a group, or one by one if that fails."""
        try:
            retry_lost(partial(self._commit, jobs))
            return
        except StorageError as problem:
            error: BaseException = problem
        except _GroupError as problem:
            error = problem.__cause__ or problem
        except Exception as problem:  # noqa: BLE001 - reported to the callers; the thread must go on
            error = problem
        if len(jobs) == 1 or (isinstance(error, StorageError) and (error.uncertain or error.is_lost)):
            for job in jobs:
                job.problem = job.problem or error
            return
        for job in jobs:
            self.work([job])

    def _commit(self, jobs: list[DatabaseJob], is_repeated: bool) -> None:
        durable = any(job.durable for job in jobs)
        try:
            tx = self._engine.begin(durable=durable)
            tx.is_repeated = is_repeated
            for job in jobs:
                _run_job(job, tx)
            tx.finish()
            self._engine.commit(tx, durable=durable)
        except BaseException:
            self._engine.roll_back()
            raise
        if tx.topics:
            self._on_commit(frozenset(tx.topics))


def read_each(engine: Engine, jobs: list[DatabaseJob]) -> None:
    """Run jobs that only read, each with a view of its own."""

    def read(job: DatabaseJob, _: bool) -> None:
        try:
            job.result = job.work(engine.reader())
        finally:
            engine.end_read()

    for job in jobs:
        try:
            retry_lost(partial(read, job))
        except Exception as problem:  # noqa: BLE001 - reported to the caller; the thread must go on
            job.problem = problem


def retry_lost(work: Callable[[bool], T], patience_s: float | None = None) -> T:
    """Do something, and again on a new connection if that is lost; blocks.

    `work` gets True if an earlier attempt may have succeeded although no answer came.
    """
    deadline = time.monotonic() + (RECONNECT_S if patience_s is None else patience_s)
    is_repeated = False
    for pause_s in chain(PAUSES_S, repeat(PAUSES_S[-1])):
        try:
            return work(is_repeated)
        except StorageError as problem:
            if not problem.is_lost or time.monotonic() > deadline:
                raise
        is_repeated = True
        time.sleep(pause_s)
    raise AssertionError  # The pauses do not end.


def _run_job(job: DatabaseJob, tx: Transaction) -> None:
    if job.is_abandoned:
        return
    job.has_begun = True
    job.result = job.problem = None
    had_changed, tx.has_changed = tx.has_changed, False
    try:
        job.result = job.work(tx)
    except SwitchboardError as refusal:
        if tx.has_changed:
            raise _GroupError from refusal
        job.problem = refusal
    except StorageError:
        raise
    except Exception as problem:
        raise _GroupError from problem
    finally:
        tx.has_changed |= had_changed


def _resolve(jobs: list[DatabaseJob]) -> None:
    """Answer the callers: one wake-up of the event loop for a group."""
    for loop in {job.loop for job in jobs}:
        own = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve_all, own)
        except RuntimeError:
            pass  # The loop is closed, so there is no caller left.


def _resolve_all(jobs: list[DatabaseJob]) -> None:
    for job in jobs:
        job.resolve()
