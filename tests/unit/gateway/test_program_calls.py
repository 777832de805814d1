"""Calls of programs: cancelled with the program, within its manifest, and never mistaken for calls of the host."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from msgspec import UNSET, Raw

from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.gateway.client_requests.suspended_requests import COALESCE_S
from switchboard_mcp.gateway.programs.prepared import CheckedProgram, PreparedProgram
from switchboard_mcp.gateway.programs.program_calls import ProgramRun
from switchboard_mcp.programs.engine import Settled
from tests.cases import each_case
from tests.unit.gateway.board import ECHO, Board, Host, open_board

ECHO_OF_KID = frozenset({("kid", "echo")})


class Running:
    """A call that a program of a host has begun. `request` runs the program."""

    def __init__(self, host: Host, subtool: str = "echo", request: Any = None) -> None:
        request = request or SimpleNamespace(
            session=host.session, channel=host.road, meta=UNSET, is_stateless=False
        )
        run = ProgramRun("p1", host.board.gateway, request, ECHO_OF_KID, frozenset())
        self.settled: Settled | None = None

        async def call() -> None:
            self.settled = await run.call("kid", subtool, b"{}")

        self.task: asyncio.Task[None] = host.board.services.start_task(call())
        host.board.settle()


def test_a_cancelled_program_cancels_its_call(board: Board) -> None:
    kid, host = board.child(tools=[dict(ECHO)]), board.host()
    running = Running(host)
    sent = kid.server.last()
    running.task.cancel()
    board.settle()
    (cancelled,) = kid.server.requests("notifications/cancelled")
    assert cancelled["params"]["requestId"] == sent["id"]
    assert host.session.in_flight == {}
    assert host.session.program_calls == {}


def test_a_subtool_outside_of_the_manifest_is_refused_at_the_gateway(board: Board) -> None:
    kid, host = board.child(tools=[dict(ECHO), {**ECHO, "name": "other"}]), board.host()
    running = Running(host, "other")
    assert running.settled is not None
    assert running.settled.raised == "RuntimeError"
    assert "not checked for the subtool 'other'" in running.settled.message
    assert not kid.runs


def test_a_question_of_a_child_reaches_the_host_of_the_program(board: Board) -> None:
    kid, host = board.child(tools=[dict(ECHO)]), board.host({"elicitation": {"form": {}}})
    running = Running(host)
    kid.server.ask("elicitation/create", {"message": "Sure?", "requestedSchema": {"type": "object"}})
    board.settle()
    (question,) = host.heard("elicitation/create")
    host.reply(question, {"action": "accept", "content": {}})
    assert kid.server.reply() is not None
    kid.server.give(kid.server.last(), {"content": [{"type": "text", "text": "done"}]})
    board.settle()
    assert running.settled == Settled(text="done")


def test_a_host_that_leaves_ends_the_calls_of_its_program(board: Board) -> None:
    kid, host = board.child(tools=[dict(ECHO)]), board.host()
    Running(host)
    host.leave()
    assert len(kid.server.requests("notifications/cancelled")) == 1
    late = Running(host)
    assert late.settled is not None
    assert late.settled.raised == "RuntimeError"
    assert len(kid.server.requests("tools/call")) == 1


DONE = {"content": [{"type": "text", "text": "done"}]}


class CountedTypes:
    """Counts the results that types may be learned from."""

    def __init__(self) -> None:
        self.results: list[bytes] = []
        self.skips: dict[tuple[str, str], int] = {}

    def text(self, spec: object, subtool: str) -> str:
        return ""

    def sample(self, spec: object, tool: object, result: Raw | bytes) -> None:
        self.results.append(bytes(result))


@each_case(
    "limits", [None, LimitSettings(calls_per_minute=1000)], ids=["plain", "with a pipeline"], board=open_board
)
def test_types_are_learned_from_suite_calls_once_each_while_programs_are_enabled(
    board: Board, limits: LimitSettings | None
) -> None:
    kid = board.child(tools=[dict(ECHO)], limits=limits or LimitSettings())
    host = board.host()

    def answered() -> None:
        host.call()
        kid.server.give(kid.server.last(), DONE)
        board.settle()

    answered()  # with programs off: there is nothing to learn with
    types = board.services.result_types = CountedTypes()
    answered()
    assert [json.loads(result) for result in types.results] == [DONE]
    Running(host)
    kid.server.give(kid.server.last(), DONE)
    board.settle()
    assert len(types.results) == 1  # a program learns from its own results
    types.skips["kid", "echo"] = 2
    for _ in range(4):
        answered()
    assert len(types.results) == 3


QUESTION = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
YES = {"action": "accept", "content": {}}
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


@each_case("is_ephemeral", [False, True], ids=["one session", "a session for each request"])
@each_case("era", ["legacy", "modern"], board=open_board)
def test_a_stateless_host_is_asked_in_the_answer_to_its_run(
    board: Board, era: str, *, is_ephemeral: bool
) -> None:
    kid, runner = board.child(era=era, tools=[dict(ECHO)]), board.child("runner", tools=[dict(ECHO)])

    def new_host() -> Host:
        return board.passer(FORMS) if is_ephemeral else host

    host = board.host(FORMS, modern=True)
    first = new_host()
    id = first.call(suite="runner_suite")
    [run] = first.session.in_flight.values()
    running = Running(first, request=run)
    if era == "legacy":
        kid.server.ask("elicitation/create", QUESTION)
    else:
        needed = {"resultType": "input_required", "requestState": "its own"}
        inputs = {"k": {"method": "elicitation/create", "params": {"mode": "form", **QUESTION}}}
        kid.server.give(kid.server.last(), {**needed, "inputRequests": inputs})
    board.advance(COALESCE_S)
    asked = first.result(id)
    assert asked["resultType"] == "input_required"
    [(key, question)] = asked["inputRequests"].items()
    assert question["params"]["message"] == "Sure?"
    if is_ephemeral:
        first.leave()
    assert not running.task.done()

    second = new_host()
    again = {"requestState": asked["requestState"], "inputResponses": {key: YES}}
    id = second.call(suite="runner_suite", params=again)
    if era == "legacy":
        assert kid.server.reply() == {"jsonrpc": "2.0", "id": "q", "result": YES}
    else:
        params = kid.server.last()["params"]
        assert (params["inputResponses"], params["requestState"]) == ({"k": YES}, "its own")
    kid.server.give(kid.server.last(), DONE)
    board.settle()
    assert running.settled == Settled(text="done")
    assert second.answer(id) is None
    runner.server.give(runner.server.last(), DONE)
    board.settle()
    assert second.result(id)["content"] == DONE["content"]


def test_a_stateless_host_that_cannot_answer_is_not_asked(board: Board) -> None:
    kid, _ = board.child(tools=[dict(ECHO)]), board.child("runner", tools=[dict(ECHO)])
    host = board.passer()
    id = host.call(suite="runner_suite")
    [run] = host.session.in_flight.values()
    Running(host, request=run)
    kid.server.ask("elicitation/create", QUESTION)
    board.advance(COALESCE_S)
    assert host.answer(id) is None
    reply = kid.server.reply()
    assert reply is not None
    assert "error" in reply


def test_an_approval_is_for_the_subtools_that_were_shown_and_no_others() -> None:
    def approval(*manifest: tuple[str, str], writes: tuple[tuple[str, str], ...] = ()) -> str:
        checked = CheckedProgram(manifest=frozenset(manifest), writes=frozenset(writes))
        return PreparedProgram("code", checked).approval

    read, other = ("notes", "read"), ("notes", "re-ad")
    assert approval(read, other) == approval(other, read)
    different = [approval(read), approval(other), approval(read, other), approval(read, writes=(read,))]
    assert len(set(different)) == len(different)
