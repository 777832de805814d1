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

from switchboard_mcp.setup.edit.text_edit import UnsafeEditError, position

# Deeper than any settings file, and far below Python's recursion limit.
MAX_DEPTH = 100
Kind = Literal["object", "array", "string", "scalar"]
_decode = json.JSONDecoder().raw_decode
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"(?:[^"\\\n\r]|\\.)*+"')
_BLANK = re.compile(r"[ \t\r\n\ufeff]*+")


class JsonNode:
    """A value, `text[start:end]`. Its members are parsed on first access: some files are large, and few parts are
    needed.
    """

    __slots__ = ("_items", "_members", "end", "kind", "start", "text")

    def __init__(self, text: str, kind: Kind, start: int, end: int) -> None:
        self.text = text
        self.kind = kind
        self.start = start
        self.end = end
        self._members: list[Member] | None = None
        self._items: list[Item] | None = None

    @property
    def members(self) -> list[Member]:
        """The members of an object."""
        if self._members is None:
            self._members = _members(self.text, self.start, 0)[0] if self.kind == "object" else []
        return self._members

    @property
    def items(self) -> list[Item]:
        """The values of an array."""
        if self._items is None:
            self._items = _items(self.text, self.start, 0)[0] if self.kind == "array" else []
        return self._items


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
    at = skip_trivia(text, 0)
    node = _value(text, at, 0)
    after = skip_trivia(text, node.end)
    if after != len(text):
        raise _error(text, after, "unexpected text after the end")
    return node


def to_value(text: str, node: JsonNode) -> object:
    """Return the plain value of a node."""
    try:
        # Nearly all values are plain JSON, for which the standard library is much faster.
        return json.loads(text[node.start : node.end])
    except (ValueError, RecursionError):
        pass
    if node.kind == "object":
        return {member.name: to_value(text, member.value) for member in node.members}
    return [to_value(text, item.value) for item in node.items]


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
            end = text.find("*/", at + 2) + 2
            if end < 2:
                raise _error(text, at, "a comment is never closed")
        else:
            blank = _BLANK.match(text, at)
            end = blank.end() if blank else at
            if end == at:
                return
        yield at, end
        at = end


def _value(text: str, at: int, depth: int) -> JsonNode:
    if depth > MAX_DEPTH:
        raise UnsafeEditError("is nested too deeply.")
    opening = text[at : at + 1]
    if opening in ("{", "["):
        return _container(text, at, depth)
    if opening == '"':
        return JsonNode(text, "string", at, _string_end(text, at))
    match = _SCALAR.match(text, at)
    if match is None:
        raise _error(
            text, at, "a value is missing" if opening in ("", "}", "]", ",") else "this is not a value"
        )
    return JsonNode(text, "scalar", at, match.end())


def _container(text: str, at: int, depth: int) -> JsonNode:
    """Parse an object or array. If it is plain JSON, the standard library finds its end many times faster."""
    kind: Kind = "object" if text[at] == "{" else "array"
    try:
        return JsonNode(text, kind, at, _decode(text, at)[1])
    except (ValueError, RecursionError):
        pass  # It contains comments, trailing commas or a mistake.
    node = JsonNode(text, kind, at, at)
    if kind == "object":
        node._members, node.end = _members(text, at, depth)
    else:
        node._items, node.end = _items(text, at, depth)
    return node


def _members(text: str, at: int, depth: int) -> tuple[list[Member], int]:
    members: list[Member] = []
    at = skip_trivia(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise _error(text, at, "a name in quotes, or }, is missing")
        end = _string_end(text, at)
        name = str(json.loads(text[at:end]))
        colon = skip_trivia(text, end)
        if text[colon : colon + 1] != ":":
            raise _error(text, colon, "a colon is missing")
        member = Member(name, at, _value(text, skip_trivia(text, colon + 1), depth + 1))
        members.append(member)
        at, member.comma = _next_position(text, member.end, "}")
    return members, at + 1


def _items(text: str, at: int, depth: int) -> tuple[list[Item], int]:
    items: list[Item] = []
    at = skip_trivia(text, at + 1)
    while text[at : at + 1] != "]":
        item = Item(_value(text, at, depth + 1))
        items.append(item)
        at, item.comma = _next_position(text, item.end, "]")
    return items, at + 1


def _next_position(text: str, at: int, closing: str) -> tuple[int, int]:
    """Return the position of the next member or item, and that of the comma before it."""
    at = skip_trivia(text, at)
    if text[at : at + 1] == ",":
        return skip_trivia(text, at + 1), at
    if text[at : at + 1] != closing:
        raise _error(text, at, f"a comma, or {closing}, is missing")
    return at, -1


def _string_end(text: str, at: int) -> int:
    match = _STRING.match(text, at)
    if match is None:
        raise _error(text, at, "a string is never closed")
    try:
        json.loads(match[0], strict=True)
    except json.JSONDecodeError as problem:
        raise _error(text, at + problem.pos, problem.msg) from None
    return match.end()


def _error(text: str, at: int, what: str) -> UnsafeEditError:
    return UnsafeEditError(f"is not valid JSON: {what} at {position(text, at)}.")
