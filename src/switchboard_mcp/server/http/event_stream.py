"""Buffers server-sent events for one client and writes them as it reads.

Bounded: a client that does not read is disconnected, so it costs neither memory nor anybody else's time. Not aware of
what the events contain.
"""

from __future__ import annotations

import asyncio

from switchboard_mcp.server.http.asgi import Send
from switchboard_mcp.server.http.connection_limits import ConnectionGuard

# With more than SLOW_CLIENT_BYTES buffered, a client that has not read for SLOW_CLIENT_S is disconnected; with more
# than MAX_BUFFERED_BYTES, any client. A single message may be larger.
SLOW_CLIENT_BYTES = 1_048_576
MAX_BUFFERED_BYTES = 16 * 1_048_576
SLOW_CLIENT_S = 5.0
# Often enough that no proxy closes an idle stream.
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": ping\n\n"


def event(message: bytes, id: bytes = b"") -> bytes:
    """Encode a message as an event. JSON has line breaks only between tokens, so they can become spaces."""
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\n", b" ").replace(b"\r", b" ")
    if id:
        return b"".join((b"event: message\nid: ", id, b"\ndata: ", message, b"\n\n"))
    return b"".join((b"event: message\ndata: ", message, b"\n\n"))


class EventStream:
    """The buffered event stream of one connection."""

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
        """Append a chunk, unless the stream is closed. Disconnects a client that does not read."""
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
        """Insert a chunk before everything that is buffered."""
        self.buffer.insert(0, chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        """End the stream after what is buffered."""
        self.finished = True
        self.wake()

    def abort(self) -> None:
        """Close the connection and drop what is buffered."""
        self._guard.transport.abort()
        self._on_close()

    def wake(self) -> None:
        """Wake a pending `wait`."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, seconds: float) -> bool:
        """Wait for data or the end of the stream. Return True on timeout."""
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
        """Write chunks as they arrive, until the stream is finished or closed."""
        while not self.closed:
            if self.buffer:
                chunk = b"".join(self.buffer)
                self.buffer.clear()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                # Counted as buffered until `send` returns: that is when the client has read.
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
