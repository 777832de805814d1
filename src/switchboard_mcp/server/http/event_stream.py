"""What is on its way to one client that listens to a stream of events.

Bounded: a client that does not read is cut off, and neither our memory nor anybody else pays for it. Does not know what
the events say.
"""

from __future__ import annotations

import asyncio

from switchboard_mcp.server.http.asgi import Send
from switchboard_mcp.server.http.connection_limits import ConnectionGuard

# Beyond the first, a client that has taken nothing for some time does not read; beyond the second, any client is cut
# off. One message may be larger.
MAX_WAITING_BYTES = 1_048_576
MOST_WAITING_BYTES = 16 * 1_048_576
UNREAD_S = 5.0
# Often enough that no proxy takes a quiet stream for a dead one.
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": ping\n\n"


def event(message: bytes, id: bytes = b"") -> bytes:
    """One message as an event. Line ends stand only between the parts of JSON, never within."""
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\n", b" ").replace(b"\r", b" ")
    if id:
        return b"".join((b"event: message\nid: ", id, b"\ndata: ", message, b"\n\n"))
    return b"".join((b"event: message\ndata: ", message, b"\n\n"))


class Outlet:
    """See the module."""

    __slots__ = ("_guard", "_loop", "_waiter", "finished", "gone", "size", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, guard: ConnectionGuard) -> None:
        self._loop = loop
        self._guard = guard
        self._waiter: asyncio.Future[None] | None = None
        self.waiting: list[bytes] = []
        self.size = 0
        self.finished = False
        self.gone = guard.lost
        guard.gone = self._lost

    def put(self, chunk: bytes) -> None:
        """Send this, unless the client has gone."""
        if self.gone or self.finished:
            return
        if self.size > MAX_WAITING_BYTES and (
            self.size > MOST_WAITING_BYTES or self._guard.unread_for() > UNREAD_S
        ):
            self.cut()
            return
        self.waiting.append(chunk)
        self.size += len(chunk)
        self.wake()

    def put_first(self, chunk: bytes) -> None:
        """Send this before all that waits."""
        self.waiting.insert(0, chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        """Nothing comes after what has been put."""
        self.finished = True
        self.wake()

    def cut(self) -> None:
        """End the connection, whatever waits."""
        self._guard.transport.abort()
        self._lost()

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def change(self, seconds: float) -> bool:
        """Wait until something is different, or for so long; whether nothing is."""
        if self.gone:
            return False
        self._waiter = waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await waiter
        finally:
            timer.cancel()
        return not (self.waiting or self.finished or self.gone)

    async def pump(self, send: Send) -> None:
        """Send what comes until it is finished or the client has gone."""
        while not self.gone:
            if self.waiting:
                chunk = b"".join(self.waiting)
                self.waiting.clear()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                # Counted as waiting until it is on its way: that is when the client reads.
                self.size = sum(map(len, self.waiting))
            elif self.finished:
                await send({"type": "http.response.body", "body": b""})
                return
            elif await self.change(KEEP_ALIVE_S):
                self.waiting.append(KEEP_ALIVE)

    def _lost(self) -> None:
        self.gone = True
        self.waiting.clear()
        self.wake()
