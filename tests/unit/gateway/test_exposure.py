"""How a child appears: whichever costs less, and single subtools beside its suite."""

from __future__ import annotations

from switchboard_mcp.config.models import Expose
from tests.unit.gateway.board import ECHO, Board, Host, Json

CHANGED = "notifications/tools/list_changed"
TINY: list[Json] = [{"name": "now", "description": "The time.", "inputSchema": {"type": "object"}}]
LARGE: list[Json] = [
    {
        "name": f"tool_{number}",
        "description": "Does one of many things, each of which takes a few words to tell. " * 3,
        "inputSchema": {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": f"The {name} of it."} for name in ("alpha", "beta")
            },
        },
    }
    for number in range(30)
]


def tools(host: Host) -> list[str]:
    return [tool["name"] for tool in host.get("tools/list")["tools"]]


def test_auto_shows_a_tiny_child_as_it_is_once_it_is_known(board: Board) -> None:
    kid = board.child(exposure="auto", tools=TINY)
    host = board.host()
    assert tools(host) == ["kid_suite"]
    assert kid.runs == []
    host.call("now")
    assert host.heard(CHANGED)
    assert tools(host) == ["now"]


def test_auto_keeps_a_large_child_behind_its_suite_and_tells_nothing(board: Board) -> None:
    board.child(exposure="auto", tools=LARGE)
    host = board.host()
    host.call("tool_1")
    assert not host.heard(CHANGED)
    assert tools(host) == ["kid_suite"]


def test_a_listed_suite_can_still_be_called(board: Board) -> None:
    kid = board.child(exposure="auto", tools=TINY)
    host = board.host()
    host.call("now")
    request_id = host.call("now")
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(request_id) == {"content": []}
    direct = host.ask("tools/call", {"name": "now", "arguments": {}})
    kid.server.give(kid.server.last(), {"content": [], "own": True})
    assert host.result(direct) == {"content": [], "own": True}


def test_auto_looks_again_when_the_tools_are_others(board: Board) -> None:
    kid = board.child(exposure="auto", tools=TINY)
    host = board.host()
    host.call("now")
    assert tools(host) == ["now"]
    kid.lists["tools/list"] = LARGE
    kid.server.notify(CHANGED)
    assert tools(host) == ["kid_suite"]


def test_instructions_speak_of_suites_only_where_there_are_some(board: Board) -> None:
    board.child(exposure="auto", tools=TINY)
    board.host().call("now")
    assert "suite" not in board.gateway.view.tool_list.instructions()


def test_a_pinned_subtool_is_listed_beside_the_suite_and_can_be_called_either_way(board: Board) -> None:
    kid = board.child(tools=[ECHO, *LARGE], pin=["echo"])
    host = board.host()
    listed = host.get("tools/list")["tools"]
    assert [tool["name"] for tool in listed] == ["kid_suite", "echo"]
    assert listed[1] == ECHO
    suite_call = {"name": "kid_suite", "arguments": {"action": "call", "subtool": "echo", "args": {"a": 1}}}
    for params in ({"name": "echo", "arguments": {"a": 1}}, suite_call):
        request_id = host.ask("tools/call", params)
        assert kid.server.last()["params"]["arguments"] == {"a": 1}
        kid.server.give(kid.server.last(), {"content": []})
        assert host.result(request_id) == {"content": []}


def test_pins_may_be_globs_and_never_show_what_is_denied(board: Board) -> None:
    board.child(tools=LARGE, pin=["tool_2*"], expose=Expose(deny=["tool_21"]))
    shown = tools(board.host())
    assert "tool_2" in shown
    assert "tool_20" in shown
    assert "tool_21" not in shown
    assert "tool_3" not in shown


def test_pinned_names_that_collide_have_their_child_before_them(board: Board) -> None:
    one = board.child("one", pin=["echo"])
    two = board.child("two", pin=["echo"])
    host = board.host()
    assert tools(host) == ["one_suite", "two_suite", "echo", "two_echo"]
    host.ask("tools/call", {"name": "two_echo", "arguments": {}})
    assert two.server.last()["params"]["name"] == "echo"
    assert not one.server.requests("tools/call")


def test_a_pin_of_what_is_not_there_shows_nothing(board: Board) -> None:
    board.child(pin=["missing"])
    assert tools(board.host()) == ["kid_suite"]


def test_suites_still_fit_their_limit_beside_tools_of_their_own(board: Board) -> None:
    board.child("pinned", pin=["echo"])
    for number in range(150):
        board.child(f"child{number}", description="What it is for, in more words than are needed. " * 20)
    host = board.host()
    listed = host.get("tools/list")["tools"]
    assert len(listed) == 152
    assert sum(len(str(tool)) for tool in listed if tool["name"].endswith("_suite")) < 60_000
