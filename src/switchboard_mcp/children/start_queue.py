"""The waiting room of one child: visitors that came before it was ready, in the order they came."""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.errors import Failure, failure

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child

# How often a host that waits for a start is told so.
TICK_S = 2.0


class StartQueue:
    """See the module."""

    def __init__(self, child: Child, context: ChildContext) -> None:
        self._child = child
        self._context = context
        self._visitors: list[ReadyWaiter] = []
        self._ticker: TimerHandle | None = None

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._visitors)

    def add(self, visitor: ReadyWaiter) -> None:
        """One more waits."""
        self._visitors.append(visitor)

    def discard(self, visitor: ReadyWaiter) -> None:
        """It waits no longer."""
        if visitor in self._visitors:
            self._visitors.remove(visitor)

    def empty(self) -> list[ReadyWaiter]:
        """All that wait leave the room."""
        visitors, self._visitors = self._visitors, []
        return visitors

    def send_away(self, problem: Failure) -> None:
        """The child will not become ready."""
        for visitor in self.empty():
            visitor.on_failed(problem)

    def let_all_in(self) -> None:
        """The child is ready."""
        for visitor in self.empty():
            self.let_in(visitor)

    def let_in(self, visitor: ReadyWaiter) -> None:
        """Outside of `admit`, where nobody else would see it fail and answer for it."""
        name = self._child.name
        try:
            visitor.on_ready(self._child)
        except Exception as problem:  # noqa: BLE001 - neither this visitor nor the next must be left waiting
            self._context.log.error("internal", child=name, problem=repr(problem))
            visitor.on_failed(failure("internal", f"The call to child '{name}' went wrong.", child=name))

    def start_telling(self) -> None:
        """From now on tell those that wait why."""
        began = self._context.loop.time()
        self._ticker = self._context.loop.call_later(TICK_S, self._tick, began)

    def stop_telling(self) -> None:
        """The wait is over."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def _tick(self, began: float) -> None:
        loop, name = self._context.loop, self._child.name
        seconds = round(loop.time() - began)
        self._ticker = loop.call_later(TICK_S, self._tick, began)
        for visitor in self._visitors:
            visitor.on_progress(seconds, f"Starting child '{name}' ({seconds} s)")
