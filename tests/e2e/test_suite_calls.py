"""Suite calls as hosts and models really send them: repaired where the meaning is plain, else refused in words."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, faulty, scripted

PICKY = """
    class Picky(Child):
        def call(self, request_id, params, line):
            send({"id": request_id, "error": {"code": -32602, "message": "message must be text"}})

    Picky().serve()
"""
CLICKED = {"ok": True, "name": "click", "args": {"selector": "#a"}}


# --- the same call in other words ------------------------------------------------------------------------


@each_case(
    "arguments",
    [
        {"action": "call", "subtool": "click", "args": {"selector": "#a"}},
        {"op": "call", "subtool": "click", "args": {"selector": "#a"}},
        {"action": "call", "subtool": "click", "args": '{"selector":"#a"}'},
        {"action": "call", "subtool": "click", "args": '{\n  "selector": "#a"\r\n}\n'},
        {"action": "call", "subtool": "click", "arguments": {"selector": "#a"}},
        {"action": "call", "subtool": "click", "arguments": '{"selector":"#a"}'},
        {"action": "call", "subtool": "click", "args": {"args": {"selector": "#a"}}},
        {"action": "call", "subtool": "click", "args": {"arguments": {"selector": "#a"}}},
        {"arguments": {"action": "call", "subtool": "click", "args": {"selector": "#a"}}},
        {"args": {"action": "call", "subtool": "click", "args": {"selector": "#a"}}},
        {"action": "call", "subtool": "click", "args": {"selector": "#a"}, "unknown": 1},
        {"action": "call", "op": None, "subtool": "click", "args": {"selector": "#a"}, "query": None},
        {"arguments": '{"action":"call","subtool":"click","args":{"selector":"#a"}}'},
    ],
    ids=lambda arguments: json.dumps(arguments)[:60],
)
def test_a_call_is_understood(mock: Host, arguments: Json) -> None:
    assert mock.use("mock_suite", **arguments)["structuredContent"] == CLICKED


@each_case(
    "arguments",
    [
        {"action": "introspect"},
        {"op": "list_subtools"},
        {"action": "list_subtools"},
        {"action": "introspect", "args": {}},
        {"action": "introspect", "args": None},
        {"action": "introspect", "subtool": None, "args": None, "query": None, "cursor": None},
        {"arguments": {"action": "introspect"}},
    ],
    ids=json.dumps,
)
def test_an_introspection_is_understood(mock: Host, arguments: Json) -> None:
    result = mock.use("mock_suite", **arguments)
    assert "click" in [tool["name"] for tool in json.loads(result["content"][0]["text"])["tools"]]


@each_case("args", [{}, None, "", "{}"], ids=repr)
def test_a_call_without_arguments_sends_an_empty_object(mock: Host, args: Any) -> None:
    result = mock.use("mock_suite", action="call", subtool="navigate", args=args)
    assert result["content"][0]["text"] == "navigate needs url"
    result = mock.use("mock_suite", action="call", subtool="screenshot")
    assert result["content"][0]["type"] == "image"


# --- calls that cannot be understood ---------------------------------------------------------------------


@each_case("arguments", [{}, {"subtool": "click"}, {"args": {}}, {"action": ""}], ids=json.dumps)
def test_a_missing_action_is_asked_for(mock: Host, arguments: Json) -> None:
    error = mock.failure("mock_suite", **arguments)
    assert error["code"] == "bad_arguments"
    assert error["child"] == "mock"
    assert error["retryable"] is False
    assert "`action`" in error["message"]
    assert '{"action":"introspect"}' in error["hint"]


def test_an_unknown_action_is_named_with_those_there_are(mock: Host) -> None:
    error = mock.failure("mock_suite", action="run", subtool="click")
    assert error["code"] == "bad_arguments"
    for word in ('"run"', '"introspect"', '"call"', "'mock'"):
        assert word in error["message"]


@each_case("arguments", [None, [], "introspect", 7], ids=repr)
def test_arguments_that_are_no_object_are_refused_in_words(mock: Host, arguments: Any) -> None:
    result = mock.result("tools/call", {"name": "mock_suite", "arguments": arguments})
    assert result["isError"] is True
    assert result["structuredContent"]["error"]["code"] == "bad_arguments"


@each_case(
    ("args", "found"),
    [
        ([1], "an array"),
        (7, "a number"),
        (1.5, "a number"),
        (True, "a boolean"),
        ("plain text", "a string"),
        ('["list"]', "a string"),
        ('{"broken": ', "a string"),
        ('{"selector": "a\nb"}', "a string"),  # a bare line break in a text: to guess would change the text
        (10**30, "a number"),
    ],
    ids=repr,
)
def test_args_of_the_wrong_type_are_refused_with_what_they_are(mock: Host, args: Any, found: str) -> None:
    error = mock.failure("mock_suite", action="call", subtool="click", args=args)
    assert error["code"] == "bad_arguments"
    assert error["subtool"] == "click"
    assert error["message"] == (
        f"`args` for child 'mock', subtool 'click' must be a JSON object, not {found}."
    )


@each_case("field", ["subtool", "query", "verbosity", "cursor"])
def test_a_field_of_the_wrong_type_is_named(mock: Host, field: str) -> None:
    error = mock.failure("mock_suite", action="introspect", **{field: [7]})
    assert error["code"] == "bad_arguments"
    assert f"$.{field}" in error["message"]


# --- subtools --------------------------------------------------------------------------------------------


@each_case("arguments", [{}, {"subtool": ""}, {"args": {"selector": "#a"}}], ids=json.dumps)
def test_a_call_without_a_subtool_asks_for_its_name(mock: Host, arguments: Json) -> None:
    error = mock.failure("mock_suite", action="call", **arguments)
    assert error["code"] == "subtool_missing"
    assert error["child"] == "mock"
    assert "subtool" in error["hint"]


def test_an_unknown_subtool_names_the_nearest(mock: Host) -> None:
    error = mock.failure("mock_suite", action="call", subtool="screen_shot", args={})
    assert error["code"] == "subtool_unknown"
    assert error["message"] == "Child 'mock' has no subtool 'screen_shot'."
    assert (error["child"], error["subtool"]) == ("mock", "screen_shot")
    assert error["nearest"][0] == "screenshot"


def test_an_unknown_subtool_of_an_introspection_names_the_nearest(mock: Host) -> None:
    error = mock.failure("mock_suite", action="introspect", subtool="clik")
    assert (error["code"], error["subtool"]) == ("subtool_unknown", "clik")
    assert error["nearest"][0] == "click"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Switchboard that allows `c*` and `echo` of the mock child, but not `crash`."""
    workspace = tmp_path_factory.mktemp("guarded")
    add_child(workspace, "mock", MOCK_CHILD)
    expose = {"allow": ["c*", "echo"], "deny": ["cra?h"]}
    configure(workspace, {"suites": {"mock": {"suiteName": "browser", "expose": expose}}})
    with switchboard(workspace, env={**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}) as host:
        yield host


