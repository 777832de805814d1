"""Exposure `auto`: what known hosts are shown, by their traits and by measured tokens."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.gateway.suites.host_exposure import (
    ALWAYS_LOAD_TOKENS,
    SEARCHED_TOKENS,
    Candidate,
    Choice,
    decide,
)
from switchboard_mcp.hosts.traits import HOSTS, HostTraits
from tests.cases import each_case
from tests.unit.gateway.board import ECHO, Board, Host, Json, open_board
from tests.unit.gateway.test_exposure import CHANGED, LARGE, TINY

CODEX, CLAUDE, OPENCODE = (
    {"clientInfo": {"name": name, "version": version}}
    for name, version in (
        ("codex-mcp-client", "0.166.0"),
        ("claude-code", "2.1.325"),
        ("opencode", "1.18.33"),
    )
)
SEARCHES = HostTraits(names=("a",), title="A", defers_tools=True, name_prefix="a_")
LOADS = HostTraits(names=("b",), title="B", defers_tools=True, loads_marked=True)
LISTS = HostTraits(names=("c",), title="C")


def child(name: str = "kid", **more: Any) -> Candidate:
    cost = {"tools": 10, "flat": 2_000, "suite_tokens": 100, "expected": 400.0, "longest_name": 20}
    return Candidate(**{"child": name, "suite": f"{name}_suite", "exposure": "auto", **cost, **more})


def one(candidate: Candidate, host: HostTraits) -> Choice:
    (choice,) = decide([candidate], host)
    return choice


@each_case(
    ("host", "more", "shown"),
    [
        (LISTS, {}, "suite"),
        (LISTS, {"flat": 300}, "direct"),
        (SEARCHES, {}, "direct"),
        (SEARCHES, {"flat": SEARCHED_TOKENS + 1}, "suite"),
        (SEARCHES, {"flat": 0, "tools": 0}, "suite"),
        (SEARCHES, {"exposure": "suite"}, "suite"),
        (SEARCHES, {"exposure": "direct", "flat": 90_000}, "direct"),
        (HostTraits(names=(), title="D", defers_tools=True, defers_from=30), {}, "suite"),
        (HostTraits(names=(), title="D", defers_tools=True, name_prefix="a_", name_chars=22), {}, "direct"),
        (HostTraits(names=(), title="D", defers_tools=True, name_prefix="a_", name_chars=21), {}, "suite"),
        (HostTraits(names=(), title="D", name_chars=19), {"flat": 300}, "suite"),
        (HostTraits(names=(), title="D", max_tools=9), {"flat": 300}, "suite"),
        (HostTraits(names=(), title="D", max_tools=10), {"flat": 300}, "direct"),
        (LOADS, {}, "suite"),
        (LOADS, {"flat": 300}, "direct"),
    ],
)
def test_traits_and_costs_decide(host: HostTraits, more: Json, shown: str) -> None:
    choice = one(child(**more), host)
    assert choice.shown == shown
    assert choice.always_load is host.loads_marked
    assert choice.reason


def test_built_in_suites_are_loaded_first_and_what_exceeds_the_budget_is_searched_for() -> None:
    own = child("mail", exposure="suite", built_in=True, suite_tokens=ALWAYS_LOAD_TOKENS - 100)
    chosen = {choice.child: choice.always_load for choice in decide([child("a"), child("b"), own], LOADS)}
    assert chosen == {"mail": True, "a": True, "b": False}


candidates = st.lists(
    st.builds(
        child,
        st.uuids().map(str),
        tools=st.integers(0, 200),
        flat=st.integers(0, 20_000),
        suite_tokens=st.integers(50, 400),
        expected=st.floats(50, 3_000),
        longest_name=st.integers(1, 80),
        exposure=st.sampled_from(["auto", "suite", "direct"]),
    ),
    max_size=30,
    unique_by=lambda one: one.child,
)


@given(candidates, st.sampled_from(HOSTS))
def test_no_host_gets_more_than_its_limits_and_budgets(measured: list[Candidate], host: HostTraits) -> None:
    chosen = decide(measured, host)
    assert [choice.child for choice in chosen] == [one.child for one in measured]
    auto = [(one, choice) for one, choice in zip(measured, chosen, strict=True) if one.exposure == "auto"]
    assert all(one.exposure in ("auto", choice.shown) for one, choice in zip(measured, chosen, strict=True))
    searched = [one.flat for one, choice in auto if choice.shown == "direct" and one.flat > one.expected]
    assert sum(searched) <= SEARCHED_TOKENS
    assert not searched or (host.defers_tools and not host.loads_marked)
    assert sum(choice.tokens for choice in chosen if choice.always_load) <= ALWAYS_LOAD_TOKENS
    for one, choice in auto:
        if choice.shown == "direct" and host.name_chars:
            assert one.longest_name + len(host.name_prefix) <= host.name_chars
    if host.max_tools and any(choice.shown == "direct" for _, choice in auto):
        assert sum(choice.tools for choice in chosen) <= host.max_tools


# --- through the gateway ------------------------------------------------------------------------------


def connect(board: Board, about: Json, *, modern: bool = False) -> Host:
    host = board.host(modern=modern)
    if not modern:
        host.get("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, **about})
    return host


def listed(host: Host, about: Json, *, modern: bool) -> dict[str, Json]:
    meta = {"io.modelcontextprotocol/clientInfo": about["clientInfo"]} if modern else None
    return {tool["name"]: tool for tool in host.get("tools/list", meta=meta)["tools"]}


@each_case("modern", [False, True], board=open_board)
def test_each_host_sees_what_suits_it_and_can_call_it(board: Board, modern: bool) -> None:
    kid = board.child(exposure="auto", tools=[*LARGE[:3], ECHO])
    board.host().call("echo")
    seen = {}
    for about in (CODEX, CLAUDE, OPENCODE):
        host = connect(board, about, modern=modern)
        tools = listed(host, about, modern=modern)
        seen[about["clientInfo"]["name"]] = (sorted(tools), tools.get("kid_suite", {}).get("_meta"))
        meta = {"io.modelcontextprotocol/clientInfo": about["clientInfo"]} if modern else None
        for name in tools:
            arguments = {} if name != "kid_suite" else {"action": "call", "subtool": "echo", "args": {}}
            id = host.ask("tools/call", {"name": name, "arguments": arguments}, meta=meta)
            kid.server.give(kid.server.last(), {"content": []})
            assert host.result(id)["content"] == []
        suite = {"name": "kid_suite", "arguments": {"action": "call", "subtool": "echo", "args": {}}}
        id = host.ask("tools/call", suite, meta=meta)
        kid.server.give(kid.server.last(), {"content": []})
        assert host.result(id)["content"] == [], "an unlisted suite can be called too"
    assert seen == {
        "codex-mcp-client": (["echo", "tool_0", "tool_1", "tool_2"], None),
        "claude-code": (["kid_suite"], {"anthropic/alwaysLoad": True}),
        "opencode": (["kid_suite"], None),
    }


def test_single_tools_are_marked_too(board: Board) -> None:
    board.child(exposure="auto", tools=TINY)
    board.host().call("now")
    (tool,) = listed(connect(board, CLAUDE), CLAUDE, modern=False).values()
    assert (tool["name"], tool["_meta"]) == ("now", {"anthropic/alwaysLoad": True})


def test_only_hosts_whose_list_changes_hear_of_a_child_that_is_known_now(board: Board) -> None:
    board.child(exposure="auto", tools=LARGE[:3])
    codex, other = connect(board, CODEX), connect(board, OPENCODE)
    other.call("tool_1")
    assert codex.heard(CHANGED)
    assert not other.heard(CHANGED)


@each_case("exposure", ["suite", "auto"], board=open_board)
def test_a_host_that_hides_the_names_of_tools_is_told_those_of_servers(board: Board, exposure: str) -> None:
    board.child("github", exposure=exposure)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}}
    host = board.host()
    assert "github" in host.get("initialize", {**about, **CODEX})["instructions"]
    assert "github" not in host.get("initialize", {**about, **OPENCODE})["instructions"]


def test_without_auto_every_host_sees_the_same(board: Board) -> None:
    board.child(tools=TINY)
    board.host().call("now")
    for about in (CODEX, CLAUDE, OPENCODE):
        assert list(listed(connect(board, about), about, modern=False)) == ["kid_suite"]
        assert "_meta" not in listed(connect(board, about), about, modern=False)["kid_suite"]
