from __future__ import annotations

import msgspec

from switchboard_mcp.cli.commands.call import (
    CallProgress,
    ambiguous_values,
    read_arguments,
    values_typed_string,
)
from switchboard_mcp.cli.local_client import Progress, ToolResult
from switchboard_mcp.errors import Failure
from tests.cases import each_case


def read(*words: str, stdin: bytes = b"") -> object:
    found = read_arguments(words, lambda: stdin)
    return found if isinstance(found, Failure) else msgspec.json.decode(msgspec.json.encode(found))


@each_case(
    ("words", "expected"),
    [
        ((), {}),
        (("a=1",), {"a": 1}),
        (("a=text with spaces",), {"a": "text with spaces"}),
        (("a=",), {"a": ""}),
        (("a=b=c",), {"a": "b=c"}),
        (('a="1"',), {"a": "1"}),
        (
            ("a=[1,2]", "b=null", "c=true", 'd={"e":1.5}'),
            {"a": [1, 2], "b": None, "c": True, "d": {"e": 1.5}},
        ),
        (("a=007",), {"a": "007"}),
        (("a={not json",), {"a": "{not json"}),
        (('{"a":1}',), {"a": 1}),
        ((' {"a":1}', "b=ü"), {"a": 1, "b": "ü"}),
        (("a=" + "[" * 10_000,), {"a": "[" * 10_000}),
    ],
)
def test_arguments_are_json_where_they_parse_and_text_where_not(
    words: tuple[str, ...], expected: dict[str, object]
) -> None:
    assert read(*words) == expected


def test_a_dash_reads_the_arguments_from_stdin() -> None:
    assert read("-", "b=2", stdin=b'{"a": "x"}') == {"a": "x", "b": 2}


def test_numbers_keep_their_digits() -> None:
    found = read_arguments(["a=1.00", "b=123456789012345678901234567890"], bytes)
    assert isinstance(found, dict)
    assert msgspec.json.encode(found) == b'{"a":1.00,"b":123456789012345678901234567890}'


@each_case(
    ("words", "expected"),
    [
        (("word",), "'word' is not an argument"),
        (("=1",), "is not an argument"),
        (("{",), "'{' is not a JSON object"),
        (("[1]",), "'[1]' is not an argument"),
        (("a=1", "a=2"), "'a' is given twice"),
        (("-",), "stdin is not a JSON object"),
        (("a=\udcff",), "is not UTF-8"),
    ],
)
def test_a_contradictory_option_is_refused_with_the_right_one(words: tuple[str, ...], expected: str) -> None:
    problem = read(*words)
    assert isinstance(problem, Failure)
    assert problem.code == "usage"
    assert expected in problem.message
    assert problem.hint


@each_case(
    ("schema", "is_text"),
    [
        ({"type": "string"}, True),
        ({"type": ["string", "null"]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, False),
        ({"type": "integer"}, False),
        ({}, False),
        (True, False),
    ],
)
def test_a_number_is_a_text_where_the_subtool_wants_a_text(schema: object, is_text: bool) -> None:
    doubtful = ambiguous_values(["zip=10115", "name=Ada", 'quoted="1"', '{"zip": 1}', "none=null"])
    assert doubtful == {"zip": "10115"}
    tools = {"tools": [{"inputSchema": {"properties": {"zip": schema}}}]}
    looked = ToolResult(content=[{"type": "text", "text": msgspec.json.encode(tools).decode()}])
    assert values_typed_string(doubtful, looked) == ({"zip": msgspec.Raw(b'"10115"')} if is_text else {})


@each_case("expected", ["no JSON", "{}", '{"tools": []}', '{"tools": [{"name": "x"}]}'])
def test_without_a_schema_a_number_is_a_number(expected: str) -> None:
    assert (
        values_typed_string({"zip": "10115"}, ToolResult(content=[{"type": "text", "text": expected}])) == {}
    )


def test_the_status_line_tells_how_far_it_is() -> None:
    status = CallProgress("mock slow")
    assert status.frame("*")[0].text == "* mock slow · 0 s"
    status.update(Progress(2, 4, "two\nof four"))
    assert status.frame("*")[0].text == "* mock slow · 2/4 · two of four · 0 s"