def test_a_denied_subtool_is_not_listed_nor_found(guarded: Host) -> None:
    assert guarded.subtools("browser") == ["click", "echo"]
    for query in ("crash", "end the server process", "navigate"):
        found = [tool["name"] for tool in guarded.introspect("browser", query=query)["tools"]]
        assert not {"crash", "navigate"} & set(found)


@each_case("subtool", ["crash", "navigate", "no_such_tool"])
@each_case("action", ["call", "introspect"])
def test_a_denied_subtool_is_refused_alike_whether_it_exists_or_not(
    guarded: Host, action: str, subtool: str
) -> None:
    error = guarded.failure("browser", action=action, subtool=subtool)
    assert error["code"] == "subtool_denied"
    assert (error["child"], error["subtool"], error["retryable"]) == ("mock", subtool, False)
    assert error["message"].startswith(f"Subtool '{subtool}' not allowed by Switchboard (suite 'browser'")


def test_denied_subtools_are_not_among_the_nearest(guarded: Host) -> None:
    error = guarded.failure("browser", action="call", subtool="crasher")
    assert error["code"] == "subtool_unknown"
    assert "crash" not in error.get("nearest", [])


def test_an_allowed_subtool_works_beside_denied_ones(guarded: Host) -> None:
    assert guarded.call("browser", "click", selector="#a")["structuredContent"] == CLICKED


# --- introspection ---------------------------------------------------------------------------------------


def test_introspect_gives_names_summaries_and_schemas(mock: Host) -> None:
    told = mock.introspect("mock_suite")
    assert told["detail"] == "summary"
    assert told["instructions"].startswith("A pretend browser")
    click = next(tool for tool in told["tools"] if tool["name"] == "click")
    assert click["summary"] == "Click the element that matches a CSS selector."
    assert click["inputSchema"]["required"] == ["selector"]


def test_introspect_of_one_subtool_gives_it_in_full(mock: Host) -> None:
    told = mock.introspect("mock_suite", subtool="log")
    assert told["detail"] == "full"
    (tool,) = told["tools"]
    assert tool["name"] == "log"
    assert tool["inputSchema"]["properties"]["level"]["default"] == "info"


def test_introspect_with_a_query_gives_the_fitting_ones_first(mock: Host) -> None:
    told = mock.introspect("mock_suite", query="take a picture of the page")
    assert told["tools"][0]["name"] == "screenshot"
    assert len(told["tools"]) < 10


def test_introspect_says_when_nothing_fits_a_query(mock: Host) -> None:
    told = mock.introspect("mock_suite", query="zzzzqqqq")
    assert told["tools"] == []
    assert "No tool matches" in told["more"]


# Members of tools that declare what they return.
RESULTS = {"returns", "outputSchema"}


