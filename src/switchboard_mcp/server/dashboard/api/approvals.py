"""API endpoints for calls that wait for a decision because a rule of the gate asks.

The questions are those of all servers of the workspace. An answer to this server's own continues its call at once;
another server reads its answer from a file that is signed with the user's key.
"""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.exceptions import HTTPException

from switchboard_mcp.gateway.gate.call_gate import CallGate
from switchboard_mcp.gateway.gate.open_questions import (
    StoredQuestion,
    questions_folder,
    stored_questions,
    write_answer,
)
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.system import work_thread


async def approvals(state: DashboardState, request: ApiRequest) -> object:
    """Return the open questions, the oldest first. A viewer who may not answer sees no arguments."""
    shown = [msgspec.to_builtins(question) for question in await open_questions(state)]
    for row in shown:
        del row["pid"]
        if not request.viewer.may_act:
            row["arguments"] = row["code"] = ""
    return {"approvals": shown}


async def allow(state: DashboardState, request: ApiRequest) -> object:
    """Let the call of a question go on."""
    return await _answer(state, request, allow=True)


async def deny(state: DashboardState, request: ApiRequest) -> object:
    """Refuse the call of a question."""
    return await _answer(state, request, allow=False)


async def _answer(state: DashboardState, request: ApiRequest, *, allow: bool) -> object:
    id = request.names[0]
    question = next((candidate for candidate in await open_questions(state) if candidate.id == id), None)
    if question is None:
        raise HTTPException(404, "This call no longer waits: it was answered, or its time is over.")
    principal = request.viewer.principal
    if principal and principal == question.principal:
        raise HTTPException(409, "Your token made this call itself. Another person must decide about it.")
    gate = state.services.gate
    if not (isinstance(gate, CallGate) and gate.questions.answer(id, allow=allow)):
        folder = _folder(state)
        try:
            await work_thread.run(work_thread.OWN, partial(write_answer, folder, id, allow=allow))
        except OSError as problem:
            raise HTTPException(
                500, f"The answer cannot be written: {problem.strerror or problem}."
            ) from None
    records = state.services.records
    if records is not None:
        actor = f"dashboard {principal}".strip()
        outcome = "approved" if allow else "rejected"
        records.record(CallRecord("gate", actor, question.child, question.subtool, outcome=outcome))
    return {"id": id, "child": question.child, "subtool": question.subtool, "allow": allow}


async def open_questions(state: DashboardState) -> list[StoredQuestion]:
    """Return the open questions of all servers of the workspace, the oldest first."""
    folder = _folder(state)
    return await work_thread.run(work_thread.OWN, partial(stored_questions, folder)) if folder else []


def _folder(state: DashboardState) -> str:
    return questions_folder(state.workspace.folder, state.services.environ)
