"""The interface of every transport: whole messages in both directions.

A transport delivers one JSON-RPC message per callback instead of through a queue, so a message can go from a readable
pipe to a written one without a task switch. It is not aware of what a message means.
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
# No response will come for the request with this id, but the transport stays open: over HTTP each request has its own.
OnResponseLost = Callable[[bytes, Failure], None]


class MessageTransport(Protocol):
    """A connection. Callbacks run on the event loop, never from within `send`."""

    def start(self, on_message: OnMessage, on_closed: OnClosed, on_invalid: OnInvalid) -> None:
        """Start delivering. `on_closed` is called once, after the last message."""

    def send(self, message: bytes) -> None:
        """Queue one message without blocking. Does nothing on a closed transport."""

    @property
    def write_buffer_size(self) -> int:
        """Bytes queued that the other side has not accepted yet."""

    @property
    def ended(self) -> bool:
        """True once the other side has closed its end. Its last message may be cut short."""

    @property
    def paused(self) -> bool:
        """True while delivery is paused."""

    def pause(self) -> None:
        """Stop delivering until `resume`. Data that has already been read may still be delivered."""

    def resume(self) -> None:
        """Deliver again."""

    def close_sending(self) -> None:
        """Signal the end of the stream to the other side once the queue is empty."""

    def close(self) -> None:
        """Close both directions now. Nothing more is delivered and `on_closed` is not called."""
