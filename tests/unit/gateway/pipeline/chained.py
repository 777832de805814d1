"""A board whose suites have a chain: limits, cache, cap, middleware, and a record of what the audit was told."""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard_mcp.config.gate import NO_GATE, GateSection
from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.factory import open_gate
from switchboard_mcp.gateway.pipeline.pipeline import attach_pipelines
from switchboard_mcp.gateway.pipeline.plugins import LoadedMiddleware, NamedMiddleware
from switchboard_mcp.middleware import Answer, Middleware, Next, ToolCall
from switchboard_mcp.observability.call_record import CallRecord
from tests.unit.gateway.board import Board, Host, Json


class Recorder:
    """In place of the audit record: what it was told."""

    def __init__(self) -> None:
        self.write_failure: Failure | None = None
        self.fail_closed = False
        self.watch = None
        self.records: list[tuple[str, str, str, str, bytes, str, float]] = []
        self.life: list[tuple[str, str]] = []
        self.programs: list[str] = []

    def record(self, record: CallRecord) -> None:
        if record.kind == "child":
            self.life.append((record.child, record.outcome))
        else:
            self.records.append(msgspec.structs.astuple(record)[:7])  # all up to the time
            self.programs.append(record.origin.removeprefix("program "))

    @property
    def outcomes(self) -> list[str]:
        return [record[5] for record in self.records]


def chained(
    board: Board,
    *middleware: Middleware,
    limits: LimitSettings | None = None,
    audit: bool = True,
    gate: GateSection = NO_GATE,
) -> Recorder:
    """Give the suites of a board their chains; before the first host."""
    recorder = Recorder()
    if audit:
        board.services.records = recorder  # type: ignore[assignment]  # as far as calls go it is one
    config = msgspec.structs.replace(board.config, limits=limits or LimitSettings(), gate=gate)
    named = tuple(NamedMiddleware(f"m{place}", handler) for place, handler in enumerate(middleware))
    attach_pipelines(
        board.gateway.suites,
        config,
        board.services,
        LoadedMiddleware(named),
        open_gate(config, board.services),
    )
    return recorder


async def passing(call: ToolCall, next: Next) -> Answer:
    """Middleware that does nothing, which is enough for calls to take the long road."""
    return await next(call)


def error(host: Host, called: int | str) -> Json:
    problem: Json = host.result(called)["structuredContent"]["error"]
    return problem


def text(value: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": value}], **more}
