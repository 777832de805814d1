"""Connection limits: maximum connections, header timeout, idle timeout, stalled readers, bytes held.

A connection is *new* until a complete request head has arrived, *active* while a request is served, and *idle* between
two requests. New and idle connections time out, and are evicted when the limit is reached. A connection that does not
fit is rejected before anything is allocated for it. Bytes behind a request wait here until it has been served, and the
socket is not read while there are more than a few.

Sits between the socket and uvicorn's HTTP protocol, because uvicorn has neither a header timeout nor a limit for
clients that stop reading, and parses whatever arrives while a request is served. Uses only asyncio's protocol
interface; `request_framing` finds the end of each request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from switchboard_mcp.server.http.request_framing import FAILED, FramingState, RequestFraming
from switchboard_mcp.server.http.write_coalescing import CoalescingTransport

Address = tuple[str, int]

# Pipelined requests that wait. With more, the socket is not read until the request in progress has been served; until
# then a client that disconnects is noticed only when something is written to it.
MAX_WAITING_BYTES = 65_536
# From connecting, or from the first byte after an idle time, to the end of the head.
HEAD_TIMEOUT_S = 15.0
# Longer than known clients keep pooled connections, so the client closes first and never loses a request.
IDLE_TIMEOUT_S = 100.0
# A client that reads nothing for this long is dead or malicious.
STALL_TIMEOUT_S = 60.0
# The same for a machine that vanished: the kernel closes a connection with data unacknowledged for this long.
UNACKNOWLEDGED_MS = 60_000
SWEEP_S = 1.0

HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)


class ConnectionGuard(asyncio.Protocol):
    """Enforces the limits on one connection and passes its bytes on to the HTTP protocol."""

    __slots__ = (
        "_framing",
        "_inner",
        "_stall_timer",
        "_table",
        "_unread_since",
        "_waiting",
        "address",
        "lost",
        "on_close",
        "transport",
    )

    def __init__(self, inner: asyncio.Protocol, table: ConnectionTable) -> None:
        self._inner = inner
        self._table = table
        self._framing = RequestFraming()
        self._waiting = bytearray()  # behind the request in progress
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unread_since = 0.0
        self.on_close: Callable[[], None] | None = None
        self.lost = False
        self.address: Address = ("", 0)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or reject it if there is no room."""
        self.transport = transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = (str(peer[0]), int(peer[1])) if peer else ("", id(self))
        _detect_dead_peer(transport.get_extra_info("socket"))
        self._inner.connection_made(cast(asyncio.Transport, CoalescingTransport(transport, self._table.loop)))
        if not self._table.add(self):
            transport.write(TOO_MANY_CONNECTIONS)
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Pass data on up to the end of the request. What is behind it waits until the request has been served."""
        if self.transport.is_closing():
            return
        if self._waiting:
            self._waiting += data
        else:
            size = self._pass_on(data)
            if size < len(data):
                self._waiting += data[size:]
        if len(self._waiting) > MAX_WAITING_BYTES and not self.transport.is_closing():
            self.transport.pause_reading()

    def eof_received(self) -> bool | None:
        """Pass the end of input on."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and call `on_close`."""
        self.lost = True
        self._table.remove(self)
        self.resume_writing()
        self._inner.connection_lost(exc)
        gone, self.on_close = self.on_close, None
        if gone is not None:
            gone()

    def pause_writing(self) -> None:
        """Start the stall timer: the client does not read."""
        self._stall_timer = self.abort_after(STALL_TIMEOUT_S)
        self._unread_since = self._table.loop.time()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Stop the stall timer."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._inner.resume_writing()

    def unread_for(self) -> float:
        """Return for how many seconds the client has not read, 0 if it reads."""
        return self._table.loop.time() - self._unread_since if self._stall_timer is not None else 0.0

    def begin_request(self) -> None:
        """Exempt the connection from timeouts while a request is served."""
        self._table.mark_active(self)

    def end_request(self) -> None:
        """Mark the connection idle: its response has been sent. Go on with the next request if it waits."""
        self.on_close = None
        if self.transport.is_closing():
            return
        if self._framing.state is not FramingState.END:
            self.transport.close()  # the client is still sending a request that has been answered
            return
        self._framing.reset()
        self._table.idle[self] = self._table.loop.time()
        if self._waiting:
            self._pass_on_waiting()

    def abort_after(self, seconds: float) -> asyncio.TimerHandle:
        """Abort the connection after a timeout. Cancel the returned timer to prevent it."""
        return self._table.loop.call_later(seconds, self.transport.abort)

    def _pass_on(self, data: bytes | bytearray) -> int:
        """Pass on what belongs to the request, and return its size."""
        size = self._frame(data)
        if size:
            self._inner.data_received(bytes(data) if size == len(data) else bytes(data[:size]))
        return size

    def _pass_on_waiting(self) -> None:
        """Pass on the next of the requests that wait."""
        size = self._frame(self._waiting)
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        # Before the HTTP protocol sees the data, which may make it pause reading itself.
        if len(self._waiting) <= MAX_WAITING_BYTES and not self.transport.is_closing():
            self.transport.resume_reading()
        if data:
            self._inner.data_received(data)

    def _frame(self, data: bytes | bytearray) -> int:
        """Return how many bytes belong to the request; 0 if it was rejected."""
        framing = self._framing
        in_head = framing.state is FramingState.HEAD
        size = framing.feed(data)
        if in_head and framing.begun:
            self._table.mark_receiving(self)
        if framing.state not in FAILED:
            return size
        self._reject(in_head)
        return 0

    def _reject(self, in_head: bool) -> None:
        """Close the connection. A request whose head was complete may have been answered already."""
        if in_head:
            is_too_large = self._framing.state is FramingState.TOO_LARGE
            self.transport.write(HEAD_TOO_LARGE if is_too_large else BAD_REQUEST)
        self.transport.close()


