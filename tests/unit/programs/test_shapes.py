"""Shapes learned from results: widened by later ones, small whatever a server sends, and without values."""

from __future__ import annotations

from functools import reduce
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard_mcp.programs.shapes import (
    MAX_PARTS,
    Shape,
    changed_kind,
    difference,
    from_schema,
    merge,
    shape_of,
    to_schema,
)
from switchboard_mcp.suites.signature import result_type
from tests.cases import each_case


def learned(*values: object) -> Shape:
    return reduce(merge, map(shape_of, values))


@each_case(
    ("values", "expected"),
    [
        ([{"id": 1, "name": "a"}], "{id: integer, name: string}"),
        ([{"id": 1, "name": "a"}, {"id": 2}], "{id: integer, name?: string}"),
        ([{"n": 1}, {"n": 1.5}], "{n: number}"),
        ([{"x": None}, {"x": "a"}], "{x: string|null}"),
        ([[{"a": 1}, {"a": 2, "b": [True]}]], "{a: integer, b?: boolean[]}[]"),
        ([{"id": 1}, [1]], "{id: integer}|integer[]"),
        ([[], [1]], "integer[]"),
        ([{"2026-01-01": 3, "2026-01-02": 4}], "{[key]: integer}"),
        ([{"a@b.example": {"n": 1}}], "{[key]: {n: integer}}"),
        ([{f"k{chr(97 + n)}": n for n in range(26)} for _ in range(2)] + [{}], None),
        ([{f"w{n}x{m}": 1 for m in "abcd"} for n in "abc"], "{[key]: integer}"),
        ([{f"key{n:03}": 1 for n in range(61)}], "{[key]: integer}"),
        (["text"], "string"),
        ([3], "integer"),
        ([None], ""),
        ([{}], ""),
        ([1, "a", [1], {}, True], ""),
    ],
)
def test_results_become_a_type(values: list[object], expected: str | None) -> None:
    shown = result_type(to_schema(learned(*values)))
    assert expected is None or shown == expected


def test_a_map_stays_a_map() -> None:
    shape = learned({"2026-01-01": 3}, {"total": 3})
    assert result_type(to_schema(shape)) == "{[key]: integer}"


@each_case(
    ("value", "expected"),
    [
        ({"id": 1, "user": {"name": "a"}, "tags": ["x"]}, ""),
        ({"id": 2}, ""),
        ({"id": 1.5}, ""),
        ({"id": None, "user": None, "tags": [None]}, ""),
        ({"id": 1, "new": 3}, ""),
        ({"user": "a"}, "result.user is a str, was a record in 2 results"),
        ({"tags": ["x", 1]}, "result.tags[] is an int, was a str in 3 results"),
        ({"tags": {"x": 1}}, "result.tags is a record, was a list in 2 results"),
        ([1], "result is a list, was a record in 2 results"),
        ({"id": True}, "result.id is a bool, was an int in 2 results"),
        ({"user": {"name": 3}}, "result.user.name is an int, was a str in 2 results"),
    ],
)
def test_only_a_changed_kind_is_a_difference(value: object, expected: str) -> None:
    shape = learned(*({"id": n, "user": {"name": "a"}, "tags": ["x"] * n} for n in (1, 2)))
    assert difference(shape, value) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(JSON, min_size=1, max_size=4))
def test_a_merged_shape_accepts_all_seen_values_in_any_order(values: list[object]) -> None:
    shape = learned(*values)
    assert not any(difference(shape, value) for value in values)
    again = msgspec.json.decode(msgspec.json.encode(shape), type=Shape)
    assert again == shape
    assert not changed_kind(shape, merge(shape, shape_of(values[0])))
    schema = to_schema(shape)
    assert not any(difference(from_schema(schema), value) for value in values)
    assert not changed_kind(from_schema(schema), shape)
    result_type(to_schema(shape))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@each_case(
    "value",
    [
        nested(500),
        {"a": nested(200), "b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}},
        [{f"field_{n}x{m}": m for m in "abcdefgh"} for n in range(2_000)],
        {
            f"k{chr(97 + n % 26)}{n}": {f"q{m}": {"z": 1} for m in "abcdefghijklmnopqrstuvwxyz"}
            for n in range(50)
        },
        [[[[{f"x{n}": n}] for n in range(30)] for _ in range(30)] for _ in range(30)],
        {"x" * 1_000_000: 1},
        ["secret-value"] * 100_000,
        {"\ud800": 1},
    ],
    ids=range(8),
)
def test_a_hostile_result_gives_a_small_shape(value: Any) -> None:
    shape = learned(value, value)
    kept = repr(shape)
    assert len(kept) < 300 * MAX_PARTS
    assert "secret" not in kept
    assert not difference(shape, value)


def test_a_change_of_kind_between_two_shapes_is_named() -> None:
    before = learned({"a": 1, "b": [{"c": "x"}]})
    assert changed_kind(before, learned({"a": 1.5, "b": [], "d": 1})) == ""
    assert changed_kind(before, learned({"a": 1, "b": [{"c": 1}]})) == "result.b[].c may be an int"
    assert changed_kind(before, learned({"a": "x"})) == "result.a may be a str"
