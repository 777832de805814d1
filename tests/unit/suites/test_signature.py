from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.signature import RESULT_TOKENS, result_type, signature
from switchboard_mcp.suites.token_estimate import estimate
from tests.cases import each_case

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["value"],
        }
    },
}


def parameter(schema: object, required: bool = True) -> str:
    """How one parameter `p` of this schema is written."""
    text = signature({"type": "object", "properties": {"p": schema}, "required": ["p"] if required else []})
    return text.removeprefix("(").removesuffix(")")


def test_a_tool_reads_as_one_line() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "head": {"type": "integer", "default": 10, "description": "first N  lines"},
            "mode": {"enum": ["a", "b"]},
            "opts": {
                "type": "object",
                "properties": {
                    "deep": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["deep"],
            },
        },
        "required": ["path", "mode"],
    }
    assert signature(schema) == (
        '(path: string, head?: integer=10 "first N lines", mode: "a"|"b", opts?: {deep: boolean, tags?: string[]})'
    )


@each_case(
    ("schema", "expected"),
    [
        pytest.param({"type": "string"}, "p: string", id="text"),
        pytest.param({}, "p: any", id="no constraint"),
        pytest.param(True, "p: any", id="true"),
        pytest.param(False, "p: never", id="false"),
        pytest.param({"type": ["string", "null"]}, "p: string|null", id="list of types"),
        pytest.param({"const": "x"}, 'p: "x"', id="constant"),
        pytest.param(
            {"type": "string", "enum": ["a b", 1, None, 'q"']}, 'p: "a b"|1|null|"q\\""', id="choices"
        ),
        pytest.param({"type": "integer", "minimum": 1, "maximum": 9}, "p: integer(1..9)", id="bounds"),
        pytest.param({"type": "number", "exclusiveMinimum": 0}, "p: number(>0)", id="open bound"),
        pytest.param(
            {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}, "p: integer", id="no bounds"
        ),
        pytest.param(
            {"type": "integer", "maximum": 10**30}, f"p: integer(<={10**30})", id="a number beyond 64 bits"
        ),
        pytest.param({"type": "string", "format": "uri"}, "p: string(uri)", id="format"),
        pytest.param({"type": "array"}, "p: any[]", id="array"),
        pytest.param(
            {"type": "array", "items": {"enum": ["a", "b"]}}, 'p: ("a"|"b")[]', id="array of choices"
        ),
        pytest.param(
            {"prefixItems": [{"type": "string"}, {}], "items": False}, "p: [string, any]", id="tuple"
        ),
        pytest.param({"items": [{"type": "string"}], "type": "array"}, "p: [string]", id="old tuple"),
        pytest.param({"type": "object"}, "p: object", id="object"),
        pytest.param({"type": "object", "additionalProperties": False}, "p: {}", id="empty object"),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "integer"}}, "p: {[key]: integer}", id="map"
        ),
        pytest.param(
            {"type": "object", "propertyNames": {"enum": ["a", "b"]}},
            'p: {[key: "a"|"b"]: any}',
            id="map with known keys",
        ),
        pytest.param(
            {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
            "p: {[/^x/]: string}",
            id="pattern",
        ),
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "null"}}}]},
            "p: string|{a?: null}",
            id="either",
        ),
        pytest.param({"oneOf": [{"type": "string"}, {"type": "string"}]}, "p: string", id="the same twice"),
        pytest.param(
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a", "b"]}]},
            "p: {a?: string} & {a: any, b: any}",
            id="all of several",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "p: {a?: any} & ({a: any}|{b: any})",
            id="one or the other required",
        ),
        pytest.param(
            {"type": "object", "if": {"required": ["k"]}, "then": {"properties": {"a": {"type": "string"}}}},
            "p: {a?: string}",
            id="parameters of a case",
        ),
        pytest.param({"$ref": "https://example.org/s.json#/defs/Thing"}, "p: Thing", id="foreign reference"),
        pytest.param({"$ref": "#/$defs/Gone"}, "p: Gone", id="dangling reference"),
        pytest.param({"type": 5, "properties": [1], "required": "x", "enum": "y"}, "p: any", id="garbage"),
    ],
)
def test_each_kind_of_parameter_has_its_notation(schema: object, expected: str) -> None:
    assert parameter(schema) == expected


