"""What is done in place of a call is decided as the call would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from switchboard_mcp.config.gate import GateSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.factory import open_gate
from switchboard_mcp.gateway.pipeline.admission import refused_call
from switchboard_mcp.gateway.pipeline.pipeline import attach_pipelines
from switchboard_mcp.gateway.pipeline.plugins import LoadedMiddleware, NamedMiddleware
from switchboard_mcp.middleware import Answer, Middleware, Next, ToolCall
from tests.unit.gateway.board import ECHO, Board
from tests.unit.gateway.pipeline.chained import Recorder

DENY_SECRETS = {"deny": True, "args": {"text": {"glob": "*secret*"}}}


def decide(
    board: Board, text: str = "hello", *middleware: Middleware, rules: Sequence[Any] = ()
) -> tuple[str, Recorder]:
    """The code of the refusal, or `ok`; and what was recorded."""
    kid = board.child(tools=[dict(ECHO)])
    recorder = Recorder()
    board.services.records = recorder  # type: ignore[assignment]
    config = msgspec.structs.replace(board.config, gate=msgspec.convert({"rules": rules}, GateSettings))
    named = tuple(NamedMiddleware(f"m{place}", handler) for place, handler in enumerate(middleware))
    gate = open_gate(config, board.services) if rules else None
    attach_pipelines(board.gateway.suites, config, board.services, LoadedMiddleware(named), gate)
    found: list[Failure | None] = []

    async def ask() -> None:
        found.append(await refused_call(board.gateway, "ann", "kid", "echo", {"text": text}, "a2a"))

    board.services.start_task(ask())
    board.settle()
    assert not kid.runs or kid.server.requests("tools/call") == [], "only the decision is made"
    assert [session for session in board.gateway.sessions if session.client == "a2a"] == []
    (problem,) = found
    return "ok" if problem is None else problem.code, recorder


def test_a_call_that_may_be_made_is_recorded(board: Board) -> None:
    code, recorder = decide(board)
    assert (code, recorder.outcomes) == ("ok", ["ok"])


def test_a_rule_of_the_gate_refuses_by_arguments(board: Board) -> None:
    code, recorder = decide(board, "a secret", rules=[DENY_SECRETS])
    assert (code, recorder.outcomes) == ("gate_denied", ["gate_denied"])


def test_and_lets_others_pass(board: Board) -> None:
    assert decide(board, rules=[DENY_SECRETS])[0] == "ok"


async def passing(call: ToolCall, next: Next) -> Answer:
    return await next(call)


async def refusing(call: ToolCall, next: Next) -> Answer:
    return failure("middleware_refused", "No.")


async def changing(call: ToolCall, next: Next) -> Answer:
    return await next(call.with_arguments({"text": "other"}))


@pytest.mark.parametrize(
    ("handler", "code"),
    [(passing, "ok"), (refusing, "middleware_refused"), (changing, "middleware_failed")],
)
def test_middleware_passes_or_refuses_it_and_does_not_change_it(
    board: Board, handler: Middleware, code: str
) -> None:
    assert decide(board, "hello", handler)[0] == code
