"""Two links joined in memory: what one sends the other receives. For the command line and for tests."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque

from switchboard_mcp.transport.base import OnClosed, OnInvalid, OnMessage


class MemoryTransport:
    """See `link.Link`."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox: deque[bytes | None] = deque()
        self._started = False
        self.ended = False
        self.paused = False
        self._open = True  # for sending
        self._listening = True
        self._scheduled = False
        self.other: MemoryTransport
        self._receive: OnMessage
        self._closed: OnClosed

    @property
    def write_buffer_size(self) -> int:
        """Bytes the other end has not taken."""
        return sum(len(message) for message in self.other._inbox if message)

    def start(self, receive: OnMessage, closed: OnClosed, odd: OnInvalid) -> None:
        """Begin to deliver."""
        self._receive, self._closed = receive, closed
        self._started = True
        self._schedule()

    def send(self, message: bytes) -> None:
        """Hand one message to the other end."""
        if self._open:
            self.other._put(message)

    answer = send  # here every message takes the same road

    def pause(self) -> None:
        """Stop delivering."""
        self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False
        self._schedule()

    def close_sending(self) -> None:
        """Let the other end see the end of the stream."""
        if self._open:
            self._open = False
            self.other._put(None)

    def close(self) -> None:
        """End both directions. `closed` is not called."""
        self.close_sending()
        self._inbox.clear()
        self._listening = False

    def _put(self, message: bytes | None) -> None:
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
                    self._closed()
                else:
                    self._receive(message)
        finally:
            self._schedule()  # one message that fails must not take the others with it


def pair(loop: AbstractEventLoop) -> tuple[MemoryTransport, MemoryTransport]:
    """Two joined ends."""
    left, right = MemoryTransport(loop), MemoryTransport(loop)
    left.other, right.other = right, left
    return left, right
