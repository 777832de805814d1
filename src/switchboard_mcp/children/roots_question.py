"""Remembers if a child has asked for the roots of its host, and what it was told.

Servers ask once, right after their handshake, and work in these folders from then on. So the first call waits for the
answer. A child that was told the workspace, since no host could be asked then, is told to ask again when a call of a
host with roots comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from switchboard_mcp.transport.base import MessageTransport

# A call waits this long for the child to ask again, for its host to answer, and for the child to use the answer.
ASK_AGAIN_S = 0.3
ANSWER_S = 2.0
USE_S = 0.05


class RootsQuestion:
    """The question of one child."""

    def __init__(self) -> None:
        self.has_fallback = False  # it was told the workspace, in place of the roots of a host
        self._open = 0
        # The child waits for roots, or has just got them. No property: every call looks at it.
        self.holds_calls = False
        self._changed = asyncio.Event()

    def ask(self, link: MessageTransport) -> MessageTransport:
        """Note a question. Returns the transport on which to answer it."""
        self._open += 1
        self.holds_calls = True
        self._changed.set()
        return cast(MessageTransport, _AnsweringLink(link, self))

    def answered(self) -> None:
        """Note an answer."""
        self._open -= 1
        self._changed.set()

    def begin_run(self) -> None:
        """Forget everything: the child starts."""
        self.has_fallback, self._open, self.holds_calls = False, 0, False

    async def settle(self, *, asks_again: bool) -> None:
        """Wait until the child has the roots that it has asked for, or will ask for."""
        if asks_again:
            await self._wait(ASK_AGAIN_S, lambda: self.holds_calls)
        if self.holds_calls:
            await self._wait(ANSWER_S, lambda: self._open <= 0)
            await asyncio.sleep(USE_S)
            self.holds_calls = False

    async def _wait(self, seconds: float, condition: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()


class _AnsweringLink:
    """The transport of a child, which notes that a question is answered. Equal to it."""

    def __init__(self, link: MessageTransport, question: RootsQuestion) -> None:
        self._link = link
        self._question: RootsQuestion | None = question

    def send(self, message: bytes) -> None:
        """Send the answer."""
        question, self._question = self._question, None
        if question is not None:
            question.answered()
        self._link.send(message)

    def __eq__(self, other: object) -> bool:
        return other is self._link or (isinstance(other, _AnsweringLink) and other._link is self._link)

    def __hash__(self) -> int:
        return hash(self._link)
