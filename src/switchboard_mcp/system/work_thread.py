"""Runs long computations in a thread of their own, so that the event loop keeps serving.

One thread for all, and one computation after the other: two would compete with the loop for the interpreter. Clients
take turns, so one with many computations delays another by one of them. A computation whose client has left, or that
has used its time, ends at its next `checkpoint`. The thread starts with the first computation and is a daemon, so that
none delays the exit. Not aware of what is computed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

Result = TypeVar("Result")

# Work on up to this many bytes stays on the loop. The slowest function needs 1 s for 1 MiB, so 30 ms for this.
LOOP_BYTES = 32 * 1024
# Processor time of one computation. The largest accepted result needs less with every function.
DEADLINE_S = 5.0


class OverdueError(Exception):
    """The computation has used its time, or its client has left."""


class WorkClient(Protocol):
    """For whom something is computed."""

    @property
    def closed(self) -> bool:
        """True once it has left, so that nobody waits for the result."""

    @property
    def work_queue(self) -> Hashable:
        """The queue of its computations. Several connections of one client may share it."""


class OwnWork:
    """Switchboard itself as a client: what it computes is for nobody in particular, and never abandoned."""

    closed = False
    work_queue = "switchboard"


OWN = OwnWork()


class WorkQueue:
    """The queue of one client, whose computations are of use after it has left too."""

    closed = False

    def __init__(self, client: Hashable) -> None:
        self.work_queue = client


class Computation(Generic[Result]):
    """One computation, and where its result goes."""

    def __init__(
        self,
        client: WorkClient,
        work: Callable[[], Result],
        done: Callable[[Result | Exception], object],
    ) -> None:
        self._client = client
        self._work = work
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._deadline = 0.0
        self.abandoned = False

    def run(self) -> None:
        """Compute, and call back on the loop."""
        outcome: Result | Exception
        self._deadline = time.thread_time() + DEADLINE_S
        _current.computation = self
        try:
            self.check()
            outcome = self._work()
        except Exception as problem:  # noqa: BLE001 - the caller decides
            outcome = problem
        finally:
            _current.computation = None
        try:
            self._loop.call_soon_threadsafe(self._done, outcome)
        except RuntimeError:  # the loop has ended meanwhile
            return

    def check(self) -> None:
        """Raise `OverdueError` if there is no point in going on."""
        if self.abandoned or self._client.closed or time.thread_time() > self._deadline:
            raise OverdueError("The computation took too long, or nobody waits for it any more.")


class _Current(threading.local):
    computation: Computation[Any] | None = None


class _Queues:
    """The computations of all clients, whose turns alternate."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Computation[Any]]] = {}
        self._changed = threading.Condition()

    def put(self, queue: Hashable, computation: Computation[Any]) -> None:
        with self._changed:
            self._queues.setdefault(queue, deque()).append(computation)
            self._changed.notify()

    def get(self) -> Computation[Any]:
        """Wait for a computation, and return that of the client whose last turn is longest ago."""
        with self._changed:
            while not self._queues:
                self._changed.wait()
            queue = next(iter(self._queues))
            waiting = self._queues.pop(queue)
            computation = waiting.popleft()
            if waiting:
                self._queues[queue] = waiting  # behind all others
            return computation


_current = _Current()
_queues = _Queues()
_start_lock = threading.Lock()
_thread: threading.Thread | None = None


def checkpoint() -> None:
    """End the computation that runs in this thread if it is overdue. Loops over two inputs call it.

    Raises `OverdueError`. Does nothing outside of a computation.
    """
    if _current.computation is not None:
        _current.computation.check()


def submit(
    client: WorkClient, work: Callable[[], Result], done: Callable[[Result | Exception], object]
) -> Computation[Result]:
    """Compute `work()` in the thread, then call `done` on the running loop with its result, or with its exception."""
    computation = Computation(client, work, done)
    _queues.put(client.work_queue, computation)
    _ensure_thread()
    return computation


async def run(client: WorkClient, work: Callable[[], Result]) -> Result:
    """Return `work()`, computed in the thread. It is abandoned if the caller is cancelled."""
    finished, done = _outcome(work)
    computation = submit(client, work, done)
    try:
        return await finished
    except asyncio.CancelledError:
        computation.abandoned = True
        raise


async def run_alone(work: Callable[[], Result]) -> Result:
    """Return `work()`, computed in a thread that ends with it: for work that waits, so others need not wait for it."""
    finished, done = _outcome(work)
    threading.Thread(target=_Waiting(OWN, work, done).run, name="wait", daemon=True).start()
    return await finished


class _Waiting(Computation[Result]):
    """Work that waits, in a thread of its own, without a deadline."""

    def check(self) -> None:
        """Go on in any case."""


def _outcome(
    work: Callable[[], Result],
) -> tuple[asyncio.Future[Result], Callable[[Result | Exception], None]]:
    """Return a future, and what sets it. `work` gives the type only."""
    finished: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def done(outcome: Result | Exception) -> None:
        if finished.done():
            return
        if isinstance(outcome, Exception):
            finished.set_exception(outcome)
        else:
            finished.set_result(outcome)

    return finished, done


def _ensure_thread() -> None:
    global _thread
    with _start_lock:
        if _thread is None or not _thread.is_alive():  # a forked process has the object, but not the thread
            _thread = threading.Thread(target=_serve, name="work", daemon=True)
            _thread.start()


def _serve() -> None:
    while True:
        _queues.get().run()
