"""Parses JSON with comments and trailing commas into a tree of spans.

Every value has a node with its start and end, so that an editor can change one member and leave all other characters
unchanged. Not aware of what a document means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from switchboard_mcp.config.jsonc import JsoncError, syntax_error, to_json
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError

Kind = Literal["object", "array", "scalar"]
_decode = json.JSONDecoder().raw_decode
_BLANK = re.compile(r"[ \t\r\n\ufeff]*")


class JsonNode:
    """A value, `text[start:end]`; `plain` is the whole document as plain JSON, with the same positions.

    Members are located on first access: some files are large, and few parts of them are needed.
    """

    __slots__ = ("_items", "_members", "end", "kind", "plain", "start", "text")

    def __init__(self, text: str, plain: str, start: int) -> None:
        self.text = text
        self.plain = plain
        self.kind: Kind = "object" if text[start] == "{" else "array" if text[start] == "[" else "scalar"
        self.start = start
        self.end = _decode(plain, start)[1]
        self._members: list[Member] | None = None
        self._items: list[Item] | None = None

    @property
    def members(self) -> list[Member]:
        """The members of an object."""
        if self._members is None:
            self._members = list(_members(self)) if self.kind == "object" else []
        return self._members

    @property
    def items(self) -> list[Item]:
        """The values of an array."""
        if self._items is None:
            self._items = list(_items(self)) if self.kind == "array" else []
        return self._items

    @property
    def value(self) -> object:
        """The plain value."""
        value: object = json.loads(self.plain[self.start : self.end])
        return value


class Member(Struct, eq=False):
    """A name and its value. `comma` is the position of the comma after it, or -1."""

    name: str
    start: int
    value: JsonNode
    comma: int = -1

    @property
    def end(self) -> int:
        """The end of the value."""
        return self.value.end


class Item(Struct, eq=False):
    """A value of an array."""

    value: JsonNode
    comma: int = -1

    @property
    def start(self) -> int:
        """The start of the value."""
        return self.value.start

    @property
    def end(self) -> int:
        """The end of the value."""
        return self.value.end


def parse(text: str) -> JsonNode:
    """Parse a document. Raises `UnsafeEditError` if it is not JSON with comments."""
    try:
        plain = _to_valid_json(text)
    except JsoncError as problem:
        raise UnsafeEditError(str(problem)) from None
    except RecursionError:
        raise UnsafeEditError("is nested too deeply.") from None
    return JsonNode(text, plain, skip_trivia(text, 0))


def _to_valid_json(text: str) -> str:
    try:
        json.loads(text)  # Nearly all files are plain JSON, for which this is many times faster.
    except json.JSONDecodeError:
        text = to_json(text)
        try:
            json.loads(text)
        except json.JSONDecodeError as problem:
            raise syntax_error(text, problem.msg) from None
    return text


def skip_trivia(text: str, at: int) -> int:
    """Return the next position that is neither white space nor comment."""
    for _, end in trivia(text, at):
        at = end
    return at


def trivia(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of white space and comments that begin here."""
    while at < len(text):
        if text.startswith("//", at):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.index("*/", at + 2) + 2
        else:
            blank = _BLANK.match(text, at)
            end = blank.end() if blank else at
            if end == at:
                return
        yield at, end
        at = end


def _members(node: JsonNode) -> Iterator[Member]:
    text, at = node.text, skip_trivia(node.text, node.start + 1)
    while text[at] != "}":
        name, end = _decode(node.plain, at)
        colon = skip_trivia(text, end)
        value = JsonNode(text, node.plain, skip_trivia(text, colon + 1))
        following, comma = _after(text, value.end)
        yield Member(name, at, value, comma)
        at = following


def _items(node: JsonNode) -> Iterator[Item]:
    text, at = node.text, skip_trivia(node.text, node.start + 1)
    while text[at] != "]":
        value = JsonNode(text, node.plain, at)
        at, comma = _after(text, value.end)
        yield Item(value, comma)


def _after(text: str, at: int) -> tuple[int, int]:
    """Return the position of the next member or item, and that of the comma before it, or -1."""
    at = skip_trivia(text, at)
    return (skip_trivia(text, at + 1), at) if text[at] == "," else (at, -1)
