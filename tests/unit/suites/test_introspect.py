from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from switchboard_mcp.errors import Failure
from switchboard_mcp.suites import introspect
from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.suites.introspect import (
    PAGE_TOKENS,
    VERBOSITIES,
    IntrospectRequest,
    IntrospectSettings,
    answer,
)
from switchboard_mcp.suites.token_estimate import estimate
from tests.cases import each_case

SENT = b'{ "$schema": "x",  "type":"object", "title":"T", "properties":{"secret_path":{"type":"string"}} }'


def tool(number: int, parameters: int = 2, words: int = 12) -> ToolView:
    properties = {
        f"parameter_{index}": {
            "type": "string",
            "title": "T",
            "description": f"What number {index} is good for in this call",
        }
        for index in range(parameters)
    }
    schema = {"type": "object", "title": "Arguments", "properties": properties, "required": ["parameter_0"]}
    text = " ".join(["Does", "one", "thing", "well"] * (words // 4))
    return ToolView(f"tool_number_{number}", f"{text}. Then more.", Raw(msgspec.json.encode(schema)))


def tools(count: int, parameters: int = 2) -> list[ToolView]:
    return [tool(number, parameters) for number in range(count)]


def ask(
    views: Sequence[ToolView],
    request: IntrospectRequest | None = None,
    settings: IntrospectSettings | None = None,
    instructions: str = "",
) -> dict[str, Any]:
    got = answer(
        "demo", views, request or IntrospectRequest(), settings or IntrospectSettings(), instructions
    )
    assert isinstance(got, bytes), got
    read: dict[str, Any] = json.loads(got)
    return read


def written(got: dict[str, Any]) -> bytes:
    return json.dumps(got, ensure_ascii=False, separators=(",", ":")).encode()


def refusal(
    views: Sequence[ToolView], request: IntrospectRequest, settings: IntrospectSettings | None = None
) -> Failure:
    got = answer("demo", views, request, settings or IntrospectSettings())
    assert isinstance(got, Failure), got
    return got


def names(got: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in got["tools"]]


# What a budget buys


def test_a_small_suite_shows_compacted_schemas_and_summaries() -> None:
    got = ask(tools(2))
    assert got["detail"] == "summary"
    assert names(got) == ["tool_number_0", "tool_number_1"]
    assert got["tools"][0]["inputSchema"] == {
        "type": "object",
        "properties": {
            f"parameter_{index}": {
                "type": "string",
                "description": f"What number {index} is good for in this call",
            }
            for index in range(2)
        },
        "required": ["parameter_0"],
    }
    assert got["tools"][0]["summary"].startswith("Does one thing well")
    assert set(got) == {"tools", "detail"}


@each_case(
    ("count", "detail", "keys"),
    [
        (5, "summary", {"name", "summary", "inputSchema"}),
        (16, "signature", {"name", "summary", "signature"}),
        (50, "names", {"name", "summary"}),
        (120, "names", {"name"}),
    ],
)
def test_detail_falls_until_the_whole_answer_fits(count: int, detail: str, keys: set[str]) -> None:
    views = tools(count)
    got = answer("demo", views, IntrospectRequest(), IntrospectSettings())
    assert isinstance(got, bytes)
    assert estimate(got) <= 1200
    read = json.loads(got)
    assert got == written(read)
    assert read["detail"] == detail
    assert len(read["tools"]) == count
    assert "truncated" not in read
    assert all(set(entry) == keys for entry in read["tools"])


def test_less_than_schemas_says_how_to_ask_for_more() -> None:
    assert "subtool=NAME" in ask(tools(16))["more"]
    assert "subtool=NAME" in ask(tools(50))["more"]


def test_parameter_docs_shrink_before_signatures_go() -> None:
    budgets = range(2000, 200, -10)
    answers = [
        ask(tools(10, 3), settings=IntrospectSettings("signature", budget_tokens=budget))
        for budget in budgets
    ]
    lines = [got["tools"][0]["signature"] for got in answers if got["detail"] == "signature"]
    assert "What number 0 is good for in this call" in lines[0]
    assert lines[-1] == "(parameter_0: string, parameter_1?: string, parameter_2?: string)"
    assert len(set(lines)) == 3
    assert lines == sorted(lines, key=len, reverse=True)


def test_names_beyond_the_budget_come_in_pages() -> None:
    got = ask(tools(400))
    assert got["detail"] == "names"
    assert got["truncated"] is True
    assert got["total"] == 400
    assert "cursor" in got["more"]
    assert all("summary" in entry for entry in got["tools"])
    assert estimate(written(got)) <= 1200


def walk(
    views: Sequence[ToolView], request: IntrospectRequest, settings: IntrospectSettings
) -> list[dict[str, Any]]:
    pages = [ask(views, request, settings)]
    while "cursor" in pages[-1]:
        pages.append(ask(views, IntrospectRequest(cursor=pages[-1]["cursor"]), settings))
        assert len(pages) <= len(views)
    return pages


@each_case("verbosity", ["", *VERBOSITIES])
@each_case("mode", ["summary", "signature", "full", "redacted"])
def test_pages_show_every_tool_once_in_the_childs_order(mode: str, verbosity: str) -> None:
    views = tools(450, parameters=6)
    pages = walk(views, IntrospectRequest(verbosity=verbosity), IntrospectSettings(mode=mode))
    assert list(itertools.chain.from_iterable(map(names, pages))) == [view.name for view in views]
    assert len({page["detail"] for page in pages}) == 1
    assert all(len(page["tools"]) <= 200 for page in pages)
    assert all(page["total"] == 450 for page in pages[:-1])


def test_a_page_always_holds_a_tool() -> None:
    huge = [tool(number, parameters=4000) for number in range(3)]
    pages = walk(huge, IntrospectRequest(verbosity="full"), IntrospectSettings())
    assert [len(page["tools"]) for page in pages] == [1, 1, 1]
    assert len(ask(tools(3), settings=IntrospectSettings(budget_tokens=1))["tools"]) == 1


def test_a_forced_detail_is_cut_only_by_the_limits_of_a_page() -> None:
    views = tools(190, parameters=3)
    got = answer("demo", views, IntrospectRequest(verbosity="summary"), IntrospectSettings())
    assert isinstance(got, bytes)
    assert 1200 < estimate(got) <= PAGE_TOKENS
    assert len(ask(tools(150, 1), IntrospectRequest(verbosity="signature"))["tools"]) == 150
    assert len(ask(tools(300, 0), IntrospectRequest(verbosity="names"))["tools"]) == 200


@given(
    st.lists(
        st.builds(tool, st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 200)),
        min_size=2,
        max_size=40,
    ),
    st.integers(50, 3000),
    st.sampled_from(["summary", "signature", "redacted"]),
    st.text(max_size=3000),
)
def test_an_answer_with_more_than_one_tool_keeps_to_the_budget(
    views: list[ToolView], budget: int, mode: str, instructions: str
) -> None:
    got = answer(
        "demo", views, IntrospectRequest(), IntrospectSettings(mode=mode, budget_tokens=budget), instructions
    )
    assert isinstance(got, bytes)
    read = json.loads(got)
    assert estimate(got) <= budget or len(read["tools"]) == 1
    assert read.get("truncated", False) == (len(read["tools"]) < len(views))


@each_case("name", ["t", "ab", "a_b", "get_it"])
def test_many_small_tools_keep_to_the_budget_to_the_token(name: str) -> None:
    views = [ToolView(f"{name}{number}") for number in range(150)]
    for budget in range(400, 2400, 25):
        got = answer("demo", views, IntrospectRequest(), IntrospectSettings(budget_tokens=budget))
        assert isinstance(got, bytes)
        assert estimate(got) <= budget


# What was asked for


@each_case(
    ("verbosity", "keys"),
    [
        ("names", {"name", "summary"}),
        ("signature", {"name", "summary", "signature"}),
        ("summary", {"name", "summary", "inputSchema"}),
        ("full", {"name", "description", "inputSchema"}),
    ],
)
@each_case("count", [1, 150])
def test_verbosity_forces_the_detail(verbosity: str, keys: set[str], count: int) -> None:
    got = ask(tools(count), IntrospectRequest(verbosity=verbosity))
    assert got["detail"] == verbosity
    assert all(set(entry) == keys for entry in got["tools"])


def test_an_unknown_verbosity_is_refused_with_the_known_ones() -> None:
    refused = refusal(tools(1), IntrospectRequest(verbosity="loud"))
    assert refused.code == "bad_arguments"
    assert all(word in refused.message for word in ("demo", "loud", *VERBOSITIES))


def test_one_subtool_comes_in_full_exactly_as_the_child_sent_it() -> None:
    view = ToolView("read", "Long  description. " * 400, Raw(SENT))
    got = answer(
        "demo", [*tools(3), view], IntrospectRequest(subtool="read"), IntrospectSettings(), "Read this first."
    )
    assert isinstance(got, bytes)
    assert SENT in got
    read = json.loads(got)
    assert read["tools"][0]["description"] == view.description
    assert set(read) == {"tools", "detail"}


def test_an_unknown_subtool_is_refused_with_the_nearest_names() -> None:
    refused = refusal(tools(3), IntrospectRequest(subtool="toolNumber1"))
    assert refused.code == "subtool_unknown"
    assert refused.nearest
    assert refused.nearest[0] == "tool_number_1"
    assert (refused.child, refused.subtool) == ("demo", "toolNumber1")


def test_a_query_shows_what_matches_best_first() -> None:
    views = [
        ToolView("delete_file", "Remove a file."),
        ToolView("create_issue", "Open an issue in a repository."),
        ToolView("list_issues", "Show the issues of a repository."),
    ]
    got = ask(views, IntrospectRequest(query="create an issue"))
    assert names(got)[0] == "create_issue"
    assert "delete_file" not in names(got)


def test_a_query_keeps_to_the_same_budget() -> None:
    got = ask(tools(60), IntrospectRequest(query="thing"))
    assert got["detail"] == "names"
    assert len(got["tools"]) == 60


def test_a_query_without_a_match_says_so() -> None:
    got = ask(tools(3), IntrospectRequest(query="quantum"))
    assert got["tools"] == []
    assert "No tool matches" in got["more"]
    assert "3" in got["more"]


def test_a_cursor_carries_the_query() -> None:
    views = [*tools(300), ToolView("other", "Something else.")]
    first = ask(views, IntrospectRequest(query="thing well. done"), IntrospectSettings(budget_tokens=300))
    assert first["total"] == 300
    second = ask(views, IntrospectRequest(cursor=first["cursor"]), IntrospectSettings(budget_tokens=300))
    again = ask(
        views,
        IntrospectRequest(cursor=first["cursor"], query="thing well. done"),
        IntrospectSettings(budget_tokens=300),
    )
    assert not set(names(first)) & set(names(second))
    assert again == second


@each_case("cursor", ["x", "0.", "-1.0", "999.", "١.0", "5", "f5.nonsense", "n", ".", "9" * 5000 + ".x"])
def test_a_cursor_nobody_gave_is_refused(cursor: str) -> None:
    refused = refusal(tools(400), IntrospectRequest(cursor=cursor))
    assert refused.code == "cursor_invalid"
    assert refused.child == "demo"


def test_a_cursor_is_refused_once_the_tools_have_changed() -> None:
    cursor = ask(tools(400))["cursor"]
    assert refusal(tools(401), IntrospectRequest(cursor=cursor)).code == "cursor_invalid"


def test_a_cursor_of_another_query_is_refused() -> None:
    cursor = ask(tools(400), IntrospectRequest(query="thing"))["cursor"]
    assert refusal(tools(400), IntrospectRequest(cursor=cursor, query="well")).code == "cursor_invalid"


@given(st.text())
def test_any_cursor_gets_an_answer_or_a_refusal(cursor: str) -> None:
    got = answer("demo", tools(3), IntrospectRequest(cursor=cursor), IntrospectSettings())
    assert isinstance(got, bytes) == (cursor == "")


# Modes


def test_full_mode_shows_everything_as_the_child_sent_it() -> None:
    view = ToolView("read", "Two\n lines. " * 50, Raw(SENT))
    got = answer("demo", [view], IntrospectRequest(), IntrospectSettings(mode="full"))
    assert isinstance(got, bytes)
    assert SENT in got
    assert json.loads(got)["tools"][0]["description"] == view.description
    assert json.loads(got)["detail"] == "full"


def test_signature_mode_starts_at_signatures() -> None:
    got = ask(tools(1), settings=IntrospectSettings(mode="signature"))
    assert got["detail"] == "signature"
    assert ask(tools(60), settings=IntrospectSettings(mode="signature"))["detail"] == "names"


@each_case(
    "request_",
    [
        IntrospectRequest(),
        IntrospectRequest(subtool="read"),
        IntrospectRequest(query="reads"),
        *(IntrospectRequest(verbosity=verbosity) for verbosity in VERBOSITIES),
    ],
    ids=str,
)
def test_redacted_mode_never_shows_a_parameter(request_: IntrospectRequest) -> None:
    got = answer(
        "demo", [ToolView("read", "Reads it.", Raw(SENT))], request_, IntrospectSettings(mode="redacted")
    )
    assert isinstance(got, bytes)
    assert b"secret_path" not in got
    read = json.loads(got)
    assert read["tools"] == [{"name": "read", "summary": "Reads it."}]
    assert read["detail"] == "names"
    assert "not shown" in read["more"]


def test_a_cursor_of_a_fuller_answer_does_not_open_redacted_mode() -> None:
    views = [ToolView(f"t{number}", "Does it.", Raw(SENT)) for number in range(900)]
    cursor = ask(views, IntrospectRequest(verbosity="full"))["cursor"]
    got = answer("demo", views, IntrospectRequest(cursor=cursor), IntrospectSettings(mode="redacted"))
    assert isinstance(got, bytes)
    assert b"secret_path" not in got


@each_case("limit", [1, 20, 160])
@each_case("verbosity", ["", "names", "signature", "summary"])
def test_no_summary_is_longer_than_configured(limit: int, verbosity: str) -> None:
    got = ask(tools(4), IntrospectRequest(verbosity=verbosity), IntrospectSettings(summary_max_chars=limit))
    assert all(len(entry["summary"]) <= limit for entry in got["tools"])


# Instructions


def test_instructions_stand_on_the_first_page_alone() -> None:
    first = ask(tools(400), instructions="Always log in first.")
    assert first["instructions"] == "Always log in first."
    second = ask(tools(400), IntrospectRequest(cursor=first["cursor"]), instructions="Always log in first.")
    assert "instructions" not in second


def test_instructions_that_fit_are_whole_but_for_blank_lines() -> None:
    got = ask(tools(1), instructions="  First:\n\n\n- log   in\n- work\n")
    assert got["instructions"] == "First:\n- log in\n- work"


def test_overlong_instructions_leave_room_for_tools() -> None:
    long = "Log in before anything else. " * 500
    got = ask(tools(12), instructions=long)
    assert len(got["tools"]) == 12
    assert got["detail"] == "signature"
    assert got["instructions"].endswith(". …")
    assert 200 < estimate(got["instructions"]) < 1200


def test_instructions_use_the_room_that_tools_leave() -> None:
    long = "Log in before anything else. " * 100
    few, many = ask(tools(1), instructions=long), ask(tools(30), instructions=long)
    assert len(few["instructions"]) > len(many["instructions"])


def test_a_child_without_tools_says_so_and_keeps_its_instructions() -> None:
    got = ask([], instructions="Nothing here yet.")
    assert got["tools"] == []
    assert "no tools" in got["more"]
    assert got["instructions"] == "Nothing here yet."


# Odd schemas


@each_case(
    "schema",
    [
        b"true",
        b"null",
        b"[]",
        b'{"properties":{"a":{"maximum":123456789012345678901234567890}}}',
        b'{"properties":{"a":{"maximum":1e999}}}',
        b'{"items":' * 3000 + b"{}" + b"}" * 3000,
        b'{"$ref":"#"}',
    ],
    ids=["true", "null", "list", "big number", "endless number", "deep", "loop"],
)
@each_case("verbosity", ["", *VERBOSITIES])
def test_an_odd_schema_never_breaks_the_answer(schema: bytes, verbosity: str) -> None:
    views = [ToolView("odd", "Odd.", Raw(schema)), tool(1)]
    got = answer("demo", views, IntrospectRequest(verbosity=verbosity), IntrospectSettings())
    assert isinstance(got, bytes)
    assert b'"odd"' in got
    assert b'"tool_number_1"' in got


def test_a_tool_without_a_schema_takes_nothing() -> None:
    view = ToolView("bare")
    assert ask([view])["tools"] == [{"name": "bare", "inputSchema": {"type": "object"}}]
    assert ask([view], IntrospectRequest(verbosity="signature"))["tools"] == [
        {"name": "bare", "signature": "()"}
    ]
    assert ask([view], IntrospectRequest(verbosity="full"))["tools"] == [{"name": "bare", "description": ""}]


@each_case("chars", [10, 9_000, 60_000])
@each_case("piece", ["word ", 'say "x" \\ ', "漢字"])
def test_one_tool_comes_whole_in_parts_if_it_must(chars: int, piece: str) -> None:
    text = (piece * chars)[:chars]
    schema = {"type": "object", "properties": {"p": {"type": "string", "description": text}}}
    cut = ToolView("big", text[:100], Raw(b"{}"))
    whole = ToolView("big", text, Raw(json.dumps(schema).encode()))
    parts, cursor = [], ""
    while True:
        request = IntrospectRequest("big", cursor=cursor)
        shown = introspect.answer("kid", [cut], request, IntrospectSettings(), whole=whole)
        assert isinstance(shown, bytes)
        assert estimate(shown) <= introspect.PAGE_TOKENS
        page = json.loads(shown)
        assert page["detail"] == "full"
        parts.append(page["tools"][0])
        cursor = page.get("cursor", "")
        assert bool(cursor) is page.get("truncated", False)
        if not cursor:
            break
    got = parts[0] if len(parts) == 1 else json.loads("".join(part["json"] for part in parts[1:]))
    assert (got["description"], got["inputSchema"]) == (text, schema)
    assert len(parts) == 1 or parts[0]["description"] == text[:100]


def test_a_large_schema_comes_in_parts_at_once() -> None:
    properties = {f"p{number}": {"type": "string"} for number in range(10_000)}
    tool = ToolView("big", "", Raw(json.dumps({"properties": properties}).encode()))
    shown = introspect.answer("kid", [tool], IntrospectRequest("big"), IntrospectSettings(), whole=tool)
    assert isinstance(shown, bytes)
    assert json.loads(shown)["tools"][0]["json"].startswith('{"name":"big"')


@each_case("cursor", ["p5", "p5.00000000", "p0.x", "p-1.x", "x", "p", "5.00000000", "p99999999999.x"])
def test_a_cursor_of_another_tool_is_refused(cursor: str) -> None:
    request = IntrospectRequest("big", cursor=cursor)
    tool = ToolView("big", "x" * 200_000)
    problem = introspect.answer("kid", [tool], request, IntrospectSettings())
    assert isinstance(problem, Failure)
    assert problem.code == "cursor_invalid"


def test_full_says_where_the_rest_of_a_cut_text_is() -> None:
    cut = ToolView("long", "begins and …")
    for tools, expected in (([cut], True), ([ToolView("short", "all")], False)):
        shown = introspect.answer("kid", tools, IntrospectRequest(verbosity="full"), IntrospectSettings())
        assert isinstance(shown, bytes)
        assert (introspect.CUT_TEXTS in json.loads(shown).get("more", "")) is expected


RETURNED = b'{"type": "object",  "properties": {"id": {"type": "integer"}}, "required": ["id"]}'


@each_case(
    ("request_", "settings", "member", "expected"),
    [
        (IntrospectRequest(), IntrospectSettings(), "returns", "{id: integer}"),
        (
            IntrospectRequest(verbosity="signature"),
            IntrospectSettings(),
            "signature",
            "(secret_path?: string) -> {id: integer}",
        ),
        (IntrospectRequest(subtool="read"), IntrospectSettings(), "outputSchema", json.loads(RETURNED)),
        (IntrospectRequest(subtool="read"), IntrospectSettings(mode="redacted"), "outputSchema", None),
    ],
)
def test_the_result_of_a_tool_is_described(
    request_: IntrospectRequest, settings: IntrospectSettings, member: str, expected: object
) -> None:
    view = ToolView("read", "Reads it.", Raw(SENT), Raw(RETURNED))
    assert ask([view], request_, settings)["tools"][0].get(member) == expected


def test_result_types_are_dropped_before_anything_else() -> None:
    views = [ToolView(one.name, one.description, one.input_schema, Raw(RETURNED)) for one in tools(6)]
    bare = [ToolView(one.name, one.description, one.input_schema) for one in views]
    plain = msgspec.json.encode(ask(bare))
    tight = IntrospectSettings(budget_tokens=estimate(plain))
    assert "returns" in ask(views)["tools"][0]
    assert ask(views, settings=tight) == ask(bare, settings=tight)
