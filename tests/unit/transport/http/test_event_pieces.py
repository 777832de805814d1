"""Event streams of hostile servers: other work goes on, and memory is bounded for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.protocol.sse import EventStream
from switchboard_mcp.transport.http import event_pieces
from switchboard_mcp.transport.http.event_pieces import PIECE_BYTES, read_events


async def chunks_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_events_are_the_same_in_any_chunks() -> None:
    text = b"data: one\ndata: two\n\n" + b"data: " + b"x" * (3 * PIECE_BYTES) + b"\n\n"
    for parts in ([text], [bytes([byte]) for byte in text]):
        found = [event async for event in read_events(EventStream(), chunks_of(*parts), 1 << 20)]
        assert [event.data for event in found if not isinstance(event, Oversized)] == [
            b"one\ntwo",
            b"x" * (3 * PIECE_BYTES),
        ]


async def test_other_work_goes_on_between_the_pieces_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pieces, "TURN_S", 0.0)
    turns = 0
    done = False

    async def work() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(work())
    hostile = chunks_of(b"\n" * (50 * PIECE_BYTES), *([b":"] * 50))
    assert [event async for event in read_events(EventStream(), hostile, 1 << 20)] == []
    done = True
    await other
    assert turns > 90


async def test_unfinished_events_of_all_servers_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pieces, "MAX_UNFINISHED_BYTES", 100_000)
    monkeypatch.setattr(event_pieces, "LEAST_BYTES", 10_000)
    held, release = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"data: " + b"x" * 95_000
        held.set()
        await release.wait()

    async def read(chunks: AsyncIterator[bytes]) -> list[bool]:
        stream = read_events(EventStream(), chunks, 1 << 20)
        return [isinstance(event, Oversized) async for event in stream]

    first = asyncio.create_task(read(endless()))
    await held.wait()
    assert await read(chunks_of(b"data: small\n\n", b"data: " + b"x" * 50_000 + b"\n\n")) == [False, True]
    release.set()
    await first
    assert await read(chunks_of(b"data: " + b"x" * 50_000 + b"\n\n")) == [False]
