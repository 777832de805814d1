"""Tools of handshake-era children that only run as tasks."""

from __future__ import annotations

import pytest

from switchboard_mcp.gateway.suspended_requests import COALESCE_S
from tests.unit.gateway.board import EVERYTHING, Board, FakeChild, Host, Json

TOOL: Json = {"name": "research", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
CREATED: Json = {"task": {"taskId": "t1", "status": "working", "ttl": 1000}}
DONE: Json = {"content": [{"type": "text", "text": "found"}]}


@pytest.fixture(params=["suite handshake", "suite modern", "direct modern"])
def research(request: pytest.FixtureRequest, board: Board) -> tuple[FakeChild, Host, int | str]:
    """The call of such a tool by a host that knows nothing of it."""
    exposure, era = request.param.split()
    kid = board.child(exposure=exposure, tools=[TOOL, {"name": "echo"}])
    host = board.host(EVERYTHING, modern=era == "modern")
    if exposure == "suite":
        return kid, host, host.call("research", args={"q": 1})
    return kid, host, host.ask("tools/call", {"name": "research", "arguments": {"q": 1}})


def test_the_call_is_made_as_a_task_and_its_result_waited_for(
    board: Board, research: tuple[FakeChild, Host, int | str]
) -> None:
    kid, host, called = research
    params = kid.server.last()["params"]
    assert (params["task"], params["arguments"]) == ({}, {"q": 1})
    kid.server.give(kid.server.last(), CREATED)
    assert host.answer(called) is None
    assert kid.server.last("tasks/result")["params"] == {"taskId": "t1"}
    board.advance(3600)
    kid.server.give(kid.server.last("tasks/result"), DONE)
    assert host.result(called)["content"] == DONE["content"]


def test_what_it_asks_meanwhile_reaches_the_host(
    board: Board, research: tuple[FakeChild, Host, int | str]
) -> None:
    kid, host, called = research
    kid.server.give(kid.server.last(), CREATED)
    kid.server.ask("elicitation/create", {"message": "Which?"})
    board.advance(COALESCE_S)
    if host.modern:
        assert host.result(called)["resultType"] == "input_required"
    else:
        assert len(host.heard("elicitation/create")) == 1


def test_with_the_answer_it_has_all_its_time_again(board: Board) -> None:
    kid = board.child(tools=[TOOL])
    host = board.host(EVERYTHING)
    called = host.call("research")
    kid.server.give(kid.server.last(), CREATED)
    kid.server.ask("elicitation/create", {"message": "Which?"})
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    board.advance(3600)
    kid.server.give(kid.server.last("tasks/result"), DONE)
    assert host.result(called) == DONE


def test_cancelling_it_cancels_the_task(board: Board, research: tuple[FakeChild, Host, int | str]) -> None:
    kid, host, called = research
    kid.server.give(kid.server.last(), CREATED)
    host.cancel(called)
    assert kid.server.last("tasks/cancel")["params"] == {"taskId": "t1"}
    assert host.answer(called) is None


def test_an_error_instead_of_a_task_is_told(
    board: Board, research: tuple[FakeChild, Host, int | str]
) -> None:
    kid, host, called = research
    kid.server.refuse(kid.server.last(), -32603, "no room")
    answer = host.answer(called)
    assert answer is not None
    assert "no room" in str(answer)


def test_other_tools_are_called_as_ever(board: Board) -> None:
    kid = board.child(tools=[TOOL, {"name": "echo"}])
    host = board.host()
    called = host.call("echo")
    assert "task" not in kid.server.last()["params"]
    kid.server.give(kid.server.last(), {"content": [], "taskId": "not one"})
    assert host.result(called) == {"content": [], "taskId": "not one"}


def test_a_host_that_knows_tasks_makes_them_itself(board: Board) -> None:
    kid = board.child(exposure="direct", tools=[TOOL])
    host = board.host()
    called = host.ask("tools/call", {"name": "research", "task": {"ttl": 5}})
    assert kid.server.last()["params"]["task"] == {"ttl": 5}
    kid.server.give(kid.server.last(), CREATED)
    assert host.result(called) == CREATED
