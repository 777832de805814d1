"""Checks arguments against a tool's JSON Schema and describes what does not match.

Covers types, required and unknown members, fixed values, bounds, nesting, combinations and local references. Formats,
patterns and conditions are left to the tool itself. Gives up on an excessive schema and accepts the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from reprlib import Repr
from typing import Any

from msgspec import Struct

from switchboard_mcp.suites.schema_compaction import pointer

MAX_DEPTH = 64
# No sensible call needs more; a schema crafted to take forever does.
MAX_NODES = 20_000
MAX_REF_CHARS = 4_000
# Enough for a model to correct its call.
MAX_MISTAKES = 8
SHOWN_CHARS = 60
MAX_SHOWN_NAMES = 50
# Every entry of these lists counts as a node.
COUNTED = ("enum", "required", "type", "anyOf", "oneOf")

Node = dict[str, Any]


class SchemaMistake(Struct, frozen=True):
    """One mismatch: its path and a description."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'the arguments'}: {self.message}"


def check(schema: object, value: object) -> list[SchemaMistake]:
    """Return the mismatches in the order of the schema, empty if the value is valid."""
    look = _SchemaWalk(schema)
    mistakes: list[SchemaMistake] = []
    for mistake in look.mistakes(schema, value, "", 0):
        mistakes.append(mistake)
        if len(mistakes) == MAX_MISTAKES:
            break
    return mistakes


class _SchemaWalk:
    def __init__(self, root: object) -> None:
        self._root = root
        self._left = MAX_NODES

    def mistakes(self, schema: object, value: object, path: str, depth: int) -> Iterator[SchemaMistake]:
        """Yield the mismatches of a value and its members."""
        self._left -= 1
        if isinstance(schema, dict):
            self._left -= sum(len(_list(schema, keyword)) for keyword in COUNTED)
        if schema is False:
            yield SchemaMistake(path, "no value is allowed here")
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self._left < 0:
            return
        if "$ref" in schema:
            yield from self.mistakes(self._target(schema["$ref"]), value, path, depth + 1)
        yield from _value_mistakes(schema, value, path)
        yield from self._combined(schema, value, path, depth)
        if isinstance(value, dict):
            yield from self._members(schema, value, path, depth)
        elif isinstance(value, list):
            yield from self._entries(schema, value, path, depth)

    def _target(self, ref: object) -> object:
        steps = pointer(ref) if isinstance(ref, str) and len(ref) <= MAX_REF_CHARS else None
        node = self._root if steps is not None else {}
        for step in steps or ():
            if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                node = node.get(step, {}) if isinstance(node, dict) else {}
        return node

    def _fits(self, schema: object, value: object, depth: int) -> bool:
        return next(self.mistakes(schema, value, "", depth + 1), None) is None

    def _combined(self, schema: Node, value: object, path: str, depth: int) -> Iterator[SchemaMistake]:
        for part in _list(schema, "allOf"):
            yield from self.mistakes(part, value, path, depth + 1)
        options = _list(schema, "anyOf")
        if options and not any(self._fits(option, value, depth) for option in options):
            yield from self._none_fits(options, value, path, depth)
        options = _list(schema, "oneOf")
        if options:
            fitting = sum(self._fits(option, value, depth) for option in options)
            if fitting == 0:
                yield from self._none_fits(options, value, path, depth)
            elif fitting > 1:
                yield SchemaMistake(
                    path, f"matches {fitting} of {len(options)} alternatives, but must match exactly one"
                )
        if "not" in schema and self._fits(schema["not"], value, depth):
            yield SchemaMistake(path, "matches a schema that it must not match")

    def _none_fits(
        self, options: list[object], value: object, path: str, depth: int
    ) -> Iterator[SchemaMistake]:
        """Yield the mismatches of the closest alternative: the one whose mismatches are deeper in the value."""
        complaints = [
            list(islice(self.mistakes(option, value, path, depth + 1), MAX_MISTAKES)) for option in options
        ]
        deeper = [
            mistakes
            for mistakes in complaints
            if mistakes and all(mistake.path != path for mistake in mistakes)
        ]
        if len(deeper) == 1:
            yield from deeper[0]
        else:
            yield SchemaMistake(path, f"{_shown(value)} matches none of {len(options)} alternatives")

    def _members(self, schema: Node, value: Node, path: str, depth: int) -> Iterator[SchemaMistake]:
        for name in _list(schema, "required"):
            if isinstance(name, str) and name not in value:
                yield SchemaMistake(_under(path, name), "is missing")
        properties = schema.get("properties")
        members = properties if isinstance(properties, dict) else {}
        for name, item in value.items():
            if name in members:
                yield from self.mistakes(members[name], item, _under(path, name), depth + 1)
            elif "additionalProperties" in schema and not schema.get("patternProperties"):
                others = schema["additionalProperties"]
                if others is False:
                    there = f"; known: {', '.join(islice(members, MAX_SHOWN_NAMES))}" if members else ""
                    yield SchemaMistake(_under(path, name), f"is unknown{there}")
                else:
                    yield from self.mistakes(others, item, _under(path, name), depth + 1)

    def _entries(self, schema: Node, value: list[object], path: str, depth: int) -> Iterator[SchemaMistake]:
        items: object = schema.get("items")
        first = _list(schema, "prefixItems")
        if isinstance(items, list):  # older drafts' form of `prefixItems`
            first, items = items, schema.get("additionalItems")
        for index, item in enumerate(value):
            there = f"{path}[{index}]"
            if index < len(first):
                yield from self.mistakes(first[index], item, there, depth + 1)
            elif items is not None:
                yield from self.mistakes(items, item, there, depth + 1)
            if self._left < 0:
                return


