from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator, validator_for

from switchboard_mcp.suites.schema_compaction import compact, pointer, resolve
from tests.cases import each_case

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"

# What real generators write, in small: one per kind of trouble.
SAMPLES: dict[str, dict[str, Any]] = {
    "model": {
        "$defs": {
            "Colour": {"enum": ["red", "green"], "title": "Colour", "type": "string"},
            "Point": {
                "title": "Point",
                "type": "object",
                "properties": {"x": {"title": "X", "type": "number"}, "y": {"type": "number", "default": 0}},
                "required": ["x"],
            },
            "Unused": {"type": "object", "properties": {"colour": {"$ref": "#/$defs/Colour"}}},
        },
        "type": "object",
        "title": "DrawArguments",
        "properties": {
            "start": {"$ref": "#/$defs/Point"},
            "end": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
            "colour": {"$ref": "#/$defs/Colour", "description": "Of the  line"},
            "label": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "title": "Label"},
            "size": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]},
            "mode": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
        },
        "required": ["start"],
    },
    "closed": {
        "$schema": DRAFT_07,
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1},
            "description": {"type": "object", "additionalProperties": {}, "required": []},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
        },
        "required": ["title"],
        "additionalProperties": False,
    },
    "tree": {
        "$ref": "#/definitions/Node",
        "definitions": {
            "Node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
                },
                "required": ["value"],
                "additionalProperties": True,
            }
        },
    },
    "root by reference": {
        "$schema": DRAFT_07,
        "$ref": "#/definitions/Only",
        "definitions": {"Only": {"type": "object", "required": ["a"], "properties": {"a": {"const": 1}}}},
    },
    "root recursion": {
        "type": "object",
        "properties": {"and": {"type": "array", "items": {"$ref": "#"}}, "not": {"$ref": "#"}},
        "additionalProperties": {"type": "integer", "title": "Leaf"},
    },
    "by path": {
        "type": "object",
        "properties": {
            "one": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "two": {"$ref": "#/properties/one/anyOf/0"},
            "map": {"type": "object", "additionalProperties": {}},
            "any": {"$ref": "#/properties/map/additionalProperties"},
        },
    },
    "into a definition": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A/properties/inner"}},
        "$defs": {"A": {"type": "object", "properties": {"inner": {"type": "boolean"}}}},
    },
    "old tuple": {
        "$schema": DRAFT_07,
        "type": "array",
        "items": [{"type": "integer"}, {"type": "string"}],
        "additionalItems": False,
    },
    "old reference with siblings": {
        "$schema": DRAFT_07,
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/Text", "maxLength": 1}},
        "definitions": {"Text": {"type": "string"}},
    },
    "unevaluated": {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "integer"}}, "additionalProperties": True}],
        "unevaluatedProperties": False,
    },
    "named": {
        "type": "object",
        "properties": {"a": {"$ref": "#thing"}, "b": {"$ref": "#/$defs/Other"}},
        "$defs": {"Thing": {"$anchor": "thing", "type": "integer"}, "Other": {"type": "string"}},
    },
    "definitions of its own kind": {
        "type": "object",
        "properties": {"a": {"$ref": "#/x-shared/Thing"}},
        "x-shared": {"Thing": {"$ref": "#/$defs/Text", "title": "Thing"}},
        "$defs": {"Text": {"type": "string", "maxLength": 1}},
    },
    "conditions": {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "a": {}, "b": True, "c": False},
        "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
        "then": {"required": ["a"]},
        "else": {"not": {"required": ["b"]}},
        "oneOf": [{"required": ["kind"]}, {"required": ["a"]}],
        "dependentRequired": {"a": ["kind"]},
        "patternProperties": {"^x": {"type": "integer", "title": "X"}},
        "propertyNames": {"maxLength": 4},
    },
}

JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -2,
    2.5,
    "",
    "a",
    "red",
    "abcd",
    [],
    [1],
    ["a", "a"],
    {},
    {"a": 1},
    {"x": None},
]


