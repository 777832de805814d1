"""The record of one request (plan, executed steps, cost), and the tool results made from it.

A child's result stays unchanged except for additions to its `_meta`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.ask.conversation import Usage
from switchboard_mcp.ask.plan import PlanStep
from switchboard_mcp.config.sections import AskUsage
from switchboard_mcp.errors import KINDS, Failure, tool_result

NEWLINE = "\n"
PLAN, USE = "switchboard/plan", "switchboard/use"


class ExecutedStep(Struct, rename="camel", omit_defaults=True):
    """One step of the plan and its outcome."""

    subtool: str
    args: dict[str, object]
    ran: bool = False
    is_error: bool = False
    ms: float = 0.0


class AskRecord(Struct):
    """Plan and cost of one request."""

    steps: list[ExecutedStep] = []
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str = ""
    turns: int = 0
    model_s: float = 0.0
    steps_s: float = 0.0
    total_s: float = 0.0

    def add_steps(self, steps: Sequence[PlanStep]) -> list[ExecutedStep]:
        """Append steps that are about to run."""
        executed = [ExecutedStep(step.subtool, step.args) for step in steps]
        self.steps.extend(executed)
        return executed

    def usage_summary(self, outcome: str = "") -> AskUsage:
        """Return the cost so far."""
        return AskUsage(
            outcome=outcome,
            model=self.model,
            subtools=list(dict.fromkeys(step.subtool for step in self.steps if step.ran)),
            turns=self.turns,
            input_tokens=self.usage.read,
            output_tokens=self.usage.written,
            cached_tokens=self.usage.cached,
            model_ms=_ms(self.model_s),
            steps_ms=_ms(self.steps_s),
            total_ms=_ms(self.total_s),
        )

    def add_to(self, result: bytes) -> bytes:
        """Return the result with plan and cost added to its `_meta`."""
        members = msgspec.json.decode(result, type=dict[str, Raw])
        theirs = msgspec.json.decode(members["_meta"], type=dict[str, Raw]) if "_meta" in members else {}
        meta = {**theirs, PLAN: self.steps, USE: self.usage_summary(outcome_of(result))}
        return msgspec.json.encode({**members, "_meta": meta})

    def failure_result(self, problem: Failure) -> bytes:
        """Return the failure as a tool result that lists the plan and which steps have run."""
        lines = [f"{number}. {_line(step)}" for number, step in enumerate(self.steps, 1)]
        plan = f"\nThe plan:\n{NEWLINE.join(lines)}" if lines else ""
        reported = msgspec.structs.replace(problem, message=problem.message + plan)
        return self.add_to(tool_result(reported))


class _ToolResult(Struct, rename="camel"):
    is_error: bool | None = None
    structured_content: Any = None


def outcome_of(result: bytes) -> str:
    """Return `ok`, the code of our failure, or `child_failed` for an error result of the child."""
    members = msgspec.json.decode(result, type=_ToolResult)
    if not members.is_error:
        return "ok"
    error = members.structured_content.get("error") if isinstance(members.structured_content, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and code in KINDS else "child_failed"


def _line(step: ExecutedStep) -> str:
    state = "failed" if step.is_error else "done" if step.ran else "not run"
    return f"{step.subtool} {msgspec.json.encode(step.args).decode()} ({state})"


def join_results(results: Sequence[bytes], message: str) -> bytes:
    """Join the results of several steps: their content in order, then the model's message."""
    if len(results) == 1 and not message:
        return results[0]
    decoded = [msgspec.json.decode(result, type=dict[str, Raw]) for result in results]
    content = [
        block
        for members in decoded
        for block in (msgspec.json.decode(members["content"], type=list[Raw]) if "content" in members else [])
    ]
    if message:
        content.append(Raw(msgspec.json.encode({"type": "text", "text": message})))
    whole: dict[str, object] = dict(decoded[0]) if len(decoded) == 1 else {}
    whole["content"] = content
    if len(decoded) > 1 and any(members.get("isError") == Raw(b"true") for members in decoded):
        whole["isError"] = True
    return msgspec.json.encode(whole)


def dry_run_result(steps: Sequence[PlanStep], later: Sequence[str], confirmed: Sequence[str]) -> bytes:
    """Return the plan as the tool result of a dry run."""
    plan = {
        "steps": [{"subtool": step.subtool, "args": step.args} for step in steps],
        "laterSubtools": list(later),
        "mayFollow": list(later),  # former name, removed in the next release
        "needsConfirmation": list(confirmed),
    }
    text = msgspec.json.encode(plan)
    return msgspec.json.encode(
        {"content": [{"type": "text", "text": text.decode()}], "structuredContent": Raw(text)}
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