@each_case(
    ("verbosity", "keys"),
    [
        ("names", {"name", "summary"}),
        ("signature", {"name", "signature", "summary"}),
        ("summary", {"name", "summary", "inputSchema"}),
        ("full", {"name", "description", "inputSchema"}),
    ],
)
def test_introspect_gives_the_detail_that_is_asked_for(mock: Host, verbosity: str, keys: set[str]) -> None:
    told = mock.introspect("mock_suite", verbosity=verbosity)
    assert told["detail"] == verbosity
    assert all(set(tool) - RESULTS == keys for tool in told["tools"])
    assert len(told["tools"]) == 10


def test_an_unknown_verbosity_is_named_with_those_there_are(mock: Host) -> None:
    error = mock.failure("mock_suite", action="introspect", verbosity="loud")
    assert error["code"] == "bad_arguments"
    for word in ("'loud'", "names", "signature", "summary", "full"):
        assert word in error["message"]


def test_a_cursor_that_was_never_given_is_refused(mock: Host) -> None:
    error = mock.failure("mock_suite", action="introspect", cursor="nonsense")
    assert error["code"] == "cursor_invalid"
    assert "without a cursor" in error["hint"]


def test_pages_together_hold_every_tool_once(workspace: Path) -> None:
    add_child(workspace, "many", faulty("paginated", "50", "430"))
    with switchboard(workspace) as host:
        page = host.introspect("many_suite", verbosity="names")
        names = [tool["name"] for tool in page["tools"]]
        assert len(names) == 200
        assert page["truncated"] is True
        assert page["total"] == 430
        while "cursor" in page:
            page = host.introspect("many_suite", cursor=page["cursor"])
            names += [tool["name"] for tool in page["tools"]]
    assert names == [f"tool_{number}" for number in range(430)]
    assert "truncated" not in page


def test_a_large_suite_steps_down_to_what_the_budget_pays_for(workspace: Path) -> None:
    add_child(workspace, "many", faulty("paginated", "50", "150"))
    configure(workspace, {"introspection": {"budgetTokens": 2000}})
    with switchboard(workspace) as host:
        told = host.introspect("many_suite")
        assert told["detail"] in ("signature", "names")
        assert "subtool=NAME" in told["more"]
        (tool,) = host.introspect("many_suite", subtool="tool_7")["tools"]
        assert tool["inputSchema"]["properties"] == {"message": {"type": "string"}}


@each_case(
    ("mode", "keys"),
    [
        ("redacted", {"name", "summary"}),
        ("signature", {"name", "signature", "summary"}),
        ("full", {"name", "description", "inputSchema"}),
    ],
)
def test_the_configured_mode_decides_what_introspect_shows(
    workspace: Path, mode: str, keys: set[str]
) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"introspection": {"mode": mode}})
    with switchboard(workspace) as host:
        assert all(set(tool) - RESULTS == keys for tool in host.introspect("mock_suite")["tools"])
        (one,) = host.introspect("mock_suite", subtool="click")["tools"]
        assert ("inputSchema" in one) == (mode != "redacted")


# --- errors of the child ---------------------------------------------------------------------------------


def test_an_error_result_of_a_child_comes_as_it_is(mock: Host) -> None:
    result = mock.call("mock_suite", "fail", message="on purpose")
    assert result == {"content": [{"type": "text", "text": "on purpose"}], "isError": True}


def test_a_protocol_error_of_a_child_names_child_subtool_and_code_and_keeps_its_data(workspace: Path) -> None:
    add_child(workspace, "quota", faulty("error-data"))
    with switchboard(workspace) as host:
        error = host.failure("quota_suite", action="call", subtool="echo", args={})
    assert error["code"] == "child_error"
    assert error["message"] == "Child 'quota', subtool 'echo': quota used up (code -32042)"
    assert error["data"] == {"reason": "quota", "limits": [1, 2.0], "nested": {"é": None}}
    assert "schema" not in error


def test_invalid_params_of_a_child_come_with_the_schema(workspace: Path) -> None:
    add_child(workspace, "picky", scripted(PICKY))
    with switchboard(workspace) as host:
        result = host.use("picky_suite", action="call", subtool="echo", args={"message": 7})
    error = result["structuredContent"]["error"]
    assert error["message"] == "Child 'picky', subtool 'echo': message must be text (code -32602)"
    assert error["schema"] == {"type": "object", "properties": {"message": {"type": "string"}}}
    assert json.dumps(error["schema"], separators=(",", ":")) in result["content"][0]["text"]


def test_an_answer_without_result_or_error_is_an_error(workspace: Path) -> None:
    add_child(workspace, "mute", faulty("wrong-shapes", "call"))
    with switchboard(workspace) as host:
        error = host.failure("mute_suite", action="call", subtool="echo", args={})
    assert error["code"] == "child_error"
    assert "'mute'" in error["message"]
    assert "'echo'" in error["message"]
