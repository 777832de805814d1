"""Runs long computations in a thread of their own, so that the event loop keeps serving.

One thread for all, and one computation after the other: two would compete with the loop for the interpreter. The
thread starts with the first computation and is a daemon, so that none delays the exit. Not aware of what is computed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")

# Work on up to this many bytes stays on the loop. The slowest function needs 1 s for 1 MiB, so 30 ms for this.
LOOP_BYTES = 32 * 1024

_queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
_start_lock = threading.Lock()
_thread: threading.Thread | None = None


def submit(work: Callable[[], Result], done: Callable[[Result | Exception], None]) -> None:
    """Compute `work()` in the thread, then call `done` on the running loop with its result, or with its exception."""
    _queue.put(_computation(work, done))
    _ensure_thread()


def _computation(
    work: Callable[[], Result], done: Callable[[Result | Exception], None]
) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def compute() -> None:
        outcome: Result | Exception
        try:
            outcome = work()
        except Exception as problem:  # noqa: BLE001 - the caller decides
            outcome = problem
        try:
            loop.call_soon_threadsafe(done, outcome)
        except RuntimeError:  # the loop has ended meanwhile
            return

    return compute


async def run(work: Callable[[], Result]) -> Result:
    """Return `work()`, computed in the thread."""
    return await _result(work, submit)


async def run_alone(work: Callable[[], Result]) -> Result:
    """Return `work()`, computed in a thread that ends with it: for work that waits, so others need not wait for it."""

    def start(work: Callable[[], Result], done: Callable[[Result | Exception], None]) -> None:
        threading.Thread(target=_computation(work, done), name="wait", daemon=True).start()

    return await _result(work, start)


async def _result(
    work: Callable[[], Result],
    start: Callable[[Callable[[], Result], Callable[[Result | Exception], None]], None],
) -> Result:
    finished: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def done(outcome: Result | Exception) -> None:
        if finished.cancelled():
            return
        if isinstance(outcome, Exception):
            finished.set_exception(outcome)
        else:
            finished.set_result(outcome)

    start(work, done)
    return await finished


def _ensure_thread() -> None:
    global _thread
    with _start_lock:
        if _thread is None or not _thread.is_alive():  # a forked process has the object, but not the thread
            _thread = threading.Thread(target=_serve, name="work", daemon=True)
            _thread.start()


def _serve() -> None:
    while True:
        _queue.get()()
