"""Shapes of JSON values: which kinds of value occur where, learned from results. Pure.

A shape holds kinds and field names, never values. It is widened by every further result and never narrowed; it is kept
small by limits, beyond which anything is possible. A record is an object whose keys are names; an object whose keys are
data, such as dates or ids, is a map, and stays one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from itertools import islice
from typing import Any

from msgspec import Struct

MAX_DEPTH = 6
MAX_FIELDS = 60
MAX_KINDS = 4
# Values of one result that are looked at, and parts of one shape that are kept.
MAX_VALUES = 20_000
MAX_PARTS = 300
MAX_KEPT_PARTS = 600
MAX_KEY_CHARS = 40
# A record whose results have no key in common, but this many keys of one kind of value, is a map.
MAP_RESULTS, MAP_KEYS = 3, 12
_DATA_KEY = re.compile(
    r"""^[\W\d]                     # begins with a digit or sign
    | \d{3,} | \d+[-_:.]\d+         # numbers, dates, versions
    | [@/\\\s]                      # addresses, paths, sentences
    | ^[0-9a-fA-F]{12,}$ | ^[0-9a-fA-F]{8}-""",
    re.VERBOSE,
)
# Kinds by the words of JSON Schema.
KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
NULL, INTEGER, NUMBER, ARRAY, OBJECT = "null", "integer", "number", "array", "object"
NUMBERS = frozenset({INTEGER, NUMBER})
WORDS = {
    "boolean": "a bool",
    INTEGER: "an int",
    NUMBER: "a float",
    "string": "a str",
    ARRAY: "a list",
    OBJECT: "a record",
    NULL: "None",
}


class Shape(Struct, omit_defaults=True):
    """The values seen at one place: their kinds, and the shapes inside of them.

    `kinds` counts values by kind. `fields` are those of records, `values` those of maps, `items` those of lists. If
    `is_any`, too much was seen to say anything.
    """

    kinds: dict[str, int] = {}
    fields: dict[str, Shape] = {}
    values: Shape | None = None
    items: Shape | None = None
    is_any: bool = False

    @property
    def seen(self) -> int:
        """The number of values seen."""
        return sum(self.kinds.values())


class _Walk:
    def __init__(self) -> None:
        self.values = MAX_VALUES
        self.parts = MAX_PARTS

    def shape(self, value: object, depth: int) -> Shape:
        self.values -= 1
        kind = kind_of(value)
        if self.values < 0 or self.parts < 0:
            return Shape(is_any=True)
        if kind == OBJECT:
            return self.object_shape(value, depth)  # type: ignore[arg-type]  # it is a dict
        if kind == ARRAY:
            if depth >= MAX_DEPTH:
                return Shape({kind: 1}, items=Shape(is_any=True))
            return Shape({kind: 1}, items=self.merged(iter(value), depth + 1))  # type: ignore[call-overload]
        return Shape({kind: 1})

    def object_shape(self, value: dict[str, object], depth: int) -> Shape:
        if depth >= MAX_DEPTH:
            return Shape({OBJECT: 1}, values=Shape(is_any=True))
        if _has_data_keys(value):
            return Shape({OBJECT: 1}, values=self.merged(iter(value.values()), depth + 1) or Shape())
        self.parts -= len(value)
        return Shape({OBJECT: 1}, {key: self.shape(item, depth + 1) for key, item in value.items()})

    def merged(self, values: Iterator[object], depth: int) -> Shape | None:
        """Return the shape of several values together. Of very many, the first ones are looked at."""
        shape: Shape | None = None
        for value in values:
            if self.values < 0:
                break
            # Equal shapes take room once.
            parts = self.parts
            item_shape = self.shape(value, depth)
            if self.values < 0 and shape is not None:
                break  # it was looked at in part
            shape = item_shape if shape is None else merge(shape, item_shape)
            if shape.is_any:
                return shape
            if shape is not item_shape:
                self.parts = parts
        return shape


def shape_of(value: object) -> Shape:
    """Return the shape of one value."""
    return _Walk().shape(value, 0)


def kind_of(value: object) -> str:
    """Return the kind of a JSON value."""
    return KINDS.get(type(value), NULL)


def merge(left: Shape, right: Shape) -> Shape:
    """Return the shape of the values of both."""
    if left.is_any or right.is_any:
        return Shape(is_any=True)
    kinds = dict(left.kinds)
    for kind, count in right.kinds.items():
        kinds[kind] = kinds.get(kind, 0) + count
    if INTEGER in kinds and NUMBER in kinds:
        kinds[NUMBER] += kinds.pop(INTEGER)
    if len(kinds.keys() - {NULL}) > MAX_KINDS:
        return Shape(is_any=True)
    items = _either(left.items, right.items)
    if left.values is not None or right.values is not None:
        return Shape(kinds, values=_either(_as_map(left), _as_map(right)), items=items)
    fields = dict(left.fields)
    for key, shape in right.fields.items():
        fields[key] = merge(fields[key], shape) if key in fields else shape
    merged_shape = Shape(kinds, fields, items=items)
    return Shape(kinds, values=_as_map(merged_shape), items=items) if _is_map(merged_shape) else merged_shape


def bounded(shape: Shape) -> Shape:
    """Return a shape with at most about `MAX_KEPT_PARTS` parts: the deepest ones may be anything."""
    for depth in range(MAX_DEPTH, -1, -1):
        if _parts(shape) <= MAX_KEPT_PARTS:
            return shape
        shape = _cut(shape, depth)
    return shape


def _parts(shape: Shape) -> int:
    inner = [*shape.fields.values(), *filter(None, (shape.values, shape.items))]
    return 1 + sum(map(_parts, inner))


def _cut(shape: Shape, depth: int) -> Shape:
    if depth < 0:
        return Shape(is_any=True)
    fields = {key: _cut(field, depth - 1) for key, field in shape.fields.items()}
    values = _cut(shape.values, depth - 1) if shape.values is not None else None
    items = _cut(shape.items, depth - 1) if shape.items is not None else None
    return Shape(shape.kinds, fields, values, items, shape.is_any)


def _either(left: Shape | None, right: Shape | None) -> Shape | None:
    return merge(left, right) if left is not None and right is not None else left or right


def _as_map(shape: Shape) -> Shape | None:
    """Return the shape of the values of an object, whatever their keys; None if it is not an object."""
    values = shape.values
    for field in shape.fields.values():
        values = _either(values, field)
    return values


def _has_data_keys(value: dict[str, object]) -> bool:
    """Return True if the keys of an object are data."""
    if len(value) > MAX_FIELDS:
        return True
    data = sum(len(key) > MAX_KEY_CHARS or _DATA_KEY.search(key) is not None for key in value)
    return data * 2 > len(value)


def _is_map(shape: Shape) -> bool:
    """Return True if many results have shown an object whose keys are data."""
    if len(shape.fields) > MAX_FIELDS:
        return True
    results = shape.kinds.get(OBJECT, 0)
    if results < MAP_RESULTS or len(shape.fields) < MAP_KEYS:
        return False
    has_common = any(field.seen >= results for field in shape.fields.values())
    kinds = {kind for field in shape.fields.values() for kind in field.kinds}
    return not has_common and len(kinds - {NULL}) == 1


def to_schema(shape: Shape | None) -> dict[str, Any]:
    """Return the JSON Schema of a shape; an empty one if nothing is known.

    >>> to_schema(shape_of({"id": 1, "tags": ["a"]}))["required"]
    ['id', 'tags']
    """
    if shape is None or shape.is_any or not shape.kinds.keys() - {NULL}:
        return {}
    options = [_kind_schema(kind, shape) for kind in shape.kinds if kind != NULL]
    options += [{"type": NULL}] if NULL in shape.kinds else []
    return options[0] if len(options) == 1 else {"anyOf": options}


def _kind_schema(kind: str, shape: Shape) -> dict[str, Any]:
    if kind == ARRAY:
        items = to_schema(shape.items)
        return {"type": ARRAY, "items": items} if items else {"type": ARRAY}
    if kind != OBJECT:
        return {"type": kind}
    if shape.values is not None or not shape.fields:
        return {"type": OBJECT, "additionalProperties": to_schema(shape.values) or True}
    results = shape.kinds[OBJECT]
    return {
        "type": OBJECT,
        "properties": {key: to_schema(field) for key, field in shape.fields.items()},
        # One that was ever cut short has no count.
        "required": [key for key, field in shape.fields.items() if field.is_any or field.seen >= results],
    }


def from_schema(schema: object) -> Shape:
    """Return the shape that a schema of `to_schema` describes, as if seen once; one that says nothing for any other."""
    if not isinstance(schema, dict):
        return Shape()
    shape = Shape()
    options = schema.get("anyOf")
    for option in options if isinstance(options, list) else [schema]:
        kind = option.get("type") if isinstance(option, dict) else None
        if not isinstance(kind, str) or kind not in WORDS:
            return Shape()
        shape.kinds = {**shape.kinds, kind: 1}
        if kind == ARRAY:
            shape.items = from_schema(option.get("items"))
        elif kind == OBJECT and isinstance(option.get("properties"), dict):
            shape.fields = {key: from_schema(field) for key, field in option["properties"].items()}
        elif kind == OBJECT:
            shape.values = from_schema(option.get("additionalProperties"))
    return shape


def difference(shape: Shape, value: object, source: str = "") -> str:
    """Return where a value has a kind that was never seen there, or an empty text. `source` says where it was seen.

    Neither a missing nor an added field is a difference, nor is null: the program's own access fails at the right line.
    Nor is one more kind where several were seen: a program that was checked against a union looks at the kind itself.
    """
    return next(_differences(shape, value, "result", source, 0, [MAX_VALUES]), "")


def _differences(
    shape: Shape, value: object, path: str, source: str, depth: int, left: list[int]
) -> Iterator[str]:
    left[0] -= 1
    expected = shape.kinds.keys() - {NULL}
    kind = kind_of(value)
    if left[0] < 0 or depth > MAX_DEPTH or shape.is_any or not expected or kind == NULL:
        return
    if not _is_known(kind, expected):
        if len(expected) > 1 and not source:
            return
        was = " or ".join(WORDS[name] for name in sorted(expected))
        times = "in 1 result" if shape.seen == 1 else f"in {shape.seen} results"
        yield f"{path} is {WORDS[kind]}, was {was} {source or times}"
    elif isinstance(value, list) and shape.items is not None:
        for item in value:
            yield from _differences(shape.items, item, f"{path}[]", source, depth + 1, left)
    elif isinstance(value, dict):
        for key, item in islice(value.items(), MAX_VALUES):
            inner = shape.values if shape.values is not None else shape.fields.get(key)
            if inner is not None:
                place = f"{path}.{key}" if shape.values is None else f"{path}.*"
                yield from _differences(inner, item, place, source, depth + 1, left)


def _is_known(kind: str, expected: Set[str]) -> bool:
    """Return True if a kind is known. Whole numbers and others are one kind."""
    return kind in expected or (kind in NUMBERS and not expected.isdisjoint(NUMBERS))


def changed_kind(before: Shape, after: Shape) -> str:
    """Return where a later shape has a kind that an earlier one has not, or an empty text."""
    return next(_changes(before, after, "result"), "")


def _changes(before: Shape, after: Shape, path: str) -> Iterator[str]:
    kinds_before, kinds = before.kinds.keys() - {NULL}, after.kinds.keys() - {NULL}
    if before.is_any or not kinds_before:
        return
    if after.is_any:
        yield f"{path} may be anything"
        return
    for kind in sorted(kinds - kinds_before):
        if not _is_known(kind, kinds_before):
            yield f"{path} may be {WORDS[kind]}"
    if before.items is not None and after.items is not None:
        yield from _changes(before.items, after.items, f"{path}[]")
    if before.values is not None and after.values is not None:
        yield from _changes(before.values, after.values, f"{path}.*")
    for key in before.fields.keys() & after.fields.keys():
        yield from _changes(before.fields[key], after.fields[key], f"{path}.{key}")
