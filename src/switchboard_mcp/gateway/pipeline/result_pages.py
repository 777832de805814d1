"""Splits a tool result that is too large into pages.

Text is cut where the page is full. Any other block (an image, a resource) stays whole, on a separate page if necessary;
one that does not fit even there is replaced by a note. `structuredContent` repeats the text and is dropped; without any
text it becomes the text. Pure: storing the pages is up to `result_paging`.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.protocol.jsonrpc import decode_members

DROPPED = frozenset({"content", "structuredContent"})

_decode_blocks = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode


class _Block(Struct):
    """The members of a content block that matter here."""

    type: str = ""
    text: str | None = None


_decode_block = msgspec.json.Decoder(_Block).decode


class PageStart(Struct, frozen=True):
    """The first block of a page, and the offset into its text in characters."""

    block: int = 0
    offset: int = 0


class SplitResult(Struct, frozen=True):
    """A result as blocks. `members` are its other members."""

    blocks: list[str | Raw]
    members: dict[str, Raw]
    size: int


class ResultPage(Struct, frozen=True):
    """The blocks of one page as JSON, and the start of the next page, if any."""

    blocks: list[Raw]
    next_start: PageStart | None


def split_result(result: bytes) -> SplitResult | None:
    """Return the result as blocks, or None if it cannot be split."""
    try:
        members = decode_members(result)
        raws = _decode_blocks(members.get("content", Raw(b"[]")))
        blocks: list[str | Raw] = []
        for raw in raws:
            block = _decode_block(raw)
            blocks.append(block.text if block.type == "text" and block.text is not None else raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    structured = members.get("structuredContent")
    if structured is not None and not any(isinstance(block, str) for block in blocks):
        blocks.append(bytes(structured).decode("utf-8", "replace"))
    rest = {name: raw for name, raw in members.items() if name not in DROPPED}
    return SplitResult(blocks, rest, len(result))


def build_page(result: SplitResult, start: PageStart, room: int) -> ResultPage:
    """Return as many blocks from `start` on as fit into `room` bytes, and at least a part of the first."""
    blocks: list[Raw] = []
    left = room
    for index in range(start.block, len(result.blocks)):
        block = result.blocks[index]
        offset = start.offset if index == start.block else 0
        if isinstance(block, str):
            length = _fitting_length(block, offset, left)
            if length == 0 and blocks:
                return ResultPage(blocks, PageStart(index, offset))
            length = max(length, 1)
            written = _text_block(block[offset : offset + length])
            if offset + length < len(block):
                return ResultPage([*blocks, written], PageStart(index, offset + length))
        elif len(bytes(block)) > room:
            written = _text_block(
                f"[omitted: {_decode_block(block).type or 'a block'} of {len(bytes(block)):,} bytes]"
            )
        else:
            written = block
            if len(bytes(block)) > left and blocks:
                return ResultPage(blocks, PageStart(index))
        blocks.append(written)
        left -= len(bytes(written))
        if left <= 0 and index + 1 < len(result.blocks):
            return ResultPage(blocks, PageStart(index + 1))
    return ResultPage(blocks, None)


def _text_block(text: str) -> Raw:
    return Raw(_encode({"type": "text", "text": text}))


def _fitting_length(text: str, offset: int, room: int) -> int:
    """Return how many characters from `offset` on fit into `room` bytes of JSON."""
    low, high = 0, min(len(text) - offset, max(room, 0))
    if len(_encode(text[offset : offset + high])) <= room:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if len(_encode(text[offset : offset + middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return low
