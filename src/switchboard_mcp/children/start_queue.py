"""The queue of callers that wait for one child to start, in order of arrival."""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.errors import Failure, failure

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child

# How often waiting hosts receive a progress notification.
PROGRESS_INTERVAL_S = 2.0


class StartQueue:
    """Holds the waiters of one child and reports progress to them while it starts."""

    def __init__(self, child: Child, context: ChildContext) -> None:
        self._child = child
        self._context = context
        self._waiters: list[ReadyWaiter] = []
        self._progress_timer: TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def add(self, waiter: ReadyWaiter) -> None:
        """Append a waiter."""
        self._waiters.append(waiter)

    def discard(self, waiter: ReadyWaiter) -> None:
        """Remove a waiter, if it is queued."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def waiters(self) -> list[ReadyWaiter]:
        """Return all waiters."""
        return self._waiters

    def drain(self) -> list[ReadyWaiter]:
        """Remove all waiters and return them."""
        waiters, self._waiters = self._waiters, []
        return waiters

    def fail_all(self, problem: Failure) -> None:
        """Fail all waiters."""
        for waiter in self.drain():
            waiter.on_failed(problem)

    def release_all(self) -> None:
        """Let all waiters continue."""
        for waiter in self.drain():
            self.release(waiter)

    def release(self, waiter: ReadyWaiter) -> None:
        """Let one waiter continue. Its errors are answered here, since no caller would see them."""
        name = self._child.name
        try:
            waiter.on_ready(self._child)
        except Exception as problem:  # noqa: BLE001 - neither this waiter nor the next may be left waiting
            self._context.log.error("internal", child=name, problem=repr(problem))
            waiter.on_failed(
                failure("internal", f"The call to child '{name}' failed internally.", child=name)
            )

    def start_progress(self) -> None:
        """Start sending progress to the waiters."""
        started_at = self._context.loop.time()
        self._progress_timer = self._context.loop.call_later(
            PROGRESS_INTERVAL_S, self._report_progress, started_at
        )

    def stop_progress(self) -> None:
        """Stop sending progress."""
        if self._progress_timer is not None:
            self._progress_timer.cancel()
            self._progress_timer = None

    def _report_progress(self, started_at: float) -> None:
        loop, name = self._context.loop, self._child.name
        seconds = round(loop.time() - started_at)
        self._progress_timer = loop.call_later(PROGRESS_INTERVAL_S, self._report_progress, started_at)
        for waiter in self._waiters:
            waiter.on_progress(seconds, f"Starting child '{name}' ({seconds} s)")