class ConnectionTable:
    """All connections. `new` and `idle` are ordered by age, oldest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_connections: int) -> None:
        self.loop = loop
        self.max_connections = max_connections
        self.all: dict[Address, ConnectionGuard] = {}
        self.new: dict[ConnectionGuard, float] = {}
        self.idle: dict[ConnectionGuard, float] = {}

    def add(self, guard: ConnectionGuard) -> bool:
        """Add a new connection. Return False if there is no room."""
        if len(self.all) >= self.max_connections and not self._evict_idle():
            return False
        self.all[guard.address] = guard
        self.new[guard] = self.loop.time()
        return True

    def remove(self, guard: ConnectionGuard) -> None:
        """Forget a connection."""
        if self.all.get(guard.address) is guard:
            del self.all[guard.address]
        self.mark_active(guard)

    def mark_active(self, guard: ConnectionGuard) -> None:
        """Exempt a connection from timeouts and eviction."""
        self.new.pop(guard, None)
        self.idle.pop(guard, None)

    def mark_receiving(self, guard: ConnectionGuard) -> None:
        """Start the header timeout of an idle connection: a request begins."""
        if self.idle.pop(guard, None) is not None:
            self.new[guard] = self.loop.time()

    def find(self, client: Any) -> ConnectionGuard | None:
        """Return the connection of an ASGI client address, or None if it has closed."""
        return self.all.get((client[0], client[1]))

    def sweep(self) -> None:
        """Abort connections that have timed out."""
        now = self.loop.time()
        for connections, limit in ((self.new, HEAD_TIMEOUT_S), (self.idle, IDLE_TIMEOUT_S)):
            for guard, since in list(connections.items()):
                if now - since < limit:
                    break  # ordered by age: the rest is younger
                self._drop(guard)

    async def sweep_forever(self) -> None:
        """Sweep periodically until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    def close_idle(self) -> None:
        """Close all connections without a request in progress."""
        for guard in [*self.new, *self.idle]:
            self.remove(guard)
            guard.transport.close()

    def abort_all(self) -> None:
        """Abort all connections."""
        for guard in list(self.all.values()):
            self._drop(guard)

    def _evict_idle(self) -> bool:
        """Abort the oldest connection without a request; one with an unfinished head before an idle one."""
        for connections in (self.new, self.idle):
            for guard in connections:
                self._drop(guard)
                return True
        return False

    def _drop(self, guard: ConnectionGuard) -> None:
        # `connection_lost` comes later; until then the connection must not be dropped twice.
        self.remove(guard)
        guard.transport.abort()


def _detect_dead_peer(connection: Any) -> None:
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if connection is not None and option is not None and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, option, UNACKNOWLEDGED_MS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