def test_items_of_an_object_are_shown_as_their_author_meant_them() -> None:
    assert parameter({"type": "object", "items": {"properties": {"tag": {"type": "string"}}}}) == (
        "p: object<{tag?: string}>"
    )


@each_case(
    ("schema", "expected"),
    [
        ({"type": "boolean", "default": False}, "p?: boolean=false"),
        ({"type": "string", "default": "x"}, 'p?: string="x"'),
        ({"type": "string", "default": None}, "p?: string"),
        ({"type": "string", "default": "x" * 50}, "p?: string"),
        ({"type": "string", "description": 'the "name"'}, "p?: string \"the 'name'\""),
        ({"type": "string", "description": "  "}, "p?: string"),
        ({"type": "string", "description": 7}, "p?: string"),
    ],
)
def test_defaults_and_docs_follow_the_type(schema: object, expected: str) -> None:
    assert parameter(schema, required=False) == expected


@each_case("schema", [None, True, 7, "x", [], {}, {"type": "object"}, {"properties": {}}])
def test_no_parameters_read_as_empty_brackets(schema: object) -> None:
    assert signature(schema) == "()"


def test_names_that_could_be_read_as_notation_are_quoted() -> None:
    schema: Any = {"properties": {"a-b.c": {}, "a b": {}, "": {}, "x?": {}, "line\nbreak": {}}}
    assert signature(schema) == '(a-b.c?: any, "a b"?: any, ""?: any, "x?"?: any, "line\\nbreak"?: any)'


@each_case(
    ("doc_chars", "expected"), [(0, "(a?: any)"), (6, '(a?: any "one…")'), (99, '(a?: any "one two three")')]
)
def test_docs_are_as_long_as_asked_for(doc_chars: int, expected: str) -> None:
    assert signature({"properties": {"a": {"description": "one two three"}}}, doc_chars) == expected


def test_recursion_is_cut_with_the_name_of_the_definition() -> None:
    assert signature(TREE) == "(root: Node{value: integer, kids?: Node[]})"


def test_a_schema_that_is_its_own_definition_is_cut_as_well() -> None:
    assert signature({"type": "object", "properties": {"sub": {"$ref": "#"}}}) == "(sub?: self{sub?: self})"
    assert signature({"$ref": "#"}) == "(self<self>)"


def test_a_definition_used_twice_is_written_once() -> None:
    point = {
        "type": "object",
        "properties": {"latitude": {"type": "number"}, "longitude": {"type": "number"}},
    }
    schema = {
        "properties": {"start": {"$ref": "#/$defs/Point"}, "end": {"$ref": "#/$defs/Point"}},
        "$defs": {"Point": point},
    }
    assert signature(schema) == "(start?: Point{latitude?: number, longitude?: number}, end?: Point)"


def test_a_short_or_single_definition_is_written_in_place() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/S"}, "b": {"$ref": "#/$defs/S"}, "c": {"$ref": "#/$defs/Long"}},
        "$defs": {"S": {"enum": ["x", "y"]}, "Long": {"enum": ["a long choice", "another long choice"]}},
    }
    assert signature(schema) == '(a?: "x"|"y", b?: "x"|"y", c?: "a long choice"|"another long choice")'


def test_two_definitions_of_one_name_are_told_apart() -> None:
    def node(ref: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"next": {"$ref": ref}}}

    schema = {
        "properties": {"a": {"$ref": "#/$defs/Node"}, "b": {"$ref": "#/definitions/Node"}},
        "$defs": {"Node": node("#/$defs/Node")},
        "definitions": {"Node": node("#/definitions/Node")},
    }
    assert signature(schema) == "(a?: Node{next?: Node}, b?: Node2{next?: Node2})"


def test_a_line_grows_with_the_schema_and_not_with_the_paths_through_it() -> None:
    def fork(level: int) -> dict[str, Any]:
        below = {"$ref": f"#/$defs/Level{level + 1}"}
        return {"type": "object", "properties": {"left": below, "right": below}}

    definitions = {f"Level{level}": fork(level) for level in range(1, 18)}
    schema = {**fork(0), "$defs": {**definitions, "Level18": {"enum": ["the bottom of it all"]}}}
    line = signature(schema)
    assert "the bottom of it all" in line
    assert len(line) < len(json.dumps(schema))


