"""Turns between the sessions of the HTTP server: in each turn of the event loop, one request of a session is begun.

Each request has a connection of its own, so that the event loop would begin all requests of a busy session that have
arrived before any of another one that arrives meanwhile.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque


class SessionTurns:
    """Lets the requests of sessions wait for their turn."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        # Sessions that have begun a request in this turn of the event loop, and their requests that wait.
        self._waiting: dict[object, deque[Future[None]]] = {}

    async def wait(self, session: object) -> None:
        """Wait until a request of a session may begin."""
        waiting = self._waiting.get(session)
        if waiting is not None:
            turn = self._loop.create_future()
            waiting.append(turn)
            await turn
            return
        if not self._waiting:
            self._loop.call_soon(self._next)
        self._waiting[session] = deque()

    def _next(self) -> None:
        """Begin a turn of the event loop: the next request of each session."""
        for session, waiting in list(self._waiting.items()):
            while waiting and waiting[0].done():  # its client has gone
                waiting.popleft()
            if waiting:
                waiting.popleft().set_result(None)
            else:
                del self._waiting[session]
        if self._waiting:
            self._loop.call_soon(self._next)
