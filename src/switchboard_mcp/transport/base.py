"""What every transport offers: whole messages in both directions.

A link carries one JSON-RPC message a call, in callbacks rather than queues, so that a message can go from a readable
pipe to a written one without a task switch. It does not know what a message means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol.framing import NonMessage, Oversized

OnMessage = Callable[[bytes], None]
OnClosed = Callable[[], None]
OnInvalid = Callable[[NonMessage | Oversized], None]
OnCongestion = Callable[[bool], None]
# To the request of this id no answer will come, while the link lives on: over HTTP each has a way of its own.
OnResponseLost = Callable[[bytes, Failure], None]


class MessageTransport(Protocol):
    """One connection. Callbacks run on the event loop, never from within `send`."""

    def start(self, receive: OnMessage, closed: OnClosed, odd: OnInvalid) -> None:
        """Begin to deliver. `closed` comes once, after the last message."""

    def send(self, message: bytes) -> None:
        """Queue one message; never blocks. On a closed link it does nothing."""

    @property
    def write_buffer_size(self) -> int:
        """Bytes queued that the other side has not taken."""

    @property
    def ended(self) -> bool:
        """Whether the other side has said its last, which may be cut short."""

    @property
    def paused(self) -> bool:
        """Whether what the other side sends is left lying."""

    def pause(self) -> None:
        """Stop delivering until `resume`. What has been read already may still come."""

    def resume(self) -> None:
        """Deliver again."""

    def close_sending(self) -> None:
        """Tell the other side that nothing more comes, once the queue is empty."""

    def close(self) -> None:
        """End both directions now. Nothing is delivered any more, nor `closed` called."""
