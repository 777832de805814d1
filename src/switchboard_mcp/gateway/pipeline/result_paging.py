"""Pages for results that are too large: the first is the answer, the others are stored for a while.

A later page is fetched with the cursor of the page before: `{"action":"call","subtool":NAME,"cursor":CURSOR}`, and only
by the client that made the call: its session or, after that has ended, its principal. `result_pages` splits the
results.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections import OrderedDict

from msgspec import Raw, Struct

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.pipeline.result_pages import PageStart, SplitResult, build_page, split_result
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import decode_members

TTL_S = 600.0
# For all suites together; the oldest results are dropped first.
MAX_STORED_BYTES = 64 * 1024 * 1024
REST = "switchboard/rest"


class StoredResult(Struct, frozen=True):
    """A result whose later pages can be fetched."""

    result: SplitResult
    session: Session
    suite: str
    subtool: str
    expires_at: float


class PageStore:
    """Stores the results of all suites, oldest first, within a time and a size limit."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._now = loop.time
        self._results: OrderedDict[str, StoredResult] = OrderedDict()
        self._bytes = 0

    def pager(self, suite: str, max_bytes: int, *, fetchable: bool) -> ResultPager:
        """Return the pager of one suite, which stores its results here."""
        return ResultPager(suite, max_bytes, self, self._loop, fetchable=fetchable)

    def put(self, stored: StoredResult) -> str:
        """Store a result and return the name for its cursors."""
        name = os.urandom(12).hex()
        self._results[name] = stored
        self._bytes += stored.result.size
        while self._results and (
            self._bytes > MAX_STORED_BYTES or next(iter(self._results.values())).expires_at < self._now()
        ):
            _, old = self._results.popitem(last=False)
            self._bytes -= old.result.size
        return name

    def get(self, name: str) -> StoredResult | None:
        """Return the result of that name, or None if it has expired."""
        stored = self._results.get(name)
        return stored if stored is not None and stored.expires_at >= self._now() else None


class ResultPager:
    """Limits the size of one suite's results. `fetchable` if hosts can fetch later pages."""

    def __init__(
        self, suite: str, max_bytes: int, store: PageStore, loop: AbstractEventLoop, *, fetchable: bool
    ) -> None:
        self.max_bytes = max_bytes
        self._suite = suite
        self._store = store
        self._loop = loop
        self._fetchable = fetchable

    def first_page(self, result: bytes, session: Session, subtool: str) -> bytes:
        """Return the first page of a result that is too large, and store the rest."""
        split = split_result(result)
        if split is None:
            return result
        stored = StoredResult(split, session, self._suite, subtool, self._loop.time() + TTL_S)
        return self._encode_page("", stored, PageStart())

    def fetch(self, cursor: str, session: Session, subtool: str) -> bytes | Failure:
        """Return a later page, or a failure if it has expired or belongs to someone else."""
        name, start = _parse_cursor(cursor)
        stored = self._store.get(name)
        if stored is None or start is None or start.block >= len(stored.result.blocks):
            return self._expired(subtool)
        if not session.may_use_of(stored.session) or (stored.suite, stored.subtool) != (self._suite, subtool):
            return self._expired(subtool)
        return self._encode_page(name, stored, start)

    def _expired(self, subtool: str) -> Failure:
        message = f"The remaining pages of this result of '{subtool}' have expired."
        return failure(
            "cursor_invalid", message, subtool=subtool, hint="Call the subtool again, without a cursor."
        )

    def _encode_page(self, name: str, stored: StoredResult, start: PageStart) -> bytes:
        page = build_page(stored.result, start, self.max_bytes)
        members: dict[str, object] = {**stored.result.members, "content": page.blocks}
        next_start = page.next_start
        if next_start is None:
            return jsonrpc.encode(members)
        notice = f"[Switchboard: {stored.result.size:,} bytes are too many for one result."
        if not self._fetchable:
            note = f"{notice} The rest is omitted.]"
        else:
            name = name or self._store.put(stored)
            cursor = f"{name}.{next_start.block}.{next_start.offset}"
            arguments = jsonrpc.encode(
                {"action": "call", "subtool": stored.subtool, "cursor": cursor}
            ).decode()
            note = f"{notice} For the rest, call this suite within {TTL_S / 60:g} minutes with {arguments}]"
            members["_meta"] = {**_meta(stored.result), REST: {"cursor": cursor, "bytes": stored.result.size}}
        members["content"] = [*page.blocks, {"type": "text", "text": note}]
        return jsonrpc.encode(members)


def _meta(whole: SplitResult) -> dict[str, Raw]:
    meta = whole.members.get("_meta")
    return decode_members(meta) if meta is not None and bytes(meta)[:1] == b"{" else {}


def _parse_cursor(cursor: str) -> tuple[str, PageStart | None]:
    name, *numbers = cursor.split(".")
    if len(numbers) != 2 or not all(number.isdecimal() and len(number) < 12 for number in numbers):
        return name, None
    return name, PageStart(int(numbers[0]), int(numbers[1]))