def test_nesting_without_end_is_cut() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "array", "items": schema}
    assert signature(schema).startswith("(any[]")


names = st.uuids().map(lambda unique: f"n{unique.hex[:10]}")
choices = st.lists(st.one_of(st.text(max_size=8), st.integers(), st.booleans()), min_size=1, max_size=3)


def shapes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(names, st.tuples(inner, st.booleans()), min_size=1, max_size=3)
    return st.one_of(
        fields.map(
            lambda found: {
                "type": "object",
                "properties": {name: schema for name, (schema, _) in found.items()},
                "required": [name for name, (_, required) in found.items() if required],
            }
        ),
        inner.map(lambda schema: {"type": "array", "items": schema}),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
        inner.map(lambda schema: {"type": "object", "additionalProperties": schema}),
    )


leaves = st.sampled_from(["string", "integer", "number", "boolean"]).map(
    lambda kind: {"type": kind}
) | choices.map(lambda values: {"enum": values})


def told(schema: Any) -> list[str]:
    """What a signature has to contain: names with their mark, types of leaves, choices."""
    found = [
        json.dumps(value, ensure_ascii=False)
        for value in schema.get("enum", [])
        if not isinstance(value, str)
    ]
    found += [schema["type"]] if set(schema) == {"type"} else []
    for name, value in schema.get("properties", {}).items():
        found.append(f"{name}: " if name in schema["required"] else f"{name}?: ")
        found += told(value)
    for part in [*schema.get("anyOf", []), schema.get("items"), schema.get("additionalProperties")]:
        found += told(part) if part else []
    return found


@given(st.recursive(leaves, shapes, max_leaves=12), st.integers(0, 40))
def test_every_name_type_choice_and_required_mark_is_kept(schema: Any, doc_chars: int) -> None:
    line = signature({"type": "object", "properties": {"top": schema}, "required": ["top"]}, doc_chars)
    assert "\n" not in line
    for part in ["top: ", *told(schema)]:
        assert part in line


@given(choices)
def test_every_choice_reads_as_json(values: list[Any]) -> None:
    line = parameter({"enum": values})
    decoder = json.JSONDecoder()
    read, rest = [], line.removeprefix("p: ")
    while rest:
        value, end = decoder.raw_decode(rest)
        read.append(value)
        rest = rest[end:].removeprefix("|")
    assert {json.dumps(value) for value in read} == {json.dumps(value) for value in values}


def objects(depth: int, width: int) -> dict[str, Any]:
    """An object of `width` members, nested `depth` levels deep."""
    inner = objects(depth - 1, width) if depth > 1 else {"type": "integer", "minimum": 0, "default": 3}
    return {"type": "object", "properties": {f"member_{number}": inner for number in range(width)}}


@each_case(
    ("schema", "expected"),
    [
        (
            {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]},
            "{id: integer}",
        ),
        (
            {"type": "object", "properties": {"note": {"type": "string", "description": "Long."}}},
            "{note?: string}",
        ),
        (
            {"type": "object", "properties": {"result": {"type": "array", "items": {"type": "string"}}}},
            "string[]",
        ),
        (
            {
                "type": "object",
                "properties": {"result": {"$ref": "#/$defs/User"}},
                "$defs": {"User": {"type": "object", "properties": {"name": {"type": "string"}}}},
            },
            "{name?: string}",
        ),
        ({"type": "object"}, ""),
        (True, ""),
        (None, ""),
        (objects(2, 1), "{member_0?: {member_0?: integer}}"),
        (objects(3, 3), "{member_0?: {…}, member_1?: {…}, member_2?: {…}}"),
        (objects(2, 12), "{" + ", ".join(f"member_{number}" for number in range(12)) + "}"),
        (objects(1, 400), ""),
    ],
)
def test_a_result_type_is_as_complete_as_fits(schema: object, expected: str) -> None:
    assert result_type(schema) == expected
    assert estimate(result_type(schema)) <= RESULT_TOKENS
