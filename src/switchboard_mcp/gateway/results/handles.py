"""Results that hosts have seen only a part of, kept for a while under a handle.

A handle belongs to the session that got it or, after that has ended, to its principal.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import Session
    from switchboard_mcp.suites.results.answers import KeptResult

# For one suite; the oldest results are dropped first. The newest stays, however large: its handle was just issued.
MAX_BYTES = 32 * 1024 * 1024
HANDLE_BYTES = 9


class HandleEntry(Struct, frozen=True):
    """A result and whose it is."""

    result: KeptResult
    session: Session
    suite: str
    subtool: str
    expires_at: float
    size: int


class HandleStore:
    """The results of one suite, within a time and a size limit."""

    def __init__(self, loop: AbstractEventLoop, keep_s: float) -> None:
        self._loop = loop
        self._now = loop.time
        self._keep_s = keep_s
        self._entries: OrderedDict[str, HandleEntry] = OrderedDict()
        self._bytes = 0

    def put(
        self, handle: str, result: KeptResult, session: Session, suite: str, subtool: str, size: int
    ) -> None:
        """Keep a result."""
        self._entries[handle] = HandleEntry(result, session, suite, subtool, self._now() + self._keep_s, size)
        self._bytes += size
        self._loop.call_later(self._keep_s + 1, self._drop)
        self._drop()

    def _drop(self) -> None:
        """Drop what has expired or is too much, the oldest first."""
        while self._entries:
            oldest = next(iter(self._entries.values()))
            too_much = self._bytes > MAX_BYTES and len(self._entries) > 1
            if not too_much and oldest.expires_at >= self._now():
                break
            _, dropped = self._entries.popitem(last=False)
            self._bytes -= dropped.size

    def get(self, handle: str, session: Session, suite: str) -> HandleEntry | None:
        """Return a result of this suite that the session may read, or None."""
        entry = self._entries.get(handle)
        if entry is None or entry.expires_at < self._now() or entry.suite != suite:
            return None
        owner = entry.session
        left = owner.closed or owner.ephemeral  # then every session of the principal may read it
        own = owner is session or (left and owner.principal == session.principal)
        return entry if own else None


def new_handle() -> str:
    """Return a handle that cannot be guessed."""
    return "r" + os.urandom(HANDLE_BYTES).hex()
