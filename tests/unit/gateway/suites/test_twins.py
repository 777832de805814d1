"""Twin suites: reads and writes of one child as two tools, and no write through the first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchboard_mcp.config.gate import Hints
from switchboard_mcp.config.models import Expose
from switchboard_mcp.config.sections import Profile
from switchboard_mcp.gateway.suites.profile_suite import apply_profiles
from switchboard_mcp.suites.suite_names import MAX_LENGTH, twin_names
from tests.unit.gateway.board import Board, Host, Json

CHANGED = "notifications/tools/list_changed"
READ, WRITE = "kid_read_suite", "kid_write_suite"


def tool(name: str, **hints: bool) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **({"annotations": hints} if hints else {})}


GET, PUT, ODD = tool("get", readOnlyHint=True), tool("put", readOnlyHint=False), tool("odd")


def listed(host: Host) -> list[str]:
    return [tool["name"] for tool in host.get("tools/list")["tools"]]


def introspected(host: Host, suite: str) -> str:
    request_id = host.ask("tools/call", {"name": suite, "arguments": {"action": "introspect"}})
    return str(host.result(request_id)["content"][0]["text"])


def test_a_split_suite_has_its_reads_in_one_tool_and_the_rest_in_the_other(board: Board) -> None:
    kid = board.child(split=True, tools=[GET, PUT, ODD])
    host = board.host()
    assert listed(host) == [READ, WRITE]
    host.call("get", READ)
    tools = {tool["name"]: tool for tool in host.get("tools/list")["tools"]}
    assert tools[READ]["annotations"] == {"readOnlyHint": True, "destructiveHint": False}
    assert tools[WRITE]["annotations"] == {"readOnlyHint": False, "destructiveHint": True}
    assert tools[READ]["description"].endswith("Subtools: get.")
    assert tools[WRITE]["description"].endswith("Subtools: put, odd.")
    assert '"get"' in introspected(host, READ)
    assert '"put"' not in introspected(host, READ)
    assert '"odd"' in introspected(host, WRITE)
    assert '"get"' not in introspected(host, WRITE)
    assert kid.server.last()["params"]["name"] == "get"


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("subtool", ["put", "odd", "missing"])
def test_the_read_suite_refuses_what_is_not_read_only(board: Board, subtool: str, modern: bool) -> None:
    kid = board.child(split=True, tools=[GET, PUT, ODD])
    host = board.host(modern=modern)
    result: Json = {}
    for _ in range(2):  # before the child is known, and after
        result = host.result(host.call(subtool, READ))
        assert result["isError"]
        assert not kid.server.requests("tools/call")
    if subtool != "missing":
        assert f"Call it in suite '{WRITE}'" in str(result)
        host.call(subtool, WRITE)
        assert kid.server.last()["params"]["name"] == subtool


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "call", "subtool": "put", "args": {"readOnlyHint": True, "suite": READ}},
        {"action": "call", "subtool": "put", "args": {}, "annotations": {"readOnlyHint": True}},
        {"subtool": "put"},
        {"action": "call", "subtool": "put", "args": '{"a": 1}'},
        {"action": "call", "args": {"subtool": "put", "args": {}}},
        {"action": "call", "name": "put"},
        {"action": "call", "subtool": "get", "args": {"subtool": "put"}},
        {"action": "put"},
    ],
)
def test_no_arguments_lead_a_write_through_the_read_suite(board: Board, arguments: Json) -> None:
    kid = board.child(split=True, tools=[GET, PUT])
    host = board.host()
    host.call("get", READ)
    host.ask("tools/call", {"name": READ, "arguments": arguments})
    host.ask("tools/call", {"name": READ, "arguments": arguments, "_meta": {"progressToken": 1}})
    assert {call["params"]["name"] for call in kid.server.requests("tools/call")} <= {"get"}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hints=st.lists(st.sampled_from([None, True, False]), min_size=1, max_size=5),
    later=st.lists(st.sampled_from([None, True, False]), min_size=1, max_size=5),
    override=st.sampled_from([None, True, False]),
    split=st.sampled_from([True, "auto"]),
)
def test_only_what_is_read_only_when_it_is_sent_passes_the_read_suite(
    hints: list[bool | None], later: list[bool | None], override: bool | None, split: Any
) -> None:
    def tools(declared: list[bool | None]) -> list[Json]:
        return [
            tool(f"t{number}", **({} if hint is None else {"readOnlyHint": hint}))
            for number, hint in enumerate(declared)
        ]

    board = Board()
    try:
        corrections = {} if override is None else {"t0": Hints(read_only=override)}
        kid = board.child(split=split, tools=tools(hints), hints=corrections)
        host = board.host()
        for declared in (hints, later):
            if declared is later:
                kid.lists["tools/list"] = tools(later)
                kid.server.notify(CHANGED)
            for number, hint in enumerate(declared):
                reads = override if number == 0 and override is not None else hint
                before = len(kid.runs) and len(kid.server.requests("tools/call"))
                host.call(f"t{number}", READ)
                assert (len(kid.server.requests("tools/call")) > before) is (reads is True)
    finally:
        board.close()


def test_auto_splits_if_every_tool_declares_whether_it_reads_and_tells_hosts(board: Board) -> None:
    kid = board.child(split="auto", tools=[GET, PUT])
    host = board.host()
    assert listed(host) == ["kid_suite"]
    host.call("get")
    assert host.heard(CHANGED)
    assert listed(host) == [READ, WRITE]
    kid.lists["tools/list"] = [GET, PUT, ODD]
    kid.server.notify(CHANGED)
    assert len(host.heard(CHANGED)) == 2
    assert listed(host) == ["kid_suite"]
    host.call("get", READ)  # a host may still have the older list
    assert len(kid.server.requests("tools/call")) == 2
    assert host.result(host.call("odd", READ))["isError"]


@pytest.mark.parametrize(
    ("tools", "names"), [([GET], [READ]), ([PUT], [WRITE]), ([ODD], [WRITE]), ([], ["kid_suite"])]
)
def test_a_twin_without_subtools_is_not_listed(board: Board, tools: list[Json], names: list[str]) -> None:
    board.child(split=True, tools=tools)
    host = board.host()
    assert listed(host) == [READ, WRITE]
    host.call("x", WRITE)
    assert host.heard(CHANGED)
    assert listed(host) == names


def test_a_tool_that_becomes_a_write_moves_and_the_lists_change(board: Board) -> None:
    kid = board.child(split=True, tools=[GET, tool("sync", readOnlyHint=True), PUT])
    host = board.host()
    host.call("sync", READ)
    kid.lists["tools/list"] = [GET, tool("sync", readOnlyHint=False), PUT]
    kid.server.notify(CHANGED)
    assert host.heard(CHANGED)
    assert host.result(host.call("sync", READ))["isError"]
    assert "sync" in introspected(host, WRITE)


def test_corrections_of_the_config_count_before_what_the_child_declares(board: Board) -> None:
    kid = board.child(
        split=True, tools=[GET, PUT, ODD], hints={"o*": Hints(read_only=True), "get": Hints(read_only=False)}
    )
    host = board.host()
    host.call("odd", READ)
    assert kid.server.last()["params"]["name"] == "odd"
    assert host.result(host.call("get", READ))["isError"]
    tools = {tool["name"]: tool for tool in host.get("tools/list")["tools"]}
    assert tools[READ]["description"].endswith("Subtools: odd.")


def test_pins_and_denied_subtools_work_with_twins(board: Board) -> None:
    board.child(split=True, tools=[GET, PUT, ODD], pin=["put"], expose=Expose(deny=["odd"]))
    host = board.host()
    host.call("get", READ)
    assert listed(host) == [READ, WRITE, "put"]
    assert "odd" not in introspected(host, WRITE)
    assert "not allowed" in str(host.result(host.call("odd", WRITE)))


def test_a_direct_child_has_no_twins(board: Board) -> None:
    board.child(split=True, exposure="direct", tools=[GET, PUT])
    host = board.host()
    assert listed(host) == ["get", "put"]


def profiled(board: Board, profile: Profile, *, modern: bool = False) -> Host:
    """A host with this profile."""
    apply_profiles(board.gateway, {"p": profile}, {"ada": "p"}, "", board.services.log)
    return board.host(principal="ada", modern=modern)


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        (Profile(suites=["kid_read_suite"]), [READ]),
        (Profile(suites=["*_read_suite"]), [READ]),
        (Profile(hide=["kid_write_suite"]), [READ]),
        (Profile(suites=["kid"], hide=["*_write_suite"]), [READ]),
        (Profile(suites=["kid_write_suite"]), [WRITE]),
        (Profile(hide=["kid_read_suite"]), [WRITE]),
        (Profile(suites=["kid_*_suite"]), [READ, WRITE]),
        (Profile(suites=["kid_suite"]), [READ, WRITE]),
        (Profile(hide=["kid_read_suite", "kid_write_suite"]), []),
        (Profile(suites=["kid_read_suite"], hide=["kid"]), []),
        (Profile(suites=["other"]), []),
    ],
)
@pytest.mark.parametrize("split", [True, "auto"])
def test_a_profile_may_name_one_twin(board: Board, profile: Profile, names: list[str], split: Any) -> None:
    board.child(split=split, tools=[GET, PUT])
    everybody, host = board.host(), profiled(board, profile)
    everybody.call("get", READ)
    assert listed(everybody) == [READ, WRITE]
    assert listed(host) == names


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])
@pytest.mark.parametrize("split", [True, "auto"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("subtool", ["put", "odd"])
def test_with_the_read_twin_alone_no_name_leads_to_a_write(
    board: Board, subtool: str, known: bool, split: Any, modern: bool
) -> None:
    kid = board.child(split=split, tools=[GET, PUT, ODD], pin=["put"])
    host = profiled(board, Profile(suites=[READ]), modern=modern)
    if known:
        host.call("get", READ)
        assert listed(host) == [READ]
        assert f'"{subtool}"' not in introspected(host, READ)
    for name in (READ, WRITE, "kid_suite"):
        host.call(subtool, name)
    host.ask("tools/call", {"name": subtool, "arguments": {}})
    assert {call["params"]["name"] for call in kid.server.requests("tools/call")} <= {"get"}
    problem = host.result(host.call(subtool, READ))["structuredContent"]["error"]
    assert problem["code"] == "subtool_unknown"
    assert WRITE not in str(problem)


def test_with_the_read_twin_alone_a_tool_that_becomes_a_write_is_gone(board: Board) -> None:
    kid = board.child(split=True, tools=[GET, tool("sync", readOnlyHint=True)])
    host = profiled(board, Profile(suites=[READ]))
    host.call("sync", READ)
    kid.lists["tools/list"] = [GET, tool("sync", readOnlyHint=False)]
    kid.server.notify(CHANGED)
    assert host.result(host.call("sync", READ))["isError"]
    assert len(kid.server.requests("tools/call")) == 1
    assert "sync" not in introspected(host, READ)


def test_with_the_write_twin_alone_reads_can_be_called_in_it(board: Board) -> None:
    kid = board.child(split=True, tools=[GET, PUT])
    host = profiled(board, Profile(suites=[WRITE]))
    host.call("get", WRITE)
    assert kid.server.last()["params"]["name"] == "get"
    assert '"get"' not in introspected(host, WRITE)


def test_names_of_twins_are_free_and_short_enough() -> None:
    names = ["a" * MAX_LENGTH, "a_read", "a_read_suite", "a_suite", "a", "b" * (MAX_LENGTH - 6) + "_suite"]
    twins = twin_names(names)
    every = [*names, *(twin for pair in twins.values() for twin in pair)]
    assert len(set(every)) == len(every)
    assert max(map(len, every)) <= MAX_LENGTH
    assert twins["a_suite"][1] == "a_write_suite"
