"""The answer to `run`: the value of the program, its last printed lines, and the calls it made.

A value beyond `limits.answerKb` is answered with its beginning; the whole of it stays here, behind a handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import encode

from switchboard_mcp.errors import KINDS
from switchboard_mcp.gateway.programs.prepared import CheckedProgram
from switchboard_mcp.gateway.results.handles import HandleEntry, new_handle, open_store
from switchboard_mcp.programs.engine import Failed
from switchboard_mcp.programs.run_loop import CallMade, Outcome
from switchboard_mcp.suites.suite_arguments import RESULT_SUBTOOL

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.calls import PipelineRequest

# The last part of what a program printed.
MAX_PRINTED_CHARS = 4_000
# Time for which a value behind a handle can be read.
KEEP_S = 1_800


class CallCount(Struct, frozen=True, omit_defaults=True):
    """The calls of one subtool. `failed` raised an exception in the program, `uncertain` may have been carried out.

    `write` is set in the answer of a program that failed: what the calls wrote stays.
    """

    subtool: str
    times: int = 1
    ms: int = 0
    bytes: int = 0
    failed: int = 0
    uncertain: int = 0
    write: bool = False


class RunAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer to `run`. `value` is UNSET if the program failed, or its value is behind the handle."""

    run: str
    value: Raw | UnsetType = UNSET
    head: str = ""
    handle: str = ""
    next: str = ""
    printed: str = ""
    calls: Sequence[CallCount] = ()
    warnings: Sequence[str] = ()


def answer_run(
    run_id: str, outcome: Outcome, answer_kb: int, request: PipelineRequest, program: CheckedProgram
) -> Raw | bytes:
    """Return the result of `run` for the host."""
    printed = outcome.printed[-MAX_PRINTED_CHARS:].encode("utf-8", "replace").decode()
    if outcome.failure is not None:
        calls = count_calls(outcome.calls, program)
        return _failed(RunAnswer(run_id, printed=printed, calls=calls), outcome.failure)
    calls, warnings = count_calls(outcome.calls), program.warnings
    value = outcome.value or b"null"
    if len(value) <= answer_kb * 1024:
        return encode(RunAnswer(run_id, Raw(value), printed=printed, calls=calls, warnings=warnings))
    handle = _keep(value, answer_kb, request)
    head = value[: answer_kb * 1024 // 2].decode("utf-8", "ignore")
    ways = (
        f"The value has {len(value) // 1024:,} KiB. Read on with "
        f'{{"action":"call","subtool":"{RESULT_SUBTOOL}","args":{{"handle":"{handle}","select":"JMESPath"}}}} '
        'or "page":1.'
    )
    return encode(RunAnswer(run_id, UNSET, head, handle, ways, printed, calls, warnings))


def count_calls(calls: Sequence[CallMade], program: CheckedProgram | None = None) -> list[CallCount]:
    """Count the calls by subtool, in order of first use; with `program`, also note which of them write."""
    grouped: dict[tuple[str, str], list[CallMade]] = {}
    for call in calls:
        grouped.setdefault((call.module, call.subtool), []).append(call)
    return [
        CallCount(
            f"{module}.{subtool}",
            len(group),
            round(sum(call.ms for call in group)),
            sum(call.bytes for call in group),
            sum(call.outcome == "error" for call in group),
            sum(call.outcome in ("uncertain", "open", "cancelled") for call in group),
            program is not None and (program.children.get(module), subtool) in program.writes,
        )
        for (module, subtool), group in grouped.items()
    ]


def _failed(answer: RunAnswer, problem: Failed) -> Raw:
    """Return the result for a program that failed: the message with its line, and the calls that were made."""
    code = "program_limit" if problem.kind == "limit" else "program_failed"
    where = f"Line {problem.line}: " if problem.line else ""
    text = f"{where}{problem.message}"
    if answer.calls:
        calls = ", ".join(f"{call.subtool} ×{call.times}" for call in answer.calls)
        text += f"\nCalls made before: {calls}."
    written = [call.subtool for call in answer.calls if call.write]
    if written:
        text += f" What was written stays ({', '.join(written)})."
    if answer.printed:
        text += f"\nPrinted:\n{answer.printed}"
    error = {
        "code": code,
        "message": f"{where}{problem.message}",
        "retryable": False,
        "hint": KINDS[code].hint,
    }
    result = {
        "content": [{"type": "text", "text": f"{text}\n{KINDS[code].hint}"}],
        "structuredContent": {
            "error": error,
            "run": answer.run,
            "calls": answer.calls,
            "printed": answer.printed,
        },
        "isError": True,
    }
    return Raw(encode(result))


def _keep(value: bytes, answer_kb: int, request: PipelineRequest) -> str:
    """Keep a value, and return the handle under which the host can read it."""
    body = encode({"content": [{"type": "text", "text": value.decode("utf-8", "replace")}]})
    entry = HandleEntry(
        handle=new_handle(),
        session=request.session,
        suite=request.suite.name,
        subtool="run",
        form="",
        shown=answer_kb * 1024 // 2,
        tokens=len(value) // 4,
        size=len(body),
        body=body,
    )
    open_store(request.session.broker).put(entry, KEEP_S)
    return entry.handle
