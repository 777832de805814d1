"""A thread for blocking work, which commits concurrent durable jobs as a group.

Durable jobs run as one group commit; while it waits for the disk, the next group gathers. Before the group the other
jobs run one by one, the short ones in one transaction. Owns the thread and the queue; not aware of what the jobs do.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.store import file_operations, group_commit
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.open_folders import OpenFolders

T = TypeVar("T")
# A group of this size costs little more per additional message.
MAX_GROUP = 256


class WorkerJob:
    """A unit of work and the future for its result."""

    def __init__(
        self, loop: AbstractEventLoop, work: Callable[[Transaction], Any], durable: bool, numbers: int
    ) -> None:
        self.work = work
        self.durable = durable
        self.numbers = numbers
        self.loop = loop
        self.answer: Future[Any] = loop.create_future()
        self.outcome: Any = None
        self.problem: BaseException | None = None

    def resolve(self) -> None:
        """Set the future; runs on the event loop."""
        if self.answer.done():
            return
        if self.problem is not None:
            self.answer.set_exception(self.problem)
        else:
            self.answer.set_result(self.outcome)


class StoreWorker:
    """Runs jobs in a thread. Readers use a second worker, so they do not wait for disk syncs."""

    def __init__(self, directory: StoreDirectory, name: str = "switchboard-mail") -> None:
        self._directory = directory
        # None ends the thread.
        self._waiting: SimpleQueue[WorkerJob | None] = SimpleQueue()
        self._closing = False
        # Used by the thread alone.
        self._folders = OpenFolders()
        self._thread = threading.Thread(target=self._run_jobs, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Transaction], T], *, numbers: int = 0) -> T:
        """Run a blocking function; one that takes numbers shares its transaction with others, so it must be short."""
        return await self._submit(work, durable=False, numbers=numbers)  # type: ignore[no-any-return]

    async def commit(self, job: Callable[[Transaction], Job[T]], *, numbers: int = 1) -> T:
        """Run a job as part of a group commit; durable on return."""
        return await self._submit(job, durable=True, numbers=numbers)  # type: ignore[no-any-return]

    async def _submit(self, work: Callable[[Transaction], Any], *, durable: bool, numbers: int) -> Any:
        job = WorkerJob(get_running_loop(), work, durable, numbers)
        if self._closing:
            raise refused("shutting_down", "The message store is closed.")
        self._waiting.put(job)
        return await job.answer

    def start(self, work: Callable[[Transaction], T], done: Callable[[T | None], None]) -> None:
        """Run a function in the background; `done` gets its result, or None if it failed, on the event loop."""
        job = WorkerJob(get_running_loop(), work, durable=False, numbers=0)
        job.answer.add_done_callback(lambda answer: done(None if answer.exception() else answer.result()))
        if not self._closing:
            self._waiting.put(job)

    async def close(self) -> None:
        """Finish the queued jobs and stop."""
        self._closing = True
        self._waiting.put(None)
        await get_running_loop().run_in_executor(None, self._thread.join)

    def _run_jobs(self) -> None:
        while jobs := self._next_jobs():
            single = [job for job in jobs if not job.durable]
            self._run_short([job for job in single if job.numbers])
            for job in single:
                if not job.numbers:
                    self._run_single(job)
            _post_results(single)
            group = [job for job in jobs if job.durable]
            if group:
                self._run_group(group)
                _post_results(group)
        self._folders.close()
        self._directory.index.close_thread()

    def _next_jobs(self) -> list[WorkerJob]:
        """Wait for a job, and return it with those that came with it; none at the end."""
        jobs = []
        job = self._waiting.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == MAX_GROUP or self._waiting.empty():
                return jobs
            job = self._waiting.get()
        if jobs:
            self._waiting.put(None)
        return jobs

    def _run_short(self, jobs: list[WorkerJob]) -> None:
        if not jobs:
            return
        try:
            numbers = sum(job.numbers for job in jobs)
            with self._directory.transaction(numbers, folders=self._folders) as tx:
                for job in jobs:
                    self._run(job, tx)
        except Exception as problem:  # noqa: BLE001 - as below
            self._fail(jobs, problem)

    def _run_single(self, job: WorkerJob) -> None:
        try:
            with self._directory.transaction(folders=self._folders) as tx:
                self._run(job, tx)
        except Exception as problem:  # noqa: BLE001 - reported to the caller; the thread must go on
            self._fail([job], problem)

    def _run(self, job: WorkerJob, tx: Transaction) -> None:
        try:
            job.outcome = job.work(tx)
        except Exception as problem:  # noqa: BLE001 - as above
            self._fail([job], problem)

    def _fail(self, jobs: list[WorkerJob], problem: Exception) -> None:
        if isinstance(problem, OSError):
            problem = SwitchboardError(file_operations.failure_for(problem, self._directory.path))
        for job in jobs:
            job.problem = problem

    def _run_group(self, jobs: list[WorkerJob]) -> None:
        try:
            numbers, journaled = sum(job.numbers for job in jobs), self._directory.journal.begins()
            with self._directory.transaction(numbers, journaled=journaled, folders=self._folders) as tx:
                outcomes = group_commit.run(tx, [job.work(tx) for job in jobs])
            for job, outcome in zip(jobs, outcomes, strict=True):
                if isinstance(outcome, Failure):
                    job.problem = SwitchboardError(outcome)
                elif isinstance(outcome, BaseException):
                    job.problem = outcome
                else:
                    job.outcome = outcome
        except Exception as problem:  # noqa: BLE001 - as above
            for job in jobs:
                job.problem = problem


def _post_results(jobs: list[WorkerJob]) -> None:
    for loop in {job.loop for job in jobs}:
        mine = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve_all, mine)
        except RuntimeError:
            pass  # The loop is closed, so there is no caller left.


def _resolve_all(jobs: list[WorkerJob]) -> None:
    for job in jobs:
        job.resolve()
