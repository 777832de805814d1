"""Two transports joined in memory: each receives what the other sends. Used by built-in suites, commands and tests."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque

from switchboard_mcp.transport.base import OnClosed, OnInvalid, OnMessage


class MemoryTransport:
    """One end of a pair, see `MessageTransport`."""

    backlog = 0  # the other end is in this process, and takes everything

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox: deque[bytes | None] = deque()
        self._started = False
        self.ended = False
        self.paused = False
        self._can_send = True  # for sending
        self._listening = True
        self._scheduled = False
        self.other: MemoryTransport
        self._on_message: OnMessage
        self._on_closed: OnClosed

    @property
    def write_buffer_size(self) -> int:
        """Bytes the other end has not received yet."""
        return self.other.inbox_size

    def start(self, on_message: OnMessage, on_closed: OnClosed, on_invalid: OnInvalid) -> None:
        """Start delivering."""
        self._on_message, self._on_closed = on_message, on_closed
        self._started = True
        self._schedule()

    def send(self, message: bytes) -> None:
        """Put one message into the other end's inbox."""
        if self._can_send:
            self.other.enqueue(message)

    answer = send  # responses and requests are sent alike here

    def pause(self) -> None:
        """Stop delivering."""
        self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False
        self._schedule()

    def close_sending(self) -> None:
        """Signal the end of the stream to the other end."""
        if self._can_send:
            self._can_send = False
            self.other.enqueue(None)

    def close(self) -> None:
        """Close both directions. `on_closed` is not called."""
        self.close_sending()
        self._inbox.clear()
        self._listening = False

    @property
    def inbox_size(self) -> int:
        """Bytes received but not delivered yet."""
        return sum(len(message) for message in self._inbox if message)

    def enqueue(self, message: bytes | None) -> None:
        """Accept a message from the other end; None is the end of the stream."""
        if self._listening:
            self._inbox.append(message)
            self._schedule()

    def _schedule(self) -> None:
        if self._inbox and self._started and not self.paused and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        try:
            while self._inbox and not self.paused:
                message = self._inbox.popleft()
                if message is None:
                    self.ended = True
                    self._on_closed()
                else:
                    self._on_message(message)
        finally:
            self._schedule()  # an error in one message must not hold back the others


def pair(loop: AbstractEventLoop) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two joined ends."""
    left, right = MemoryTransport(loop), MemoryTransport(loop)
    left.other, right.other = right, left
    return left, right
