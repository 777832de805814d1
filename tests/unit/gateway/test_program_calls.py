"""Calls of programs: cancelled with the program, within its manifest, and never mistaken for calls of the host."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import UNSET

from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sections import ProgramSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
from switchboard_mcp.gateway.programs import program_server
from switchboard_mcp.gateway.programs.program_calls import ProgramRun
from switchboard_mcp.programs.engine import Settled
from tests.unit.gateway.board import ECHO, FOLDER, Board, Host

ECHO_OF_KID = frozenset({("kid", "echo")})


class Running:
    """A call that a program of a host has begun."""

    def __init__(self, host: Host, subtool: str = "echo") -> None:
        request = cast(PipelineRequest, SimpleNamespace(session=host.session, channel=host.road, meta=UNSET))
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


def test_without_the_extra_one_error_names_the_command_that_adds_it(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_server, "find_spec", lambda name: None)
    config = Config(programs=ProgramSettings(enabled=True))
    workspace = Workspace(folder=FOLDER, source="c.json", config=config, children=[], warnings=[])
    with pytest.raises(SwitchboardError) as refusal:
        program_server.ProgramServer.open(workspace, board.services)
    problem = refusal.value.failure
    assert problem.code == "config_invalid"
    assert "programs.enabled" in problem.message
    assert "install" in str(problem.hint)
    assert "programs]" in str(problem.hint)
