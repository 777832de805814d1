"""Stubs of tools: names, types, and nothing of a server's text in what is checked."""

from __future__ import annotations

import ast
import gzip
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data import CATALOGS
from bench.program_checks import Checker, random_calls
from switchboard_mcp.programs.checking import names, stubs
from switchboard_mcp.programs.checking.stubs import ProgramTool
from tests.cases import each_case

EVERYTHING = type("Everything", (frozenset,), {"__contains__": lambda *_: True})()


def checked(*tools: ProgramTool) -> stubs.StubModule:
    return stubs.checked("m", "m", tools, EVERYTHING)


def argument(schema: object, **more: object) -> str:
    """The type of an argument `a`, with the records it needs in front."""
    tool = ProgramTool("f", {"type": "object", "properties": {"a": schema}, "required": ["a"], **more})
    module = checked(tool)
    records = "; ".join(one.text.replace("\n    ", " ") for one in module.records.values())
    text = module.functions["f"].text
    inner = text.partition("a: ")[2].rpartition(") ->")[0]
    return f"{records}; {inner}".lstrip("; ").replace("_b.", "").replace("_t.", "").replace("_x.", "")


@each_case(
    ("name", "expected"),
    [
        ("list_issues", "list_issues"),
        ("list-issues", "list_issues"),
        ("_hidden", "hidden"),
        ("3d", "n3d"),
        ("class", "class_"),
        ("a b/c.d", "a_b_c_d"),
        ("", "unnamed"),
        ("---", "unnamed"),
        ("列出", "列出"),
        ("ｏｓ", "os"),  # as Python reads it
        ("x²", "x2"),
        ('f"): pass\nimport os #', "f____pass_import_os__"),
    ],
)
def test_a_name_becomes_an_identifier(name: str, expected: str) -> None:
    assert names.python_name(name) == expected


def test_names_that_clash_are_numbered_and_identifiers_keep_theirs() -> None:
    table = names.python_names(["a-b", "a.b", "a_b", "a b"])
    assert table == {"a-b": "a_b_2", "a.b": "a_b_3", "a_b": "a_b", "a b": "a_b_4"}


def test_modules_do_not_clash_with_those_of_the_interpreter() -> None:
    table = names.module_names(["time", "time_suite", "github", "switchboard", "typing"])
    assert table["github"] == "github"
    assert table["time_suite"] == "time_suite"
    assert table["time"] == "time_suite_2"
    assert not {*table.values()} & names.RESERVED_MODULES
    assert len({*table.values()}) == len(table)


@each_case(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"enum": ["a", 1, None, True]}, "Literal['a', 1, None, True]"),
        ({"enum": [1.5, 2.5]}, "float"),
        ({"const": {"a": 1}}, "Any"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "array", "items": {"type": "number"}}, "Sequence[float]"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "list[str | int]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "Mapping[str, float]"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "str | int"),
        ({"properties": {"x": {"type": "string"}}}, "class FA(TypedDict): x: NotRequired[str]; FA"),
        (
            {"properties": {"x-y": {}}, "required": ["x-y"], "additionalProperties": {"type": "integer"}},
            "FA = TypedDict(\"FA\", {'x-y': Any}, extra_items=int); FA",
        ),
        (
            {"properties": {"x": {"type": "string"}}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
            "class FA(TypedDict): x: str; class FA_2(TypedDict): x: NotRequired[str] y: Any; FA | FA_2",
        ),
        (
            {"allOf": [{"properties": {"x": {"type": "string"}}}, {"required": ["x"]}]},
            "class FA(TypedDict): x: str; FA",
        ),
        ({"$ref": "#/$defs/Loop"}, "class Loop(TypedDict): next: NotRequired[Loop]; Loop"),
        ({"$ref": "#/$defs/Tree"}, "str | list[Any]"),
        ({"$ref": "elsewhere.json"}, "Any"),
        (True, "Any"),
        ({"type": "teapot"}, "Any"),
    ],
)
def test_a_schema_becomes_a_type(schema: object, expected: str) -> None:
    defs = {
        "Loop": {"properties": {"next": {"$ref": "#/$defs/Loop"}}},
        "Tree": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Tree"}}]},
    }
    assert argument(schema, **{"$defs": defs}) == expected


def test_parameters_are_renamed_and_translated_back() -> None:
    properties = {"class": {"type": "string"}, "X-Y": {"type": "integer"}, "from": {}}
    tool = ProgramTool("f", {"properties": properties, "required": ["X-Y"]})
    function = checked(tool).functions["f"]
    assert function.parameters == {"class_": "class", "X_Y": "X-Y", "from_": "from"}
    assert function.required == {"X_Y"}
    assert function.text.startswith("async def f(*, X_Y: _b.int, class_: _b.str = ..., from_: _t.Any = ...)")


def test_only_what_a_program_mentions_is_written() -> None:
    result = {"properties": {"id": {"type": "integer"}}}
    tools = [ProgramTool(f"tool-{number}", None, result) for number in range(500)]
    code = "import m\nawait m.tool_7()\nawait m.ｔool_8()"  # as Python reads it
    module = stubs.checked("m", "m", tools, stubs.mentioned(code))
    assert list(module.functions) == ["tool_7", "tool_8"]
    assert module.text().count("class ") == 1  # equal records are written once


