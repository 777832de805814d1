"""Hears everything a link delivers, and lets a test wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.transport.base import MessageTransport
from tests.patience import PATIENCE_S

# Nothing here takes this long; a test that waits longer waits for what never comes.


class Recorder:
    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.odd: list[NonMessage | Oversized] = []
        self.ends = 0
        self.breaks = 0
        self.errors: list[BaseException] = []
        self.congestion: list[bool] = []
        self._news = asyncio.Event()

    def listen(self, link: MessageTransport) -> None:
        link.start(self.receive, self.closed, self.hear_odd)

    def receive(self, message: bytes) -> None:
        self.received.append(message)
        self._news.set()

    def closed(self) -> None:
        self.ends += 1
        self._news.set()

    def hear_odd(self, piece: NonMessage | Oversized) -> None:
        self.odd.append(piece)
        self._news.set()

    def fail(self, problem: BaseException) -> None:
        self.errors.append(problem)
        self._news.set()

    def broken(self) -> None:
        self.breaks += 1
        self._news.set()

    def congested(self, slow: bool) -> None:
        self.congestion.append(slow)
        self._news.set()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that shows in what was recorded."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                self._news.clear()
                await self._news.wait()

    async def until_received(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.received) >= count)
        return self.received

    async def until_closed(self) -> None:
        await self.until(lambda: self.ends > 0)


async def settle(rounds: int = 5) -> None:
    """Let everything run that is ready to."""
    for _ in range(rounds):
        await asyncio.sleep(0)
