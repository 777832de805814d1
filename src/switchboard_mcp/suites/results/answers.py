"""A tool result as its text and its JSON value, and the answers made of it: selected, compact, shortened, paged.

The text of a result is never changed unless it is known to be a serialisation of its `structuredContent`; then white
space between its tokens may go. An answer that is not the whole result is text only, because some hosts show their
model nothing but `structuredContent`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import islice

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.suites.results.shape import shape
from switchboard_mcp.suites.token_estimate import estimate

# A value beyond this is not decoded to describe its shape.
MAX_SHAPED_BYTES = 4 * 1024 * 1024
# Larger JSON is decoded in parts of about this size, down to this many levels.
PART_BYTES = 512 * 1024
MAX_PART_LEVELS = 6
# The part of a head that comes from the end of a text that ends differently from how it goes on.
TAIL_SHARE = 0.2
# Lines around a line that was searched for, and the size of the pieces of a long line.
AROUND = 2
PIECE_CHARS = 400
_ENDING = re.compile(r"(?i)\b(error|fail|exit|exception|total|passed|summary|warning)")
_WORD = re.compile(r"\w+")
# Each word is looked for in all of the text.
MAX_WORDS = 32
MAX_WORDS_CHARS = 2_000


class TextBlock(Struct):
    """The members of a content block that matter here."""

    type: str = ""
    text: str | None = None


class KeptResult(Struct):
    """A result in parts. `text` is all of its text; `others` are blocks other than text."""

    text: str
    others: list[Raw]
    structured: Raw | UnsetType
    members: dict[str, Raw] = {}  # all others than the content
    serialised: bool = False  # the text is a serialisation of the structured content, or of its only member
    repeated: bool = False  # the structured content says nothing that the text does not say
    one_text: bool = True  # the text is one block, or the structured content
    shown: int = 0  # characters of the beginning that the host has seen

    @property
    def is_error(self) -> bool:
        """True if the call failed."""
        return bytes(self.members.get("isError", b"")) == b"true"

    def value(self) -> object:
        """Return the JSON value that the result carries. Raises `ValueError` if it carries none."""
        source = bytes(self.structured) if self.structured is not UNSET else self.text.encode()
        value = _decode(source)
        if isinstance(value, dict) and len(value) == 1:  # `{"result": "<JSON>"}`
            (inner,) = value.values()
            if isinstance(inner, str) and inner[:1] in "{[":
                try:
                    return _decode(inner.encode())
                except ValueError:
                    return value
        return value


_decode_blocks = msgspec.json.Decoder(list[Raw]).decode
_decode_block = msgspec.json.Decoder(TextBlock).decode


def read_result(body: bytes) -> KeptResult | None:
    """Return a result in parts; None if it has no content, as one that requires input or has become a task."""
    try:
        members = decode_members(body)
        blocks = [(raw, _decode_block(raw)) for raw in _decode_blocks(members.pop("content"))]
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if bytes(members.get("resultType", b'"complete"')) != b'"complete"':
        return None
    texts = [block.text for _, block in blocks if block.type == "text" and block.text is not None]
    others = [raw for raw, block in blocks if block.type != "text" or block.text is None]
    structured: Raw | UnsetType = members.pop("structuredContent", UNSET)
    if structured is not UNSET and bytes(structured) == b"null":
        structured = UNSET
    if not texts and structured is not UNSET:
        text = bytes(structured).decode("utf-8", "replace")
        return KeptResult(compact(text), others, structured, members, serialised=True)
    text = "\n".join(texts)
    if len(texts) != 1 or structured is UNSET:
        return KeptResult(text, others, structured, members, one_text=len(texts) == 1)
    same, repeated = _compare(text, bytes(structured))
    return KeptResult(text, others, structured, members, serialised=same, repeated=repeated)


def compact(text: str) -> str:
    """Return JSON text without white space between its tokens; numbers and escapes keep their spelling.

    >>> compact('{ "a": 1.0 }'), compact("not JSON")
    ('{"a":1.0}', 'not JSON')
    """
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text


def is_json(text: str) -> bool:
    """Return whether a text is one JSON object or list."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        msgspec.json.decode(text.encode(), type=Raw)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def text_answer(kept: KeptResult, text: str) -> bytes:
    """Return the answer with this text in place of the text and the structured content; other blocks stay."""
    return msgspec.json.encode({**kept.members, "content": [{"type": "text", "text": text}, *kept.others]})


def head_of(text: str, tokens: int, *, exact_json: bool) -> tuple[str, int, int]:
    """Return the beginning of a text, cut where a line or a member ends, and its end if that is of another kind.

    The numbers are those of characters from the beginning and from the end.
    """
    size = _size_for(text, tokens)
    if exact_json or not _ends_differently(text):
        length = _cut(text, size)
        return text[:length], length, 0
    tail_size = int(size * TAIL_SHARE)
    head = text[: _cut(text, size - tail_size)]
    tail = text[len(text) - tail_size :]
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    left_out = text[len(head) : len(text) - len(tail)]
    shown = f"{head}\n[… {left_out.count(chr(10)) + 1:,} lines …]\n{tail}"
    return shown, len(head), len(tail)


def shape_line(text: str) -> str:
    """Return the shape of a JSON text; empty if it is none, or too large to be decoded."""
    if len(text) > MAX_SHAPED_BYTES or text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        return f"Shape: {shape(_decode(text.encode()))}\n"
    except ValueError:
        return ""


