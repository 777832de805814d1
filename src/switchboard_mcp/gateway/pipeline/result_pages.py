"""Cutting a tool result that is too large into pages.

Texts are cut wherever the room ends; any other block (an image, a resource) stays whole, on a page of its own where it
must be, and is left out with a note where not even that has room for it. `structuredContent` repeats what the text says
and is dropped; where there is no text it becomes one. Pure: where the pages are kept is not known here.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

DROPPED = frozenset({"content", "structuredContent"})

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_blocks = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode


class _Block(Struct):
    """As much of a content block as is looked at."""

    type: str = ""
    text: str | None = None


_decode_block = msgspec.json.Decoder(_Block).decode


class PageStart(Struct, frozen=True):
    """Where a page begins: which block, and how many characters into its text."""

    block: int = 0
    offset: int = 0


class SplitResult(Struct, frozen=True):
    """A result in blocks; `members` are what else it says."""

    blocks: list[str | Raw]
    members: dict[str, Raw]
    size: int


class ResultPage(Struct, frozen=True):
    """Some blocks, each as JSON, and where the next page begins, where there is one."""

    blocks: list[Raw]
    next_start: PageStart | None


def split_result(result: bytes) -> SplitResult | None:
    """The result in blocks; None where it is none that could be cut."""
    try:
        members = _decode_object(result)
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
    """As many blocks from `start` on as have room, in bytes; at least something of the first."""
    taken: list[Raw] = []
    left = room
    for index in range(start.block, len(result.blocks)):
        block = result.blocks[index]
        offset = start.offset if index == start.block else 0
        if isinstance(block, str):
            length = _fitting_length(block, offset, left)
            if length == 0 and taken:
                return ResultPage(taken, PageStart(index, offset))
            length = max(length, 1)
            written = _text_block(block[offset : offset + length])
            if offset + length < len(block):
                return ResultPage([*taken, written], PageStart(index, offset + length))
        elif len(bytes(block)) > room:
            written = _text_block(
                f"[left out: {_decode_block(block).type or 'a block'} of {len(bytes(block)):,} bytes]"
            )
        else:
            written = block
            if len(bytes(block)) > left and taken:
                return ResultPage(taken, PageStart(index))
        taken.append(written)
        left -= len(bytes(written))
        if left <= 0 and index + 1 < len(result.blocks):
            return ResultPage(taken, PageStart(index + 1))
    return ResultPage(taken, None)


def _text_block(text: str) -> Raw:
    return Raw(_encode({"type": "text", "text": text}))


def _fitting_length(text: str, offset: int, room: int) -> int:
    """How many characters from `offset` on have room, as JSON writes them."""
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
