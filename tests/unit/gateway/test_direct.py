"""Children that are shown as they are."""

from __future__ import annotations

from switchboard_mcp.config.models import Expose
from switchboard_mcp.gateway.session import http_host
from switchboard_mcp.gateway.suites.tool_readiness import INITIALIZE_WAIT_S
from tests.cases import each_case
from tests.unit.gateway.board import (
    EVERYTHING,
    NEW,
    OLD,
    PREFIX,
    Board,
    FakeChild,
    Host,
    Json,
    Road,
    open_board,
)

TASKS = PREFIX + "tasks"


def start_task(kid: FakeChild, host: Host, task: str, tool: str = "echo") -> None:
    """Have a host call a direct tool that becomes a task."""
    called = host.ask("tools/call", {"name": tool, "task": {}})
    flat = {"resultType": "task", "taskId": task, "status": "working"}
    kid.server.give(kid.server.last(), flat if host.modern else {"task": {"taskId": task}})
    assert task in str(host.result(called))


def tool_names(host: Host) -> list[str]:
    return [tool["name"] for tool in host.get("tools/list")["tools"]]


def test_its_tools_are_listed_as_they_came(board: Board) -> None:
    tool = {
        "name": "t",
        "inputSchema": {"type": "object"},
        "vendor": {"n": 1},
        "_meta": {"v/x": 1},
        "icons": [],
    }
    board.child(exposure="direct", tools=[tool])
    host = board.host()
    assert host.get("tools/list") == {"tools": [tool]}