def page_of(
    text: str, number: int, tokens: int, shown: int = 0, shown_end: int = 0, most_chars: int = 0
) -> tuple[str, int]:
    """Return one page of a text, counted from 1, and the number of pages.

    The first is the beginning that was `shown`, and the last the end that was, if any. A rest of up to half a page
    belongs to the page before it: one more request would cost more.
    """
    end = len(text) - shown_end
    starts = [0, shown] if 0 < shown < end else [0]
    size = _size_for(text, tokens)
    last = size + size // 2
    if most_chars:
        size, last = min(size, most_chars), min(last, most_chars)
    while starts[-1] + last < end:
        starts.append(starts[-1] + max(_cut(text[starts[-1] : starts[-1] + size + 1], size), 1))
    borders = [*starts, end, len(text)] if shown_end else [*starts, len(text)]
    pages = len(borders) - 1
    return (text[borders[number - 1] : borders[number]] if 1 <= number <= pages else ""), pages


def lines_with(text: str, words: str, tokens: int, checkpoint: Callable[[], object]) -> str:
    """Return the lines that have the words, within the budget: those with more and rarer words first.

    A long line is shown in pieces. Each piece has the number of its line, and the lines around it if there is room.
    `checkpoint` is called for each piece, and may raise to end the work.
    """
    wanted = {match[0].casefold() for match in islice(_WORD.finditer(words[:MAX_WORDS_CHARS]), MAX_WORDS)}
    pieces = [
        (number, line[start : start + PIECE_CHARS])
        for number, line in enumerate(text.split("\n"), 1)
        for start in range(0, max(len(line), 1), PIECE_CHARS)
    ]
    matches = [_words_in(piece, wanted, checkpoint) for _, piece in pieces]
    frequency = Counter(word for some in matches for word in some)
    ranked = sorted(
        (index for index, some in enumerate(matches) if some),
        key=lambda index: (-sum(1 / frequency[word] for word in matches[index]), index),
    )
    shown: set[int] = set()
    room = tokens
    for distance in range(AROUND + 1):
        for index in ranked:
            for near in {index - distance, index + distance} - shown:
                if 0 <= near < len(pieces) and (cost := estimate(pieces[near][1]) + 3) <= room:
                    room -= cost
                    shown.add(near)
    return "\n".join(f"{pieces[index][0]}: {pieces[index][1]}" for index in sorted(shown))


def _words_in(text: str, wanted: set[str], checkpoint: Callable[[], object]) -> set[str]:
    checkpoint()
    folded = text.casefold()
    return {word for word in wanted if word in folded}


def count_tokens(text: str) -> int:
    """Return the number of tokens of a result. The estimate is made for schemas; results have about 10 % more."""
    # In parts: the estimate of a large text would hold the interpreter for too long.
    parts = range(0, len(text), PART_BYTES)
    return sum(estimate(text[start : start + PART_BYTES]) for start in parts) * 11 // 10


def _decode(data: bytes) -> object:
    """Decode JSON. Raises `ValueError`."""
    try:
        return _decode_parts(data, MAX_PART_LEVELS)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None


def _decode_parts(data: bytes, levels: int) -> object:
    """Decode JSON part by part: large JSON at once would hold the interpreter, and with it the event loop."""
    if len(data) <= PART_BYTES or not levels:
        return msgspec.json.decode(data)
    first = data[:64].lstrip()[:1]
    if first == b"{":
        members = msgspec.json.decode(data, type=dict[str, Raw])
        return {name: _decode_parts(bytes(raw), levels - 1) for name, raw in members.items()}
    if first == b"[":
        return [_decode_parts(bytes(raw), levels - 1) for raw in _decode_blocks(data)]
    return msgspec.json.decode(data)


def _compare(text: str, structured: bytes) -> tuple[bool, bool]:
    """Return whether a text is a serialisation of the structured content, and whether it says all of it.

    Servers also put the value, or the text itself, into an object with one member, as in `{"result": …}`.
    """
    if len(structured) > MAX_SHAPED_BYTES:
        return False, False
    try:
        value = _decode(structured)
        only = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else None
        if only is not None and only == text:
            return False, True
        if len(text) > MAX_SHAPED_BYTES or text.lstrip()[:1] not in ("{", "["):
            return False, False
        same = _decode(text.encode())
        equal = same in (value, only)
    except (ValueError, RecursionError):
        return False, False
    return equal, equal


def _ends_differently(text: str) -> bool:
    """Return whether the last line of a text says how it ended, as that of a log or of a command does."""
    last = text.rstrip().rpartition("\n")[2]
    return "\n" in text and len(last) < 400 and _ENDING.search(last) is not None


def _size_for(text: str, tokens: int) -> int:
    """Return how many characters of a text have about this many tokens."""
    sample = text[: tokens * 8]
    return max(int(len(sample) * tokens / max(estimate(sample), 1)), 1)


def _cut(text: str, size: int) -> int:
    """Return the best place to cut a text: behind a line, a JSON member or a word, in the last fifth of the size."""
    if size >= len(text):
        return len(text)
    earliest = size * 4 // 5
    for mark in ("\n", "},", "],", ",", " "):
        at = text.rfind(mark, earliest, size)
        if at >= 0:
            return at + len(mark)
    return size
