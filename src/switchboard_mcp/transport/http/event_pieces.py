"""Reads event streams of remote servers in small pieces, so that none stops the event loop or fills the memory.

A server may send millions of chunks of one byte, or of empty lines, and many events at once that never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from time import monotonic

from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Oversized
from switchboard_mcp.protocol.sse import EventStream, ServerSentEvent

# A piece of line ends takes 3 ms; the loop serves others after this long.
PIECE_BYTES = 8 * 1024
TURN_S = 0.004
# What unfinished events of all servers hold together. One more event, of any size, always fits.
MAX_UNFINISHED_BYTES = MAX_MESSAGE_BYTES + 32 * 1024 * 1024
LEAST_BYTES = 1024 * 1024

_unfinished: dict[EventStream, int] = {}


async def read_events(
    events: EventStream, chunks: AsyncIterator[bytes], limit: int
) -> AsyncGenerator[ServerSentEvent | Oversized]:
    """Yield the events of a stream. One that does not fit beside those of other servers counts as too large."""
    # Not the clock of the loop, which stands still while uvloop runs a callback.
    turn_began = monotonic()
    try:
        async for chunk in chunks:
            for start in range(0, len(chunk), PIECE_BYTES):
                others = sum(_unfinished.values()) - _unfinished.get(events, 0)
                events.limit = min(limit, max(MAX_UNFINISHED_BYTES - others, LEAST_BYTES))
                for event in events.feed(chunk[start : start + PIECE_BYTES]):
                    yield event
                _unfinished[events] = events.unfinished
                if monotonic() - turn_began > TURN_S:
                    await asyncio.sleep(0)
                    turn_began = monotonic()
    finally:
        _unfinished.pop(events, None)