def test_a_call_and_its_result_pass_as_they_are(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    params = {"name": "echo", "arguments": {"a": 1}, "task": {"ttl": 1}, "vendor": [1]}
    request_id = host.ask("tools/call", params, meta={"v/x": 1})
    assert kid.server.last()["params"] == {**params, "_meta": {"v/x": 1}}
    kid.server.give(kid.server.last(), {"content": [{"type": "hologram"}], "vendor": 1})
    assert host.result(request_id) == {"content": [{"type": "hologram"}], "vendor": 1}


def test_a_call_without_arguments_stays_without(board: Board) -> None:
    kid = board.child(exposure="direct")
    board.host().ask("tools/call", {"name": "echo"})
    assert kid.server.last()["params"] == {"name": "echo"}


@each_case("result", [None, [], "text", 7, {}], board=open_board)
def test_a_result_of_any_shape_reaches_a_host_of_the_same_era(board: Board, result: object) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    request_id = host.ask("vendor/thing", {})
    kid.server.give(kid.server.last("vendor/thing"), result)
    answer = host.answer(request_id)
    assert answer is not None
    assert answer["result"] == result


def test_an_error_of_the_child_passes_as_it_is(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    request_id = host.ask("tools/call", {"name": "echo"})
    kid.server.send(
        {"id": kid.server.last()["id"], "result": None, "error": {"code": 5, "message": "m", "v": 1}}
    )
    assert host.error(request_id) == {"code": 5, "message": "m", "v": 1}


def test_names_that_clash_have_the_childs_before_them(board: Board) -> None:
    board.child("a", exposure="direct", tools=[{"name": "x"}, {"name": "only_a"}])
    two = board.child("b", exposure="direct", tools=[{"name": "x"}, {"name": "s_suite"}, {"name": "a_x"}])
    board.child("s")
    host = board.host()
    assert tool_names(host) == ["s_suite", "x", "only_a", "b_x", "b_s_suite", "a_x"]
    host.ask("tools/call", {"name": "b_x"})
    assert two.server.last()["params"]["name"] == "x"
    host.ask("tools/call", {"name": "b_s_suite"})
    assert two.server.last()["params"]["name"] == "s_suite"


def test_a_name_that_would_be_too_long_is_cut_and_marked(board: Board) -> None:
    long = "x" * 60
    board.child("a", exposure="direct", tools=[{"name": long}])
    board.child("b" * 20, exposure="direct", tools=[{"name": long}])
    first, second = tool_names(board.host())
    assert first == long
    assert len(second) <= 64
    assert second.startswith("bbbb")


def test_prompts_and_resources_that_clash_have_the_childs_name_too(board: Board) -> None:
    lists: dict[str, list[Json]] = {
        "prompts/list": [{"name": "p"}],
        "resources/list": [{"uri": "mem://a"}],
        "resources/templates/list": [{"uriTemplate": "mem://{x}"}],
    }
    one = board.child("a", exposure="direct", lists=lists)
    two = board.child("b", exposure="direct", lists=lists)
    host = board.host()
    assert host.get("prompts/list")["prompts"] == [{"name": "p"}, {"name": "b__p"}]
    assert host.get("resources/list")["resources"] == [{"uri": "mem://a"}, {"uri": "switchboard://b/mem://a"}]
    host.ask("prompts/get", {"name": "b__p"})
    assert two.server.last("prompts/get")["params"]["name"] == "p"
    host.ask("resources/read", {"uri": "switchboard://b/mem://a"})
    assert two.server.last("resources/read")["params"]["uri"] == "mem://a"
    host.ask("prompts/get", {"name": "p"})
    host.ask("resources/read", {"uri": "mem://a"})
    assert one.server.last("prompts/get")["params"]["name"] == "p"
    assert one.server.last("resources/read")["params"]["uri"] == "mem://a"


def test_a_denied_tool_is_unknown(board: Board) -> None:
    kid = board.child(
        exposure="direct", tools=[{"name": "open"}, {"name": "shut"}], expose=Expose(deny=["shut"])
    )
    host = board.host()
    assert tool_names(host) == ["open"]
    assert host.error(host.ask("tools/call", {"name": "shut"}))["code"] == -32602
    assert kid.server.requests("tools/call") == []


def test_a_tool_that_the_only_child_does_not_list_does_not_reach_it(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    lists = len(kid.server.requests("tools/list"))
    assert host.error(host.ask("tools/call", {"name": "hidden"}))["code"] == -32602
    assert kid.server.requests("tools/call") == []
    assert len(kid.server.requests("tools/list")) == lists + 1  # it may have changed without a notification


def test_a_tool_that_the_child_has_added_without_a_notification_is_called(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    host.get("tools/list")
    kid.lists["tools/list"].append({"name": "fresh"})
    host.ask("tools/call", {"name": "fresh"})
    assert kid.server.last()["params"]["name"] == "fresh"


def test_a_call_without_an_id_is_no_way_around_a_deny_list(board: Board) -> None:
    kid = board.child(exposure="direct", expose=Expose(deny=["drop"]))
    host = board.host()
    host.ask("tools/call", {"name": "echo", "arguments": {}})
    for method in ("tools/call", "prompts/get", "vendor/run"):
        host.notify(method, {"name": "drop", "arguments": {}})
        assert all("id" in heard for heard in kid.server.requests(method))
    host.notify("notifications/vendor", {"x": 1})
    assert kid.server.requests("notifications/vendor")


def test_among_several_children_an_unknown_tool_is_refused_with_the_nearest(board: Board) -> None:
    board.child("a", exposure="direct")
    board.child("b")
    host = board.host()
    assert "echo" in host.error(host.ask("tools/call", {"name": "ecco"}))["message"]


def test_all_of_the_first_list_is_there_even_when_the_child_was_never_seen(board: Board) -> None:
    lists: dict[str, list[Json]] = {"prompts/list": [{"name": "p"}], "resources/list": [{"uri": "u"}]}
    board.child(exposure="direct", lists=lists)
    host = board.host(modern=True)
    assert host.get("prompts/list")["prompts"] == [{"name": "p"}]
    assert host.get("resources/list")["resources"] == [{"uri": "u"}]
    silent = host.ask("resources/templates/list")  # its answer never comes
    board.advance(61)
    assert host.result(silent)["resourceTemplates"] == []


def test_a_child_that_cannot_be_started_does_not_hide_the_others(board: Board) -> None:
    broken = board.child(
        "broken", exposure="direct", script=lambda message: {"error": {"code": -1, "message": "x"}}
    )
    board.child("fine", exposure="direct")
    host = board.host()
    assert tool_names(host) == ["broken_suite", "echo"]
    assert broken.runs


# --- the greeting ------------------------------------------------------------------------------------------


def test_the_greeting_has_the_instructions_and_the_further_capabilities_of_the_only_child(
    board: Board,
) -> None:
    def script(message: Json) -> Json | None:
        if message["method"] != "initialize":
            return None
        capabilities: Json = {
            "tools": {},
            "experimental": {"v": {}},
            "tasks": {"list": {}},
            "extensions": {"v/x": {}},
        }
        return {"result": {"protocolVersion": OLD, "capabilities": capabilities, "instructions": "Be kind."}}

    board.child(exposure="direct", script=script)
    host = board.host()
    initialized = host.get("initialize", {"protocolVersion": OLD, "capabilities": {}})
    assert initialized["instructions"] == "Be kind."
    assert initialized["capabilities"]["tasks"] == {"list": {}}
    assert initialized["capabilities"]["experimental"] == {"v": {}}
    assert initialized["capabilities"]["extensions"] == {"v/x": {}}  # hosts send them in this family too
    assert initialized["capabilities"]["tools"] == {"listChanged": True}
    modern = board.host(modern=True).get("server/discover")
    assert "tasks" not in modern["capabilities"]
    assert "extensions" not in modern["capabilities"]
    assert modern["supportedVersions"] == [NEW]


def test_a_modern_childs_extensions_are_shown_to_modern_hosts(board: Board) -> None:
    capabilities: Json = {"tools": {}, "extensions": {TASKS: {}}}
    board.child(era="modern", exposure="direct", capabilities=capabilities)
    assert board.host(modern=True).get("server/discover")["capabilities"]["extensions"] == {TASKS: {}}
    old = board.host().get("initialize", {"protocolVersion": OLD, "capabilities": {}})
    assert "extensions" not in old["capabilities"]


def test_a_slow_child_does_not_keep_a_host_from_being_greeted(board: Board) -> None:
    board.child(exposure="direct", script=lambda message: {} if message["method"] == "initialize" else None)
    host = board.host(modern=True)
    host.modern = False
    request_id = host.ask("initialize", {"protocolVersion": OLD, "capabilities": {}})
    assert host.answer(request_id) is None
    board.advance(INITIALIZE_WAIT_S)
    assert host.result(request_id)["protocolVersion"] == OLD
    board.advance(100)
    assert host.road.answers == 1


# --- eras --------------------------------------------------------------------------------------------------


def stranger(board: Board, *, modern: bool = False) -> tuple[Host, FakeChild]:
    """A host without a greeting, and a child shown as it is which does not answer its own, beside another."""
    greetings = ("initialize", "server/discover")
    kid = board.child(
        exposure="direct", script=lambda message: {} if message["method"] in greetings else None
    )
    board.child("other")
    road = Road()
    return Host(board, board.gateway.open(road, http_host("http", "")), road, {}, modern), kid


def test_a_call_that_waits_for_a_child_can_be_cancelled(board: Board) -> None:
    host, kid = stranger(board)
    listed, called = host.ask("tools/list", id=1), host.ask("tools/call", {"name": "echo"}, id=2)
    assert list(host.session.in_flight) == [b"1", b"2"]
    host.cancel(called)
    kid.server.refuse(kid.server.last("initialize"), -32000)
    assert [tool["name"] for tool in host.result(listed)["tools"]] == ["other_suite", "kid_suite"]
    assert host.answer(called) is None
    assert host.session.in_flight == {}


def test_an_id_that_waits_for_a_child_is_not_used_twice(board: Board) -> None:
    host, _kid = stranger(board)
    host.ask("tools/list", id=1)
    host.ask("tools/list", id=1)
    assert host.error(1)["code"] == -32600


def test_problems_that_show_once_the_child_is_known_are_reported(board: Board) -> None:
    host, kid = stranger(board, modern=True)
    called = host.ask("tools/call", {"name": "echo", "requestState": 5})
    kid.extra = lambda message: None
    kid.server.refuse(kid.server.last("server/discover"), -32601)
    assert host.error(called)["code"] == -32602
    assert "requestState" in host.error(called)["message"]


def test_tools_are_shown_in_the_era_of_the_host(board: Board) -> None:
    tool = {
        "name": "t",
        "inputSchema": {},
        "execution": {"taskSupport": "optional"},
        "outputSchema": {"type": "array"},
    }
    board.child(exposure="direct", tools=[tool])
    assert board.host().get("tools/list")["tools"] == [tool]
    (shown,) = board.host(modern=True).get("tools/list")["tools"]
    assert tool.keys() - shown.keys() == {"execution"}


def test_a_modern_childs_tools_hide_what_a_host_of_old_cannot_read(board: Board) -> None:
    tool = {"name": "t", "inputSchema": {}, "outputSchema": {"type": "array"}}
    board.child(era="modern", exposure="direct", tools=[tool])
    assert board.host(modern=True).get("tools/list")["tools"] == [tool]
    assert board.host().get("tools/list")["tools"] == [{"name": "t", "inputSchema": {}}]


@each_case(
    ("era", "modern", "method"),
    [
        *(("legacy", False, f"tasks/{verb}") for verb in ("get", "cancel", "result")),
        *(("modern", True, f"tasks/{verb}") for verb in ("get", "cancel", "update")),
    ],
    board=open_board,
)
def test_tasks_reach_the_child_where_both_are_of_one_era(
    board: Board, era: str, modern: bool, method: str
) -> None:
    kid = board.child(era=era, exposure="direct")
    host = board.host({"extensions": {TASKS: {}}}, modern=modern)
    start_task(kid, host, "t1")
    request_id = host.ask(method, {"taskId": "t1"})
    assert kid.server.last(method)["params"]["taskId"] == "t1"
    kid.server.give(kid.server.last(method), {"status": "working"})
    assert host.result(request_id)["status"] == "working"


@each_case(("era", "modern"), [("legacy", True), ("modern", False)], board=open_board)
def test_tasks_are_unknown_where_the_eras_differ(board: Board, era: str, modern: bool) -> None:
    kid = board.child(era=era, exposure="direct")
    host = board.host(modern=modern)
    host.get("tools/list")
    assert host.error(host.ask("tasks/get", {"taskId": "t1"}))["code"] == -32601
    assert kid.server.requests("tasks/get") == []


def test_a_modern_host_without_the_extension_is_told_what_it_lacks(board: Board) -> None:
    kid = board.child(era="modern", exposure="direct")
    host = board.host(modern=True)
    host.get("tools/list")
    error = host.error(host.ask("tasks/get", {"taskId": "t"}))
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
    assert kid.server.requests("tasks/get") == []


def test_a_task_passes_between_modern_ends(board: Board) -> None:
    kid = board.child(era="modern", exposure="direct", capabilities={"tools": {}, "extensions": {TASKS: {}}})
    host = board.host({"extensions": {TASKS: {}}}, modern=True)
    request_id = host.ask("tools/call", {"name": "echo"})
    meta = kid.server.last()["params"]["_meta"]
    assert meta[PREFIX + "clientCapabilities"] == {"extensions": {TASKS: {}}}
    task = {"resultType": "task", "taskId": "t1", "status": "working"}
    kid.server.give(kid.server.last(), task)
    assert host.result(request_id) == task


def test_waiting_for_a_task_takes_as_long_as_the_task(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    start_task(kid, host, "t")
    request_id = host.ask("tasks/result", {"taskId": "t"})
    board.advance(3600)
    kid.server.give(kid.server.last("tasks/result"), {"content": []})
    assert host.result(request_id) == {"content": []}


def test_waiting_for_a_task_that_asks_takes_as_long_as_any(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host(EVERYTHING)
    start_task(kid, host, "t")
    request_id = host.ask("tasks/result", {"taskId": "t"})
    kid.server.ask("elicitation/create", {"message": "Which?"})
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    board.advance(3600)
    kid.server.give(kid.server.last("tasks/result"), {"content": []})
    assert host.result(request_id) == {"content": []}


@each_case("modern", [False, True], board=open_board)
def test_a_method_nobody_knows_goes_to_the_only_child_shown_as_it_is(board: Board, modern: bool) -> None:
    kid = board.child(exposure="direct")
    board.child("suite")
    host = board.host(EVERYTHING, modern=modern)
    request_id = host.ask("vendor/thing", {"a": [1]})
    params = kid.server.last("vendor/thing")["params"]
    assert params["a"] == [1]
    kid.server.give(kid.server.last("vendor/thing"), {"b": 2})
    assert host.result(request_id) == ({"resultType": "complete", "b": 2} if modern else {"b": 2})


@each_case("count", [0, 2], board=open_board)
def test_a_method_nobody_knows_is_refused_elsewhere(board: Board, count: int) -> None:
    board.child("suite")
    for number in range(count):
        board.child(f"kid{number}", exposure="direct")
    host = board.host()
    assert host.error(host.ask("vendor/thing", {}))["code"] == -32601


def test_a_first_snapshot_is_no_change(board: Board) -> None:
    lists: dict[str, list[Json]] = {"prompts/list": [{"name": "p"}], "resources/templates/list": []}
    kid = board.child(exposure="direct", lists=lists)
    host = board.host()
    assert host.get("prompts/list")["prompts"] == [{"name": "p"}]
    assert host.heard("notifications/prompts/list_changed") == []
    kid.server.notify("notifications/prompts/list_changed")
    assert len(host.heard("notifications/prompts/list_changed")) == 1


def test_further_members_of_lists_pass_if_there_is_one_child(board: Board) -> None:
    def script(message: Json) -> Json | None:
        if message["method"] not in ("tools/list", "prompts/list"):
            return None
        member = message["method"].split("/")[0]
        return {"result": {member: [{"name": "x"}], "vendor": {"n": 1}, "_meta": {"v/x": 2}}}

    board.child(exposure="direct", script=script, lists={"prompts/list": []})
    host = board.host()
    assert host.get("tools/list") == {"tools": [{"name": "x"}], "vendor": {"n": 1}, "_meta": {"v/x": 2}}
    assert host.get("prompts/list") == {"prompts": [{"name": "x"}], "vendor": {"n": 1}, "_meta": {"v/x": 2}}


# --- children that cannot start ----------------------------------------------------------------------------


def test_a_child_that_cannot_start_shows_its_suite_which_says_why_until_it_starts(board: Board) -> None:
    fails = True

    def script(message: Json) -> Json | None:
        refused = {"error": {"code": -32000, "message": "no licence"}}
        return refused if fails and message["method"] in ("initialize", "server/discover") else None

    board.child(exposure="direct", script=script)
    host = board.host()
    assert [tool["name"] for tool in host.get("tools/list")["tools"]] == ["kid_suite"]
    told = host.get("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
    assert told["isError"]
    assert "no licence" in told["content"][0]["text"]
    fails = False
    board.advance(3600)
    host.ask("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
    board.advance(10)
    assert host.heard("notifications/tools/list_changed")
    assert [tool["name"] for tool in host.get("tools/list")["tools"]] == ["echo"]
