"""Turns between the sessions of the HTTP server: in each turn of the event loop, one request of a session is begun.

Each request has a connection of its own, so that the event loop would begin all requests of a busy session that have
arrived before any of another one that arrives meanwhile. A call takes several turns, in each of which the busy session
would begin another one. So it gives way to a session whose call has just begun, for a moment.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque

# A session with requests that wait begins the next one this long after the last, while others have calls in progress
# that are not older than this: calls of servers that answer at once.
GIVE_WAY_S = 0.001


class SessionTurns:
    """Lets the requests of sessions wait for their turn."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        # Sessions that have begun a request in this turn of the event loop, and their requests that wait.
        self._waiting: dict[object, deque[Future[None]]] = {}
        # Of sessions with requests in progress: their number, and the time at which the last was begun.
        self._in_progress: dict[object, int] = {}
        self._begun_at: dict[object, float] = {}
        self._timer: TimerHandle | None = None

    async def wait(self, session: object) -> None:
        """Wait until a request of a session may begin. `end` must be called when it has ended."""
        waiting = self._waiting.get(session)
        if waiting is None:
            if not self._waiting:
                self._loop.call_soon(self._next)
            self._waiting[session] = deque()
        else:
            turn = self._loop.create_future()
            waiting.append(turn)
            await turn
        self._in_progress[session] = self._in_progress.get(session, 0) + 1
        self._begun_at[session] = self._loop.time()

    def end(self, session: object) -> None:
        """Note that a request has ended that was begun."""
        self._in_progress[session] -= 1
        if not self._in_progress[session]:
            del self._in_progress[session], self._begun_at[session]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._next()

    def _next(self) -> None:
        """Begin a turn of the event loop: the next request of each session."""
        self._timer = None
        has_begun = False
        now = self._loop.time()
        for session, waiting in list(self._waiting.items()):
            while waiting and waiting[0].done():  # its client has gone
                waiting.popleft()
            if not waiting:
                del self._waiting[session]
            elif not self._gives_way(session, now):
                has_begun = True
                waiting.popleft().set_result(None)
        if has_begun:
            self._loop.call_soon(self._next)
        elif self._waiting:
            self._timer = self._loop.call_later(GIVE_WAY_S, self._next)

    def _gives_way(self, session: object, now: float) -> bool:
        """Return True if a session has just had its turn and another session has just begun a call."""
        if now - self._begun_at.get(session, 0.0) >= GIVE_WAY_S:
            return False
        return any(
            now - begun_at < GIVE_WAY_S and not self._waiting.get(other)
            for other, begun_at in self._begun_at.items()
            if other is not session
        )
