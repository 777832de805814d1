"""Results that are too large: the first page now, the rest for those who ask for it in time.

A page is asked for with the cursor that the page before gave: `{"action":"call","subtool":NAME,"cursor":CURSOR}`. Only
the principal who got the result gets the rest. How a result is cut is decided in `gateway.pipeline.result_pages`.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections import OrderedDict

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.pipeline.result_pages import PageStart, SplitResult, page, read
from switchboard_mcp.protocol import jsonrpc

KEPT_S = 600.0
# Of all suites together this much is kept; the oldest goes first.
MOST_KEPT_BYTES = 64 * 1024 * 1024
REST = "switchboard/rest"

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class StoredResult(Struct, frozen=True):
    """A result of which some pages have not been fetched yet."""

    whole: SplitResult
    principal: str
    suite: str
    subtool: str
    until: float


class PageStore:
    """What is kept, of all suites; oldest first."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._now = loop.time
        self._kept: OrderedDict[str, StoredResult] = OrderedDict()
        self._bytes = 0

    def put(self, kept: StoredResult) -> str:
        """Keep a result; gives the name it is asked for by."""
        name = os.urandom(12).hex()
        self._kept[name] = kept
        self._bytes += kept.whole.size
        while self._kept and (
            self._bytes > MOST_KEPT_BYTES or next(iter(self._kept.values())).until < self._now()
        ):
            _, old = self._kept.popitem(last=False)
            self._bytes -= old.whole.size
        return name

    def get(self, name: str) -> StoredResult | None:
        """What is kept by that name, if its time is not over."""
        kept = self._kept.get(name)
        return kept if kept is not None and kept.until >= self._now() else None


class ResultPager:
    """The largest result of one suite. `fetchable` where hosts can ask for the rest."""

    def __init__(
        self, suite: str, most: int, shelf: PageStore, loop: AbstractEventLoop, *, fetchable: bool
    ) -> None:
        self.most = most
        self._suite = suite
        self._shelf = shelf
        self._loop = loop
        self._fetchable = fetchable

    def cut(self, result: bytes, principal: str, subtool: str) -> bytes:
        """The first page of a result that is too large."""
        whole = read(result)
        if whole is None:
            return result
        kept = StoredResult(whole, principal, self._suite, subtool, self._loop.time() + KEPT_S)
        return self._written("", kept, PageStart())

    def fetch(self, cursor: str, principal: str, subtool: str) -> bytes | Failure:
        """A later page."""
        name, place = _read_cursor(cursor)
        kept = self._shelf.get(name)
        if kept is None or place is None or place.block >= len(kept.whole.blocks):
            return self._gone(subtool)
        if (kept.principal, kept.suite, kept.subtool) != (principal, self._suite, subtool):
            return self._gone(subtool)
        return self._written(name, kept, place)

    def _gone(self, subtool: str) -> Failure:
        told = f"The rest of that result of subtool '{subtool}' is not kept here (any more)."
        return failure(
            "cursor_invalid", told, subtool=subtool, hint="Call the subtool again, without a cursor."
        )

    def _written(self, name: str, kept: StoredResult, place: PageStart) -> bytes:
        found = page(kept.whole, place, self.most)
        members: dict[str, object] = {**kept.whole.members, "content": found.blocks}
        following = found.following
        if following is None:
            return jsonrpc.encode(members)
        shown = f"[Switchboard: {kept.whole.size:,} bytes are too much at once."
        if not self._fetchable:
            note = f"{shown} The rest is left out.]"
        else:
            name = name or self._shelf.put(kept)
            cursor = f"{name}.{following.block}.{following.offset}"
            ask = jsonrpc.encode({"action": "call", "subtool": kept.subtool, "cursor": cursor}).decode()
            note = f"{shown} For the rest, call this suite within {KEPT_S / 60:g} minutes with {ask}]"
            members["_meta"] = {**_meta(kept.whole), REST: {"cursor": cursor, "bytes": kept.whole.size}}
        members["content"] = [*found.blocks, {"type": "text", "text": note}]
        return jsonrpc.encode(members)


def _meta(whole: SplitResult) -> dict[str, Raw]:
    meta = whole.members.get("_meta")
    return _decode_object(meta) if meta is not None and bytes(meta)[:1] == b"{" else {}


def _read_cursor(cursor: str) -> tuple[str, PageStart | None]:
    name, *numbers = cursor.split(".")
    if len(numbers) != 2 or not all(number.isdecimal() and len(number) < 12 for number in numbers):
        return name, None
    return name, PageStart(int(numbers[0]), int(numbers[1]))
