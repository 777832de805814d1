"""JSON with comments and trailing commas as a tree of places in its text.

Owns the scanner. Everything that is not white space, a comment or a comma has a node that knows where it begins and
ends, so that an editor can change one member and leave every other character as it is. Does not know what a document
means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from switchboard_mcp.setup.splices import BeyondEditingError, position

# Deeper than any settings file, and far from Python's own limit.
MAX_DEPTH = 100
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"(?:[^"\\\n\r]|\\.)*+"')
_BLANK = re.compile(r"[ \t\r\n\ufeff]*+")


class Node(Struct):
    """A value: `text[start:end]`."""

    kind: Literal["object", "array", "string", "scalar"]
    start: int
    end: int
    members: list[Member]
    items: list[Item]


class Member(Struct):
    """A name and its value. `comma` is where the comma after it is, or -1."""

    name: str
    start: int
    value: Node
    comma: int = -1

    @property
    def end(self) -> int:
        """Where the value ends."""
        return self.value.end


class Item(Struct):
    """A value of an array."""

    value: Node
    comma: int = -1

    @property
    def start(self) -> int:
        """Where the value begins."""
        return self.value.start

    @property
    def end(self) -> int:
        """Where the value ends."""
        return self.value.end


def scan(text: str) -> Node:
    """The tree of a document; refuses what is no JSON with comments."""
    at = skip(text, 0)
    node = _value(text, at, 0)
    after = skip(text, node.end)
    if after != len(text):
        raise _wrong(text, after, "there is something after the end")
    return node


def value_of(text: str, node: Node) -> object:
    """The plain value of a node."""
    if node.kind == "object":
        return {member.name: value_of(text, member.value) for member in node.members}
    if node.kind == "array":
        return [value_of(text, item.value) for item in node.items]
    return json.loads(text[node.start : node.end])


def skip(text: str, at: int) -> int:
    """The next place that is neither white space nor comment."""
    for _, end in trivia(text, at):
        at = end
    return at


def trivia(text: str, at: int) -> Iterator[tuple[int, int]]:
    """White space and comments from here on, piece by piece."""
    while at < len(text):
        if text.startswith("//", at):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2) + 2
            if end < 2:
                raise _wrong(text, at, "a comment never ends")
        else:
            blank = _BLANK.match(text, at)
            end = blank.end() if blank else at
            if end == at:
                return
        yield at, end
        at = end


def _value(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise BeyondEditingError("is nested too deeply.")
    opening = text[at : at + 1]
    if opening == "{":
        return _object(text, at, depth)
    if opening == "[":
        return _array(text, at, depth)
    if opening == '"':
        return Node("string", at, _string_end(text, at), [], [])
    found = _SCALAR.match(text, at)
    if found is None:
        raise _wrong(text, at, "a value is missing" if opening in ("", "}", "]", ",") else "this is no value")
    return Node("scalar", at, found.end(), [], [])


def _object(text: str, at: int, depth: int) -> Node:
    node = Node("object", at, at, [], [])
    at = skip(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise _wrong(text, at, "a name in quotes, or }, is missing")
        end = _string_end(text, at)
        name = str(json.loads(text[at:end]))
        colon = skip(text, end)
        if text[colon : colon + 1] != ":":
            raise _wrong(text, colon, "a colon is missing")
        member = Member(name, at, _value(text, skip(text, colon + 1), depth + 1))
        node.members.append(member)
        at, member.comma = _after(text, member.end, "}")
    node.end = at + 1
    return node


def _array(text: str, at: int, depth: int) -> Node:
    node = Node("array", at, at, [], [])
    at = skip(text, at + 1)
    while text[at : at + 1] != "]":
        item = Item(_value(text, at, depth + 1))
        node.items.append(item)
        at, item.comma = _after(text, item.end, "]")
    node.end = at + 1
    return node


def _after(text: str, at: int, closing: str) -> tuple[int, int]:
    """Where the next thing after a member or item is, and where its comma is."""
    at = skip(text, at)
    if text[at : at + 1] == ",":
        return skip(text, at + 1), at
    if text[at : at + 1] != closing:
        raise _wrong(text, at, f"a comma, or {closing}, is missing")
    return at, -1


def _string_end(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    if found is None:
        raise _wrong(text, at, "a text never ends")
    try:
        json.loads(found[0], strict=True)
    except json.JSONDecodeError as problem:
        raise _wrong(text, at + problem.pos, problem.msg) from None
    return found.end()


def _wrong(text: str, at: int, what: str) -> BeyondEditingError:
    return BeyondEditingError(f"is not valid JSON: {what} at {position(text, at)}.")
