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
MOST_IN_ROUND = 256


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

    def settle(self) -> None:
        """On the event loop: hand the outcome over."""
        if self.answer.done():
            return
        if self.problem is not None:
            self.answer.set_exception(self.problem)
        else:
            self.answer.set_result(self.outcome)


class StoreWorker:
    """The thread and what waits for it. Whoever only reads has one of its own, so as not to wait for the disk."""

    def __init__(self, tree: StoreDirectory, name: str = "switchboard-mail") -> None:
        self._tree = tree
        self._waiting: deque[WorkerJob] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a function that blocks."""
        return await self._hand_over(work, durable=False, numbers=0)  # type: ignore[no-any-return]

    async def commit(self, job: Callable[[Transaction], Job[T]], *, numbers: int = 1) -> T:
        """Run a job that is durable when this returns, together with others."""
        return await self._hand_over(job, durable=True, numbers=numbers)  # type: ignore[no-any-return]

    async def _hand_over(self, work: Callable[[Transaction], Any], *, durable: bool, numbers: int) -> Any:
        order = WorkerJob(get_running_loop(), work, durable, numbers)
        with self._ready:
            if self._closing:
                raise refused("shutting_down", "The message desk is closed.")
            self._waiting.append(order)
            self._ready.notify()
        return await order.answer

    def start(self, work: Callable[[Transaction], T], done: Callable[[T | None], None]) -> None:
        """Run a function nobody waits for; `done` hears what it returned, or None, on the event loop."""
        order = WorkerJob(get_running_loop(), work, durable=False, numbers=0)
        order.answer.add_done_callback(lambda answer: done(None if answer.exception() else answer.result()))
        with self._ready:
            if not self._closing:
                self._waiting.append(order)
                self._ready.notify()

    async def close(self) -> None:
        """Finish what was handed over, then stop."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        await get_running_loop().run_in_executor(None, self._thread.join)

    def _serve(self) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._closing:
                    self._ready.wait()
                if not self._waiting:
                    return
                taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_IN_ROUND))]
            single = [order for order in taken if not order.durable]
            for order in single:
                self._single(order)
            _answer(single)
            together = [order for order in taken if order.durable]
            if together:
                self._round(together)
                _answer(together)

    def _single(self, order: WorkerJob) -> None:
        try:
            with self._tree.visit() as visit:
                order.outcome = order.work(visit)
        except OSError as problem:
            order.problem = SwitchboardError(file_operations.trouble(problem, self._tree.path))
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is the asker's to hear, and the thread goes on
            order.problem = problem

    def _round(self, orders: list[WorkerJob]) -> None:
        try:
            with self._tree.visit(sum(order.numbers for order in orders)) as visit:
                outcomes = group_commit.run(visit, [order.work(visit) for order in orders])
            for order, outcome in zip(orders, outcomes, strict=True):
                if isinstance(outcome, Failure):
                    order.problem = SwitchboardError(outcome)
                elif isinstance(outcome, BaseException):
                    order.problem = outcome
                else:
                    order.outcome = outcome
        except Exception as problem:  # noqa: BLE001 - as above
            for order in orders:
                order.problem = problem


def _answer(orders: list[WorkerJob]) -> None:
    for loop in {order.loop for order in orders}:
        mine = [order for order in orders if order.loop is loop]
        try:
            loop.call_soon_threadsafe(_settle, mine)
        except RuntimeError:
            pass  # The loop was closed; nobody waits any more.


def _settle(orders: list[WorkerJob]) -> None:
    for order in orders:
        order.settle()
