"""Arguments held to a schema: the same verdict as a real validator gives, in words that a model can act on."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from switchboard_mcp.ask.schema_check import MAX_MISTAKES, check
from tests.cases import each_case

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.0, "", "a", "abc"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
BOUNDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
SIZES = ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
            **{keyword: st.integers(-2, 3) for keyword in BOUNDS},
            **{keyword: st.integers(0, 3) for keyword in SIZES},
        },
    )


SCHEMAS = st.recursive(st.booleans(), _keywords, max_leaves=6)
DEFINED = {"x": {"type": "integer"}, "y": {"required": ["a"], "properties": {"a": {"$ref": "#/$defs/x"}}}}


@given(SCHEMAS, VALUES)
def test_the_verdict_is_that_of_a_real_validator(schema: Any, value: Any) -> None:
    whole = {**schema, "$defs": DEFINED} if isinstance(schema, dict) else schema
    assert (check(whole, value) == []) is Draft202012Validator(whole).is_valid(value)


@each_case(
    ("schema", "value", "expected"),
    [
        ({"required": ["path"]}, {}, "path: is missing"),
        (
            {"properties": {"path": {}}, "additionalProperties": False},
            {"file": 1},
            "file: is unknown; known: path",
        ),
        ({"properties": {"n": {"type": "integer"}}}, {"n": "3"}, "n: '3' is not of type integer"),
        ({"properties": {"how": {"enum": ["x", "y"]}}}, {"how": "z"}, "how: 'z' is not one of 'x', 'y'"),
        ({"properties": {"on": {"const": True}}}, {"on": None}, "on: null is not true"),
        (
            {"properties": {"list": {"items": {"required": ["name"]}}}},
            {"list": [{"name": 1}, {}]},
            "list[1].name: is missing",
        ),
        ({"properties": {"list": {"minItems": 1}}}, {"list": []}, "list: has fewer entries than 1"),
        ({"type": "object"}, [], "the arguments: [] is not of type object"),
        (
            {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]},
            {},
            "id: is missing",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_place(schema: Any, value: Any, expected: str) -> None:
    assert [str(mistake) for mistake in check(schema, value)] == [expected]


def test_tuples_of_older_drafts_are_understood() -> None:
    schema = {"items": [{"type": "string"}], "additionalItems": {"type": "integer"}}
    assert check(schema, ["a", 1]) == []
    assert [mistake.path for mistake in check(schema, [1, "a"])] == ["[0]", "[1]"]


def test_only_as_much_is_reported_as_anybody_reads() -> None:
    schema = {"required": [f"n{number}" for number in range(100)]}
    assert len(check(schema, {})) == MAX_MISTAKES


@each_case(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "https://example.com/other.json"},
        {"$ref": "#/$defs/nowhere"},
        {"type": 7, "required": 3, "properties": [], "enum": "x", "anyOf": {}, "items": 1},
        {"type": ["object", "no such type"]},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 3}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_without_sense_or_end_lets_pass(schema: Any) -> None:
    assert check(schema, {"x": [1]}) == []
