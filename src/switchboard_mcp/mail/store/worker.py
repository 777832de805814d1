"""A thread that does what blocks, and brings to the disk together what came at the same time.

Jobs that must be durable are run as one round; while a round waits for the disk, the next one gathers. Everything else
is run singly, before the round. Owns the thread and the queue; does not know what the jobs do.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.store import file_operations, group_commit
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.group_commit import Job

T = TypeVar("T")
# A round of this size costs little more for each further message.
MAX_GROUP = 256


class WorkerJob:
    """One thing to do, and where its answer goes."""

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
        """On the event loop: hand the outcome over."""
        if self.answer.done():
            return
        if self.problem is not None:
            self.answer.set_exception(self.problem)
        else:
            self.answer.set_result(self.outcome)


class StoreWorker:
    """The thread and what waits for it. Whoever only reads has one of its own, so as not to wait for the disk."""

    def __init__(self, directory: StoreDirectory, name: str = "switchboard-mail") -> None:
        self._directory = directory
        self._waiting: deque[WorkerJob] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run_jobs, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a function that blocks."""
        return await self._submit(work, durable=False, numbers=0)  # type: ignore[no-any-return]

    async def commit(self, job: Callable[[Transaction], Job[T]], *, numbers: int = 1) -> T:
        """Run a job that is durable when this returns, together with others."""
        return await self._submit(job, durable=True, numbers=numbers)  # type: ignore[no-any-return]

    async def _submit(self, work: Callable[[Transaction], Any], *, durable: bool, numbers: int) -> Any:
        job = WorkerJob(get_running_loop(), work, durable, numbers)
        with self._ready:
            if self._closing:
                raise refused("shutting_down", "The message desk is closed.")
            self._waiting.append(job)
            self._ready.notify()
        return await job.answer

    def start(self, work: Callable[[Transaction], T], done: Callable[[T | None], None]) -> None:
        """Run a function nobody waits for; `done` hears what it returned, or None, on the event loop."""
        job = WorkerJob(get_running_loop(), work, durable=False, numbers=0)
        job.answer.add_done_callback(lambda answer: done(None if answer.exception() else answer.result()))
        with self._ready:
            if not self._closing:
                self._waiting.append(job)
                self._ready.notify()

    async def close(self) -> None:
        """Finish what was handed over, then stop."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        await get_running_loop().run_in_executor(None, self._thread.join)

    def _run_jobs(self) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._closing:
                    self._ready.wait()
                if not self._waiting:
                    return
                taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
            single = [job for job in taken if not job.durable]
            for job in single:
                self._run_single(job)
            _post_results(single)
            together = [job for job in taken if job.durable]
            if together:
                self._run_group(together)
                _post_results(together)

    def _run_single(self, job: WorkerJob) -> None:
        try:
            with self._directory.transaction() as tx:
                job.outcome = job.work(tx)
        except OSError as problem:
            job.problem = SwitchboardError(file_operations.failure_for(problem, self._directory.path))
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is the asker's to hear, and the thread goes on
            job.problem = problem

    def _run_group(self, jobs: list[WorkerJob]) -> None:
        try:
            with self._directory.transaction(sum(job.numbers for job in jobs)) as tx:
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
            pass  # The loop was closed; nobody waits any more.


def _resolve_all(jobs: list[WorkerJob]) -> None:
    for job in jobs:
        job.resolve()