def test_a_tool_named_like_a_type_switches_nothing_off() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    tools = [ProgramTool(name, schema) for name in ("list", "str", "Any", "type", "f")]
    with Checker() as checker:
        found = checker.diagnostics("import m\nawait m.f(a=[1])\nawait m.list(a=['x'])", [checked(*tools)])
    assert [(one.line, one.code) for one in found] == [(2, "invalid-argument-type")]


@each_case(
    "schema",
    [
        {"properties": {f"p{n}": {"properties": {f"q{m}": {} for m in range(90)}} for n in range(90)}},
        {"properties": {"a": {"$ref": "#"}, "b": {"anyOf": [{"$ref": "#"}] * 30}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}] * 3},
        {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}] * 8}}},
        {"properties": [], "required": {}, "type": 7, "allOf": 3, "anyOf": {}},
        {"properties": {"a": {"enum": ["x" * 100_000] * 3}}},
        {"properties": {"a": {"enum": list(range(100_000))}}},
    ],
)
def test_an_excessive_schema_is_written_with_less(schema: object) -> None:
    module = checked(ProgramTool("f", schema, schema))
    ast.parse(module.text())
    assert len(module.text()) < 400_000


def test_deep_schemas_do_not_exhaust_the_stack() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"properties": {"a": schema}, "allOf": [schema]}
    ast.parse(checked(ProgramTool("f", schema, schema)).text())


HOSTILE = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                '"""',
                "a\nimport os",
                "x: int = 0",
                "'",
                '"',
                "\\",
                "\ud800",
                "\u2028",
                "_b",
                "_t",
                "__class__",
            ),
            *(
                "None",
                "class",
                "list",
                "ﬁ",
                "a b",
                "m",
                "f",
                "extra",
                "\x00",
                "ª",
                "TypedDict",
                "1",
                "é",
                "e\u0301",
            ),
        ]
    ),
)
HOSTILES = st.lists(HOSTILE, max_size=3)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(HOSTILE, st.dictionaries(HOSTILE, HOSTILE, max_size=4), st.lists(HOSTILE, max_size=3)),
        max_size=4,
    )
)
def test_hostile_names_keys_and_values_give_only_functions_records_and_imports(
    tools: list[tuple[str, dict[str, str], list[str]]],
) -> None:
    listed = []
    for name, keys, values in tools:
        inner = {key: {"type": "string", "description": text} for key, text in keys.items()}
        schema = {
            "properties": {**inner, "o": {"properties": inner}, "e": {"enum": values}},
            "required": [*keys],
        }
        listed.append(ProgramTool(name, schema, {"properties": inner}, "\n".join(values)))
    module = checked(*listed)
    tree = ast.parse(module.text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert all(isinstance(one, ast.AnnAssign | ast.Pass) for one in node.body)
        elif isinstance(node, ast.AsyncFunctionDef):
            assert ast.unparse(node.body[0]) == "..."
        else:
            assert isinstance(node, ast.Import) or ast.unparse(node).partition(" = ")[2].startswith(
                "_x.TypedDict("
            )
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.AsyncFunctionDef)]
    assert len({*defined}) == len(defined)
    assert len(module.functions) == len({name for name, _, _ in tools})
    stubs.shown("m", "m", listed).text()


def test_texts_for_models_have_short_descriptions() -> None:
    schema = {
        "properties": {
            "state": {
                "enum": ["open", "closed"],
                "description": "Filter the whole list\nby its state. " + "x" * 90,
            },
            "repo": {"type": "string"},
        },
        "required": ["repo"],
    }
    result = {
        "properties": {"result": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}}}
    }
    tool = ProgramTool("list_issues", schema, result, 'Lists issues. """ \\ More.', seen=3)
    text = stubs.shown("github", "github", [tool]).text()
    assert text == (
        "class ListIssuesResultItem(TypedDict):\n    n: NotRequired[int]\n"
        'async def list_issues(*, repo: str, state: Literal["open", "closed"] = ...) -> list[ListIssuesResultItem]:\n'
        "    \"\"\"Lists issues. ''' / More.\n    state: Filter the whole list by its state. …\n"
        '    Type of the result: seen 3 times."""\n'
    )
    short = stubs.shown("github", "github", [tool], with_docs=False).text()
    assert short.endswith(": ...  # result seen 3 times\n")


@pytest.fixture(scope="module")
def catalogs() -> list[dict[str, Any]]:
    if not CATALOGS.exists():
        pytest.skip("the catalogs are not here; see bench/data.py")
    servers: list[dict[str, Any]] = json.loads(gzip.decompress(CATALOGS.read_bytes()))["servers"]
    return servers


def test_valid_random_calls_of_published_tools_are_accepted(catalogs: list[dict[str, Any]]) -> None:
    rng = random.Random(5)
    with Checker() as checker:
        for server in rng.sample(catalogs, 4):
            listed = rng.sample(server["tools"], min(8, len(server["tools"])))
            found = random_calls(checker, listed, rng, 2)
            assert not found.refused