def instances(root: Any, node: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values near what the schema wants: some right, some wrong."""
    junk = st.sampled_from(JUNK)
    if not isinstance(node, dict) or depth > 5:
        return junk
    path = pointer(node.get("$ref"))
    if path is not None:
        return instances(root, resolve(root, path), depth + 1)
    if "const" in node or "enum" in node:
        return st.sampled_from(node.get("enum") or [node["const"]]) | junk
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in node and "properties" not in node:
            return st.one_of(*(instances(root, branch, depth + 1) for branch in node[keyword]), junk)
    kind = node.get("type")
    if kind == "object" or "properties" in node:
        fields = {
            name: instances(root, value, depth + 1) for name, value in node.get("properties", {}).items()
        }
        extra = {"extra": junk, "x1": junk}
        needed = {name: fields.pop(name) for name in node.get("required", []) if name in fields}
        return st.fixed_dictionaries(needed, optional={**fields, **extra}) | junk
    if kind == "array":
        items = node.get("items")
        kinds = items if isinstance(items, list) else [items]
        return st.lists(st.one_of(*(instances(root, item, depth + 1) for item in kinds)), max_size=3) | junk
    return junk


def verdict(schema: Any, instance: Any) -> bool:
    return bool(validator_for(schema, default=Draft202012Validator)(schema).is_valid(instance))


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_compacted_schema_accepts_the_same_values(name: str, data: st.DataObject) -> None:
    schema = SAMPLES[name]
    instance = data.draw(instances(schema, schema))
    assert verdict(compact(schema), instance) == verdict(schema, instance)


leaves = st.sampled_from(
    [
        True,
        False,
        {},
        {"type": "string", "title": "T"},
        {"type": "integer", "minimum": 1},
        {"type": "null"},
        {"enum": ["a", 1, None]},
        {"const": 1, "title": "One"},
        {"$ref": "#/$defs/A"},
        {"$ref": "#/$defs/B", "description": "here"},
        {"$ref": "#/definitions/C", "minimum": 2},
    ]
)


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(["a", "title", "$ref", "x"]), inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", ["object", "null"]]),
            "properties": named,
            "required": st.lists(st.sampled_from(["a", "title"]), max_size=1),
            "additionalProperties": inner,
            "items": inner,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "title": st.just("T"),
            "examples": st.just([1, 2]),
            "default": st.just({"$ref": "#/$defs/A"}),
            "$comment": st.just("c"),
            "x-unknown": inner,
        },
    )


schemas = st.recursive(leaves, combined, max_leaves=8)
values = st.recursive(
    st.sampled_from([None, True, 1, 2, 2.5, "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "title", "$ref", "x", "z"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def settles(root: Any, node: Any, above: tuple[int, ...] = ()) -> bool:
    """Whether a schema does not lead back to itself without going deeper into the value."""
    if not isinstance(node, dict):
        return True
    if id(node) in above:
        return False
    parts = [*node.get("anyOf", []), *node.get("oneOf", []), *node.get("allOf", [])]
    parts += [node[keyword] for keyword in ("not", "if", "then") if keyword in node]
    if isinstance(node.get("$ref"), str):
        parts.append(resolve(root, pointer(node["$ref"]) or ()))
    return all(settles(root, part, (*above, id(node))) for part in parts)


def every_schema(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            maps = key in ("properties", "$defs", "definitions") and isinstance(value, dict)
            for part in value.values() if maps else value if isinstance(value, list) else [value]:
                yield from every_schema(part)


@given(schemas, schemas, schemas, schemas, values)
@settings(max_examples=50, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_any_schema_accepts_the_same_values_when_compacted(
    root: Any, a: Any, b: Any, c: Any, instance: Any
) -> None:
    assume(isinstance(root, dict))
    schema = {**root, "$defs": {"A": a, "B": b, "Unused": b}, "definitions": {"C": c}}
    assume(all(settles(schema, part) for part in every_schema(schema)))
    before = copy.deepcopy(schema)
    small = compact(schema)
    assert schema == before
    assert verdict(small, instance) == verdict(schema, instance)
    assert len(json.dumps(small)) <= len(json.dumps(schema))
    assert compact(copy.deepcopy(schema)) == small


@each_case(
    ("schema", "expected"),
    [
        pytest.param(
            {"$schema": DRAFT_2020, "title": "T", "$comment": "c", "type": "object", "required": []},
            {"type": "object"},
            id="annotations without content go",
        ),
        pytest.param(
            {"properties": {"title": {"type": "string", "title": "Title"}, "$comment": {"type": "string"}}},
            {"properties": {"title": {"type": "string"}, "$comment": {"type": "string"}}},
            id="a parameter may be called like a keyword",
        ),
        pytest.param(
            {"type": "object", "default": {"title": "x"}, "enum": [{"title": "y", "required": []}]},
            {"type": "object", "default": {"title": "x"}, "enum": [{"title": "y", "required": []}]},
            id="values are no schemas",
        ),
        pytest.param(
            {
                "type": "string",
                "description": " two\n  lines ",
                "format": "uri",
                "maxLength": 9,
                "default": "",
            },
            {"type": "string", "description": "two lines", "format": "uri", "maxLength": 9, "default": ""},
            id="descriptions on one line, the rest untouched",
        ),
        pytest.param({"type": "object", "description": "  "}, {"type": "object"}, id="empty description"),
        pytest.param({"additionalProperties": True, "type": "object"}, {"type": "object"}, id="open by true"),
        pytest.param({"additionalProperties": {}, "type": "object"}, {"type": "object"}, id="open by {}"),
        pytest.param(
            {"additionalProperties": False}, {"additionalProperties": False}, id="closed stays closed"
        ),
        pytest.param(
            {"oneOf": [{"const": 1, "title": "Low"}]}, {"oneOf": [{"const": 1, "title": "Low"}]}, id="label"
        ),
        pytest.param(
            {"type": "string", "examples": ["a", "b"]},
            {"type": "string", "examples": ["a"]},
            id="one example",
        ),
        pytest.param({"enum": ["a"], "examples": ["a"]}, {"enum": ["a"]}, id="no example beside an enum"),
        pytest.param({"deprecated": False, "uniqueItems": False}, {}, id="false that says nothing"),
        pytest.param(
            {"deprecated": True, "x-order": 1}, {"deprecated": True, "x-order": 1}, id="true and unknown stay"
        ),
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            {"type": ["string", "null"], "default": None},
            id="optional",
        ),
        pytest.param(
            {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]},
            {"enum": ["a", None], "type": ["string", "null"]},
            id="optional choice",
        ),
        pytest.param(
            {"anyOf": [{"type": "string", "description": "a"}, {"type": "null"}], "description": "b"},
            {"anyOf": [{"type": "string", "description": "a"}, {"type": "null"}], "description": "b"},
            id="no description is lost",
        ),
        pytest.param(
            {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}, "B": {}}},
            {"properties": {"a": {"type": "string"}}},
            id="used once is written in place, unused goes",
        ),
        pytest.param(
            {
                "properties": {"a": {"$ref": "#/$defs/A", "description": "x"}},
                "$defs": {"A": {"description": "y"}},
            },
            {"properties": {"a": {"description": "x y"}}},
            id="both descriptions are kept",
        ),
        pytest.param(
            {
                "items": {"$ref": "#/$defs/A"},
                "not": {"$ref": "#/$defs/A"},
                "$defs": {"A": {"title": "A", "const": 1}},
            },
            {
                "items": {"$ref": "#/$defs/A"},
                "not": {"$ref": "#/$defs/A"},
                "$defs": {"A": {"const": 1, "title": "A"}},
            },
            id="used twice stays",
        ),
        pytest.param(
            {"items": {"$ref": "#/$defs/a~1b%20c"}, "$defs": {"a/b c": {"type": "string"}}},
            {"items": {"type": "string"}},
            id="escaped reference",
        ),
        pytest.param({"$ref": "#/$defs/gone"}, {"$ref": "#/$defs/gone"}, id="dangling reference"),
        pytest.param(
            {"$schema": DRAFT_07, "items": [{"type": "string"}]},
            {"$schema": DRAFT_07, "items": [{"type": "string"}]},
            id="the draft stays where it matters",
        ),
        pytest.param(
            {"$schema": DRAFT_07, "type": "object"}, {"type": "object"}, id="and goes where it does not"
        ),
        pytest.param(True, True, id="true"),
        pytest.param(False, False, id="false"),
        pytest.param([{"title": "x"}], [{"title": "x"}], id="a list"),
        pytest.param("text", "text", id="a text"),
        pytest.param(None, None, id="nothing"),
        pytest.param(
            {"type": 5, "properties": [1], "required": "x", "anyOf": {"a": 1}, "items": 7, "$ref": 9},
            {"type": 5, "properties": [1], "required": "x", "anyOf": {"a": 1}, "items": 7, "$ref": 9},
            id="garbage",
        ),
    ],
)
def test_empty_parts_are_removed_and_the_rest_stays(schema: object, expected: object) -> None:
    assert compact(schema) == expected


def test_a_recursive_definition_stays_a_reference() -> None:
    assert compact(SAMPLES["tree"]) == {
        "$ref": "#/definitions/Node",
        "definitions": {
            "Node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
                },
                "required": ["value"],
            }
        },
    }


def test_a_schema_nested_beyond_reason_keeps_its_depth() -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/A", "title": "kept below the limit"}
    for _ in range(400):
        schema = {"items": schema}
    schema["$defs"] = {"A": {"type": "string"}}
    small: Any = compact(schema)
    assert small["$defs"] == {"A": {"type": "string"}}
    depth = 0
    while "items" in small:
        small, depth = small["items"], depth + 1
    assert depth == 400
    assert small["$ref"] == "#/$defs/A"


def test_a_long_chain_of_definitions_is_written_out_in_bounded_steps() -> None:
    links = {
        f"D{i}": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/D{i + 1}"}}} for i in range(300)
    }
    small: Any = compact({"$ref": "#/$defs/D0", "$defs": {**links, "D300": {"type": "string"}}})
    links_found = 0
    node: Any = small
    while node != {"type": "string"}:
        if "$ref" in node:
            node = resolve(small, pointer(node["$ref"]) or ())
        else:
            node, links_found = node["properties"]["next"], links_found + 1
    assert links_found == 300


@each_case(
    ("ref", "path"),
    [
        ("#", ()),
        ("#/$defs/A", ("$defs", "A")),
        ("#/a~1b/c~0d", ("a/b", "c~d")),
        ("#/a%20b", ("a b",)),
        ("#anchor", None),
        ("other.json#/a", None),
        ("", None),
        (7, None),
    ],
)
def test_a_local_reference_is_read_as_steps(ref: object, path: tuple[str, ...] | None) -> None:
    assert pointer(ref) == path
