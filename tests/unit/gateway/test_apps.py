"""MCP Apps behind suites: what hosts that show pages see, and where the calls of a page go."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from switchboard_mcp.config.sections import Expose
from switchboard_mcp.protocol import apps
from tests.cases import each_case
from tests.unit.gateway.board import Board, FakeChild, Host, Json, open_board

SHOWS: Json = {"extensions": {apps.EXTENSION: {"mimeTypes": [apps.MIME_TYPE]}}}
SCHEMA: Json = {"type": "object"}
PAGE = "ui://dash/main.html"
SHOW: Json = {
    "name": "show",
    "inputSchema": SCHEMA,
    "_meta": {"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE},
}
REFRESH: Json = {"name": "refresh", "inputSchema": SCHEMA, "_meta": {"ui": {"visibility": ["app"]}}}
PLAIN: Json = {"name": "plain", "inputSchema": SCHEMA}
MODEL_ONLY: Json = {"name": "secret", "inputSchema": SCHEMA, "_meta": {"ui": {"visibility": ["model"]}}}
TOOLS = [SHOW, REFRESH, PLAIN, MODEL_ONLY]


def add(board: Board, name: str = "kid", tools: list[Json] | None = None, **suite: Any) -> FakeChild:
    """A child with a page that it does not list, and that answers with its own name."""

    def answer(message: Json) -> Json | None:
        if message["method"] == "resources/read":
            uri = message["params"]["uri"]
            shown = {
                "uri": uri,
                "mimeType": apps.MIME_TYPE,
                "text": f"<p>{name}",
                "_meta": {"ui": {"domain": "x"}},
            }
            return {"result": {"contents": [shown]}}
        if message["method"] == "tools/call":
            return {"result": {"content": [{"type": "text", "text": f"{name}:{message['params']['name']}"}]}}
        return None

    listed = TOOLS if tools is None else tools
    lists: dict[str, list[Json]] = {"resources/list": [], "resources/templates/list": []}
    return board.child(name, tools=listed, lists=lists, script=answer, **suite)


def known(board: Board, *names: str) -> None:
    """Let the children be known before a host lists their tools."""
    for name in names:
        board.host().call("plain", f"{name}_suite")


def listed(host: Host) -> dict[str, Json]:
    return {tool["name"]: tool for tool in host.get("tools/list")["tools"]}


def text(result: Json) -> str:
    value: str = result["content"][0]["text"]
    return value


@each_case("modern", [False, True], board=open_board)
def test_a_host_that_shows_pages_finds_them_by_their_tools(board: Board, modern: bool) -> None:
    add(board)
    known(board, "kid")
    tools = listed(board.host(capabilities=SHOWS, modern=modern))
    assert sorted(tools) == ["kid_suite", "plain", "refresh", "show"]
    assert tools["show"]["_meta"] == {
        "ui": {"resourceUri": "ui://kid/dash/main.html"},
        "ui/resourceUri": "ui://kid/dash/main.html",
    }
    for name in ("plain", "refresh"):
        assert tools[name]["_meta"] == {"ui": {"visibility": ["app"]}}


@each_case(
    "capabilities", [{}, {"extensions": {apps.EXTENSION: {"mimeTypes": ["text/plain"]}}}], board=open_board
)
def test_other_hosts_see_the_suite_alone(board: Board, capabilities: Json) -> None:
    add(board)
    known(board, "kid")
    assert sorted(listed(board.host(capabilities=capabilities))) == ["kid_suite"]


def test_apps_can_be_switched_off(board: Board) -> None:
    add(board, apps="off")
    known(board, "kid")
    assert sorted(listed(board.host(capabilities=SHOWS))) == ["kid_suite"]


@each_case("capabilities", [{}, SHOWS], board=open_board)
def test_a_tool_for_pages_alone_is_no_subtool(board: Board, capabilities: Json) -> None:
    add(board)
    known(board, "kid")
    host = board.host(capabilities=capabilities)
    shown = host.get("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
    assert [tool["name"] for tool in json.loads(text(shown))["tools"]] == ["show", "plain", "secret"]
    refused = host.result(host.call("refresh"))
    assert refused["structuredContent"]["error"]["code"] == "subtool_unknown"


@each_case("uri", ["ui://kid/dash/main.html", PAGE], board=open_board)
def test_a_page_is_read_although_no_list_has_it(board: Board, uri: str) -> None:
    add(board)
    known(board, "kid")
    (content,) = board.host(capabilities=SHOWS).get("resources/read", {"uri": uri})["contents"]
    assert content == {"uri": uri, "mimeType": apps.MIME_TYPE, "text": "<p>kid", "_meta": {"ui": {}}}


def test_a_page_calls_the_tools_of_its_own_child(board: Board) -> None:
    add(board)
    known(board, "kid")
    host = board.host(capabilities=SHOWS)
    assert text(host.get("tools/call", {"name": "refresh", "arguments": {}})) == "kid:refresh"
    assert text(host.get("tools/call", {"name": "show", "arguments": {}})) == "kid:show"
    assert host.error(host.ask("tools/call", {"name": "secret", "arguments": {}}))["code"] == -32602


@each_case("exposure", ["suite", "direct"], board=open_board)
def test_a_page_with_the_name_of_a_child_is_never_that_of_another(board: Board, exposure: str) -> None:
    add(board, "dash", tools=[PLAIN])
    add(board, "evil", exposure=exposure)
    known(board, "dash")
    host = board.host(capabilities=SHOWS)
    host.get("tools/list")
    answer = host.answer(host.ask("resources/read", {"uri": PAGE}))
    assert "evil" not in json.dumps(answer)


def test_two_children_with_the_same_page_and_names_are_kept_apart(board: Board) -> None:
    add(board, "one")
    add(board, "two")
    known(board, "one", "two")
    host = board.host(capabilities=SHOWS)
    tools = listed(host)
    pages = {
        name: tool["_meta"]["ui"]["resourceUri"] for name, tool in tools.items() if name.endswith("_show")
    }
    assert pages == {"one_show": "ui://one/dash/main.html", "two_show": "ui://two/dash/main.html"}
    unknown = host.error(host.ask("tools/call", {"name": "refresh", "arguments": {}}))
    assert "one and two" in unknown["message"]
    host.get("resources/read", {"uri": pages["two_show"]})
    assert text(host.get("tools/call", {"name": "refresh", "arguments": {}})) == "two:refresh"
    other = board.host(capabilities=SHOWS)
    assert other.error(other.ask("tools/call", {"name": "refresh", "arguments": {}}))["code"] == -32602


@each_case("modern", [False, True])
@each_case("subtool", ["show", "plain"])
@each_case("capabilities", [{}, SHOWS], board=open_board)
def test_the_result_of_a_suite_names_the_page_for_hosts_that_show_pages(
    board: Board, capabilities: Json, subtool: str, modern: bool
) -> None:
    add(board)
    host = board.host(capabilities=capabilities, modern=modern)
    result = host.result(host.call(subtool))
    meta = result.get("_meta", {})
    uri = "ui://kid/dash/main.html"
    shown = {"ui": {"resourceUri": uri}, "ui/resourceUri": uri}
    assert {key: meta[key] for key in shown if key in meta} == (
        shown if capabilities and subtool == "show" else {}
    )
    assert text(result) == f"kid:{subtool}"


def test_a_page_that_is_not_allowed_is_no_page(board: Board) -> None:
    add(board, expose=Expose(allow=["show", "plain"]))
    add(board, "open", expose=Expose(allow=["show", "ui://dash/*"]), exposure="direct")
    known(board, "kid")
    host = board.host(capabilities=SHOWS)
    assert sorted(listed(host)) == ["kid_suite", "show"]
    assert listed(host)["show"]["_meta"]["ui"] == {"resourceUri": PAGE}
    assert host.error(host.ask("resources/read", {"uri": "ui://kid/dash/main.html"}))["code"] == -32002
    assert "_meta" not in host.result(host.call("show"))


def test_a_direct_tool_whose_page_is_not_allowed_names_none(board: Board) -> None:
    add(board, expose=Expose(allow=["show"]), exposure="direct")
    assert listed(board.host(capabilities=SHOWS))["show"]["_meta"] == {"ui": {}}


def test_a_pinned_tool_does_not_catch_the_calls_of_a_page(board: Board) -> None:
    add(board, "aide", [PLAIN], pin=["*"])
    add(board)
    known(board, "kid", "aide")
    host = board.host(capabilities=SHOWS)
    assert {"plain", "aide_plain"} <= set(listed(host))
    assert text(host.get("tools/call", {"name": "plain", "arguments": {}})) == "kid:plain"
    assert text(host.get("tools/call", {"name": "aide_plain", "arguments": {}})) == "aide:plain"


def test_a_denied_tool_is_denied_to_pages_too(board: Board) -> None:
    add(board, expose=Expose(deny=["refresh"]))
    known(board, "kid")
    host = board.host(capabilities=SHOWS)
    assert "refresh" not in listed(host)
    assert host.error(host.ask("tools/call", {"name": "refresh", "arguments": {}}))["code"] == -32602


@each_case(
    ("meta", "expected"),
    [
        ({"ui": {"resourceUri": "ui://a"}}, apps.ToolUi("ui://a")),
        ({"ui/resourceUri": "ui://a"}, apps.ToolUi("ui://a")),
        ({"ui": {"resourceUri": "https://a"}}, apps.NO_UI),
        ({"ui": {"visibility": ["app"]}}, apps.ToolUi("", for_model=False)),
        ({"ui": {"visibility": []}}, apps.ToolUi("", for_model=False, for_app=False)),
        ({"ui": {"visibility": "app"}}, apps.NO_UI),
        ({"ui": 3}, apps.NO_UI),
        (None, apps.NO_UI),
    ],
)
def test_a_tool_says_what_its_page_is(meta: object, expected: apps.ToolUi) -> None:
    assert apps.tool_ui(Raw(json.dumps({"name": "a", "_meta": meta}).encode())) == expected


def test_a_page_named_in_the_old_form_alone_is_renamed_too() -> None:
    tool = Raw(
        json.dumps(
            {"name": "a", "_meta": {"ui": {"visibility": ["model"]}, "ui/resourceUri": "ui://a"}}
        ).encode()
    )
    renamed = apps.rename_ui(tool, lambda uri: uri + "/b")
    assert apps.tool_ui(renamed) == apps.ToolUi("ui://a/b", for_app=False)


def content(**members: object) -> Raw:
    shown = {"uri": PAGE, "mimeType": apps.MIME_TYPE, "text": "<p>", **members}
    return Raw(
        json.dumps({"contents": [{key: value for key, value in shown.items() if value is not None}]}).encode()
    )


@each_case(
    "changed",
    [
        {"text": "<p> "},
        {"text": None, "blob": "PHA+"},
        {"mimeType": "text/html"},
        {"_meta": {"ui": {"csp": {"connectDomains": ["https://a"]}}}},
        {"_meta": {"openai/widgetCSP": {}}},
    ],
)
def test_any_change_of_a_page_changes_its_record(changed: Json) -> None:
    assert apps.page_record(PAGE, content(**changed)) != apps.page_record(PAGE, content())
    assert apps.page_record(PAGE, content(uri="ui://other")) == apps.page_record(PAGE, content())


@each_case(
    "result",
    [
        b"{}",
        b"[]",
        b'{"contents":[]}',
        b'{"contents":[3]}',
        b'{"contents":[{"_meta":3}]}',
        b'"' + b"x" * apps.MAX_PAGE_BYTES,
    ],
)
def test_a_resource_that_is_no_page_has_no_record(result: bytes) -> None:
    assert apps.page_record(PAGE, Raw(result)) is None