def _value_mistakes(schema: Node, value: object, path: str) -> Iterator[SchemaMistake]:
    """Yield the mismatches of a value itself, without its members."""
    types = schema.get("type")
    kinds = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    if kinds and not any(TYPES[kind](value) for kind in kinds if kind in TYPES):
        yield SchemaMistake(path, f"{_shown(value)} is not of type {' or '.join(map(str, kinds))}")
        return
    fixed = schema.get("enum")
    if isinstance(fixed, list) and not any(same(value, option) for option in fixed):
        yield SchemaMistake(path, f"{_shown(value)} is not one of {', '.join(map(_shown, fixed[:20]))}")
    if "const" in schema and not same(value, schema["const"]):
        yield SchemaMistake(path, f"{_shown(value)} is not {_shown(schema['const'])}")
    size = _size(value)
    if size is not None:
        for keyword, holds, words in BOUNDS[size[0]]:
            bound = schema.get(keyword)
            if _is_number(bound) and not holds(size[1], bound):
                yield SchemaMistake(path, f"{words} {bound}")


def same(left: object, right: object) -> bool:
    """Compare as JSON values: 1 equals 1.0, and neither equals true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(item, right[name]) for name, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


TYPES: dict[object, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": _is_integer,
}

Holds = Callable[[Any, Any], bool]
_AT_LEAST: Holds = lambda size, bound: size >= bound  # noqa: E731
_AT_MOST: Holds = lambda size, bound: size <= bound  # noqa: E731
# By kind of value: keyword, condition, and the message if it does not hold.
BOUNDS: dict[str, list[tuple[str, Holds, str]]] = {
    "number": [
        ("minimum", _AT_LEAST, "is less than"),
        ("maximum", _AT_MOST, "is more than"),
        ("exclusiveMinimum", lambda size, bound: size > bound, "is not more than"),
        ("exclusiveMaximum", lambda size, bound: size < bound, "is not less than"),
    ],
    "text": [
        ("minLength", _AT_LEAST, "is shorter than"),
        ("maxLength", _AT_MOST, "is longer than"),
    ],
    "list": [
        ("minItems", _AT_LEAST, "has fewer entries than"),
        ("maxItems", _AT_MOST, "has more entries than"),
    ],
    "members": [
        ("minProperties", _AT_LEAST, "has fewer members than"),
        ("maxProperties", _AT_MOST, "has more members than"),
    ],
}


def _size(value: object) -> tuple[str, float] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, str):
        return "text", len(value)
    if isinstance(value, list):
        return "list", len(value)
    return ("members", len(value)) if isinstance(value, dict) else None


def _list(schema: Node, keyword: str) -> list[object]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _repr(value: object) -> str:
    """Return the beginning of a value's text: all of it may be megabytes."""
    if isinstance(value, str | bytes):
        return repr(value[: SHOWN_CHARS + 1])
    shown = Repr()
    shown.maxlevel = 3
    return shown.repr(value) if isinstance(value, dict | list) else repr(value)


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = _repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
