"""What children declare or answer beyond what Switchboard knows: announced where it works, passed on, never lost."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from switchboard_mcp.config.sections import Expose
from switchboard_mcp.gateway.status import child_statuses
from switchboard_mcp.policy.access import access
from tests.cases import each_case
from tests.unit.gateway.board import ECHO, PREFIX, Board, FakeChild, Json, open_board

OWN: Json = {
    "tools": {},
    "extensions": {"com.acme/x": {"a": 1}, PREFIX + "tasks": {}},
    "experimental": {"y": {}},
}
ERAS = ["legacy", "modern"]


def known(board: Board, *children: FakeChild) -> None:
    for kid in children:
        board.host(modern=kid.era == "modern", principal="first").call(suite=f"{kid.name}_suite")


def announced(board: Board, modern: bool) -> tuple[bool, bool]:
    """Whether the unknown extension and the experimental capability are announced to a host."""
    host = board.host(modern=modern)
    found = (
        host.get("server/discover") if modern else host.get("initialize", {"protocolVersion": "2025-11-25"})
    )
    offered = found["capabilities"]
    return "com.acme/x" in offered.get("extensions", {}), "y" in offered.get("experimental", {})


@each_case("era", ERAS)
@each_case("exposure", ["suite", "direct"], board=open_board)
def test_an_extension_of_one_child_is_announced_and_its_methods_reach_it(
    board: Board, era: str, exposure: str
) -> None:
    kid = board.child(era=era, capabilities=OWN, exposure=exposure)
    board.child("other", era=era)
    known(board, kid)
    host = board.host(modern=era == "modern")
    assert announced(board, era == "modern") == (True, True)
    id = host.ask("acme/run", {"name": "n"})
    assert kid.server.last("acme/run")["params"]["name"] == "n"
    kid.server.give(kid.server.last("acme/run"), {"odd": [1]})
    assert host.result(id)["odd"] == [1]


@each_case("era", ERAS, board=open_board)
def test_it_is_not_announced_to_hosts_of_another_protocol_version_or_beside_another_one(
    board: Board, era: str
) -> None:
    kid = board.child(era=era, capabilities=OWN)
    known(board, kid)
    assert announced(board, era != "modern") == (False, False)
    other = board.host(modern=era != "modern")
    error = other.error(other.ask("acme/run"))
    assert error["code"] == -32601
    assert "only if it alone declares one" in error["message"]


def test_the_methods_of_two_children_with_extensions_reach_neither(board: Board) -> None:
    kids = [board.child(name, capabilities=OWN) for name in ("one", "two")]
    known(board, *kids)
    assert announced(board, modern=False) == (False, False)
    host = board.host()
    assert host.error(host.ask("acme/run"))["code"] == -32601
    assert all(kid.server.requests("acme/run") == [] for kid in kids)


@each_case("exposure", ["suite", "direct"], board=open_board)
def test_a_restricted_child_has_no_extensions_of_its_own(board: Board, exposure: str) -> None:
    kid = board.child(capabilities=OWN, exposure=exposure)
    known(board, kid)
    board.gateway.all_suites["kid_suite"].access = access(Expose(deny=["other"]))
    assert announced(board, modern=False) == (False, False)
    host = board.host()
    assert host.error(host.ask("acme/run"))["code"] == -32601
    assert kid.server.requests("acme/run") == []


@each_case(
    ("children", "deny", "expected"),
    [
        ({"one": OWN}, False, {}),
        ({"one": OWN, "plain": {"tools": {}}}, False, {}),
        ({"one": OWN, "two": OWN}, False, {"one": "'two' declares", "two": "'one' declares"}),
        ({"one": OWN}, True, {"one": "allow and deny lists"}),
        ({"one": OWN, "direct": {"tools": {}}}, False, {"one": "the direct child 'direct'"}),
        ({"one": OWN, "direct": OWN}, False, {"one": "the direct child 'direct'"}),
        ({"plain": {"tools": {}}}, False, {}),
    ],
)
@each_case("era", ERAS, board=open_board)
def test_the_status_has_the_extensions_that_no_host_is_told_of(
    board: Board, era: str, children: dict[str, Json], deny: bool, expected: dict[str, str]
) -> None:
    kids = [
        board.child(name, era=era, capabilities=own, exposure="direct" if name == "direct" else "suite")
        for name, own in children.items()
    ]
    known(board, *kids)
    suites = board.gateway.all_suites
    if deny:
        suites["one_suite"].access = access(Expose(deny=["other"]))
    shown = {status.child: status.extensions_not_announced for status in child_statuses(suites.values())}
    found = {child: hidden for child, hidden in shown.items() if hidden is not UNSET}
    assert found.keys() == expected.keys()
    for child, hidden in found.items():
        assert hidden.names == ["com.acme/x", "y"]
        assert expected[child] in hidden.reason
    # The names are the child's own text, which a host must not get this way.
    for status in child_statuses(suites.values(), lambda owner: True):
        assert status.extensions_not_announced is UNSET


def test_a_governed_child_has_none_either(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    kid = board.child(capabilities=OWN)
    known(board, kid)
    monkeypatch.setattr(type(kid.inventory), "governed", True)
    assert announced(board, modern=False) == (False, False)


ANNOUNCED = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
EMPTY: dict[str, Json] = {
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "logging/setLevel": {},
}


@each_case("child_era", ERAS)
@each_case("host_era", ERAS)
@each_case("exposure", ["suite", "direct"])
@each_case("when", ["never started", "known"], board=open_board)
def test_an_announced_method_is_answered_although_no_child_has_it(
    board: Board, host_era: str, child_era: str, exposure: str, when: str
) -> None:
    kid = board.child(era=child_era, capabilities={"tools": {}}, exposure=exposure)
    if when == "known":
        known(board, kid)
    host = board.host(modern=host_era == "modern")
    hello = ("server/discover",) if host.modern else ("initialize", {"protocolVersion": "2025-11-25"})
    assert host.get(*hello)["capabilities"] == ANNOUNCED
    for method, empty in EMPTY.items():
        if not (host.modern and method == "logging/setLevel"):  # a member of each request there
            assert host.get(method, {"level": "info"} if not empty else {}).items() >= empty.items()


@each_case("host_era", ERAS)
@each_case(("code", "expected"), [(-32601, []), (-32602, None)], board=open_board)
def test_a_child_without_completions_has_none_to_offer(
    board: Board, host_era: str, code: int, expected: list[str] | None
) -> None:
    lists = {"prompts/list": [{"name": "p"}]}
    kid = board.child(lists=lists)
    known(board, kid)
    host = board.host(modern=host_era == "modern")
    ref = {"type": "ref/prompt", "name": "kid__p"}
    id = host.ask("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})
    kid.server.refuse(kid.server.last("completion/complete"), code)
    if expected is None:
        assert host.error(id)["code"] == code
    else:
        assert host.result(id)["completion"]["values"] == expected


@each_case("child_era", ERAS)
@each_case("host_era", ERAS)
@each_case("exposure", ["suite", "direct"], board=open_board)
def test_unknown_members_and_metadata_of_results_pass(
    board: Board, host_era: str, child_era: str, exposure: str
) -> None:
    kid = board.child(era=child_era, exposure=exposure)
    host = board.host(modern=host_era == "modern")
    called = host.call() if exposure == "suite" else host.ask("tools/call", {"name": "echo"})
    odd = {"content": [{"type": "com.acme/3d", "mesh": [1]}], "acme": {"a": 1}, "_meta": {"com.acme/k": [1]}}
    kid.server.give(
        kid.server.last(), {**odd, **({"resultType": "complete"} if child_era == "modern" else {})}
    )
    found = host.result(called)
    assert {name: found[name] for name in odd} == odd


@each_case("governed", [False, True], board=open_board)
def test_a_suite_has_the_title_of_its_server_and_its_icons_if_wanted(
    board: Board, monkeypatch: pytest.MonkeyPatch, governed: bool
) -> None:
    info = {"name": "s", "version": "1", "title": "Acme\u202e Search", "icons": [{"src": "https://x/i.png"}]}

    def answer(message: Json) -> Json | None:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        return {"result": hello} if message["method"] == "initialize" else None

    plain = board.child("plain", script=answer, tools=[ECHO])
    shown = board.child("shown", script=answer, tools=[ECHO], icons=True)
    known(board, plain, shown)
    if governed:
        monkeypatch.setattr(type(plain.inventory), "governed", True)
    tools = {tool["name"]: tool for tool in board.host().get("tools/list")["tools"]}
    assert tools["plain_suite"].get("title") == (None if governed else "Acme Search")
    assert "icons" not in tools["plain_suite"]
    assert tools["shown_suite"].get("icons") == (None if governed else info["icons"])
