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
SLOW_CLIENT_BYTES = 1_048_576
MAX_BUFFERED_BYTES = 16 * 1_048_576
SLOW_CLIENT_S = 5.0
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


class EventStream:
    """See the module."""

    __slots__ = ("_guard", "_loop", "_waiter", "buffer", "closed", "finished", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop, guard: ConnectionGuard) -> None:
        self._loop = loop
        self._guard = guard
        self._waiter: asyncio.Future[None] | None = None
        self.buffer: list[bytes] = []
        self.size = 0
        self.finished = False
        self.closed = guard.lost
        guard.on_close = self._on_close

    def put(self, chunk: bytes) -> None:
        """Send this, unless the client has gone."""
        if self.closed or self.finished:
            return
        if self.size > SLOW_CLIENT_BYTES and (
            self.size > MAX_BUFFERED_BYTES or self._guard.unread_for() > SLOW_CLIENT_S
        ):
            self.abort()
            return
        self.buffer.append(chunk)
        self.size += len(chunk)
        self.wake()

    def put_first(self, chunk: bytes) -> None:
        """Send this before all that waits."""
        self.buffer.insert(0, chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        """Nothing comes after what has been put."""
        self.finished = True
        self.wake()

    def abort(self) -> None:
        """End the connection, whatever waits."""
        self._guard.transport.abort()
        self._on_close()

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, seconds: float) -> bool:
        """Wait until something is different, or for so long; whether nothing is."""
        if self.closed:
            return False
        self._waiter = waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await waiter
        finally:
            timer.cancel()
        return not (self.buffer or self.finished or self.closed)

    async def pump(self, send: Send) -> None:
        """Send what comes until it is finished or the client has gone."""
        while not self.closed:
            if self.buffer:
                chunk = b"".join(self.buffer)
                self.buffer.clear()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                # Counted as waiting until it is on its way: that is when the client reads.
                self.size = sum(map(len, self.buffer))
            elif self.finished:
                await send({"type": "http.response.body", "body": b""})
                return
            elif await self.wait(KEEP_ALIVE_S):
                self.buffer.append(KEEP_ALIVE)

    def _on_close(self) -> None:
        self.closed = True
        self.buffer.clear()
        self.wake()
