"""Runs one natural-language request: get a turn from the model, judge it, confirm it, run it, until the plan is done.

Enforces the limits of steps, tokens and time. `ask.plan` decides which steps may run; model, toolbox and consent are
passed in. Every outcome is a tool result with the plan and its cost in `_meta`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from switchboard_mcp.ask import prompt
from switchboard_mcp.ask.conversation import (
    Conversation,
    Correction,
    Feedback,
    InitialPrompt,
    ModelReply,
    PlanningModel,
    Results,
)
from switchboard_mcp.ask.plan import (
    Finished,
    Go,
    Offered,
    PlanLimits,
    PlanStep,
    SendBack,
    StopPlan,
    judge,
    to_confirm,
)
from switchboard_mcp.ask.record import AskRecord, dry_run_result, join_results
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.errors import SwitchboardError, failure

Agreement = Literal["yes", "no", "nobody"]
# Reports progress: steps done, steps expected, and a description.
ReportProgress = Callable[[float, float, str], None]


class AskRequest(Struct, frozen=True):
    """A natural-language request."""

    query: str
    context: str = ""
    dry_run: bool = False


class Toolbox(Protocol):
    """The child that runs the steps, behind all its policies."""

    @property
    def child(self) -> str:
        """Return the name of the child."""

    async def offered(self) -> list[Offered]:
        """Return the allowed subtools, always in the same order. May raise `SwitchboardError`."""

    async def call(self, step: PlanStep) -> bytes:
        """Return the unchanged result of a step, even of a failed one. May raise `SwitchboardError`."""


class Consent(Protocol):
    """Asks a person for consent."""

    async def request(self, steps: Sequence[PlanStep], grave: Sequence[PlanStep]) -> Agreement:
        """Ask whether these steps may run, of which some are `grave`. Return `nobody` if no one can be asked."""


class Participants(Struct, frozen=True):
    """The parties of a request. `role` describes the child; `trusted` subtools need no consent."""

    toolbox: Toolbox
    model: PlanningModel
    consent: Consent
    settings: AskSettings
    trusted: Callable[[str], bool]
    role: str = ""
    clock: Callable[[], float] = time.monotonic


class Stopped(Exception):  # noqa: N818 - it never leaves this module
    """The request cannot be completed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def run_request(
    request: AskRequest, participants: Participants, report: ReportProgress
) -> tuple[bytes, AskRecord]:
    """Run a request. Return the tool result and the record of plan and cost."""
    record = AskRecord()
    began = participants.clock()
    work = _RequestRun(request, participants, record, report)
    try:
        async with asyncio.timeout(participants.settings.timeout_ms / 1000) as work.limit:
            result = await work.run()
    except TimeoutError:
        message = f"The request took longer than {participants.settings.timeout_ms} ms (ask.timeoutMs)."
        problem = failure("ask_limit", message, child=participants.toolbox.child)
    except Stopped as stopped:
        problem = failure(stopped.code, str(stopped), child=participants.toolbox.child)
    except SwitchboardError as problem_met:
        problem = problem_met.failure
    else:
        record.total_s = participants.clock() - began
        return record.add_to(result), record
    record.total_s = participants.clock() - began
    return record.failure_result(problem), record


class _RequestRun:
    def __init__(
        self, request: AskRequest, participants: Participants, record: AskRecord, report: ReportProgress
    ) -> None:
        self._request = request
        self._participants = participants
        self._record = record
        self._report = report
        self._delimiter = f"=={os.urandom(8).hex()}=="
        self._shown = 0.0
        self.limit: asyncio.Timeout

    async def run(self) -> bytes:
        """Run turns until the request is complete. Return its tool result."""
        participants, settings = self._participants, self._participants.settings
        offered = {tool.name: tool for tool in await participants.toolbox.offered()}
        if not offered:
            raise Stopped(
                "ask_impossible", f"Child '{participants.toolbox.child}' has no subtools that may be used."
            )
        text = prompt.request(self._request.query, self._request.context, self._delimiter)
        conversation = participants.model.start(
            InitialPrompt(participants.toolbox.child, participants.role, list(offered.values()), text)
        )
        limits = PlanLimits(settings.max_steps)
        feedback: Feedback | None = None
        last: list[bytes] = []
        while True:
            reply = await self._request_turn(conversation, feedback)
            verdict = judge(reply.turn, offered, limits)
            if isinstance(verdict, StopPlan):
                raise Stopped(verdict.code, verdict.message)
            if isinstance(verdict, Finished):
                return join_results(last, verdict.message)
            if isinstance(verdict, SendBack):
                feedback = Correction(verdict.problems)
                limits = PlanLimits(limits.steps_left, limits.within, sent_back=True)
                continue
            grave = to_confirm(verdict.steps, offered, settings.confirm, participants.trusted)
            if self._request.dry_run:
                later = [] if verdict.last else sorted(verdict.within)
                return dry_run_result(verdict.steps, later, [step.subtool for step in grave])
            last, failed = await self._run_steps(verdict, grave)
            if verdict.last:
                return join_results(last[-1:] if failed else last, "")
            limits = PlanLimits(limits.steps_left - len(last), verdict.within)
            feedback = self._results_of(verdict.steps, last)

    async def _request_turn(self, conversation: Conversation, feedback: Feedback | None) -> ModelReply:
        record, settings = self._record, self._participants.settings
        left = settings.max_tokens - record.usage.total
        if left <= 0:
            raise Stopped(
                "ask_limit", f"The request used more than {settings.max_tokens} tokens (ask.maxTokens)."
            )
        self._report_progress("asking the model")
        began = self._participants.clock()
        try:
            reply = await (
                conversation.begin(left) if feedback is None else conversation.resume(feedback, left)
            )
        finally:
            record.model_s += self._participants.clock() - began
        record.turns += 1
        record.model = reply.model
        record.usage.add(reply.usage)
        return reply

    async def _run_steps(self, verdict: Go, grave: Sequence[PlanStep]) -> tuple[list[bytes], bool]:
        """Run the steps in order up to the first failure. Return the results and whether one failed."""
        executed_steps = self._record.add_steps(verdict.steps)
        await self._confirm(verdict.steps, grave)
        results: list[bytes] = []
        for step, executed in zip(verdict.steps, executed_steps, strict=True):
            self._report_progress(f"calling {step.subtool}")
            began = self._participants.clock()
            try:
                result = await self._participants.toolbox.call(step)
            finally:
                spent = self._participants.clock() - began
                self._record.steps_s += spent
                executed.ms = round(spent * 1000, 1)
            executed.ran = True
            executed.is_error = is_error(result)
            results.append(result)
            if executed.is_error:
                return results, True
        return results, False

    async def _confirm(self, steps: Sequence[PlanStep], grave: Sequence[PlanStep]) -> None:
        """Get consent for the steps. The time a person takes does not count against the timeout."""
        deadline = self.limit.when()
        began = asyncio.get_running_loop().time()
        self.limit.reschedule(None)
        agreement = await self._participants.consent.request(steps, grave)
        waited = asyncio.get_running_loop().time() - began
        self.limit.reschedule(None if deadline is None else deadline + waited)
        names = ", ".join(dict.fromkeys(step.subtool for step in grave or steps))
        if agreement == "no":
            raise Stopped("ask_declined", f"The user did not agree to: {names}.")
        if agreement == "nobody":
            message = f"These steps need consent, and the host cannot ask its user: {names}. Nothing was run."
            raise Stopped("ask_unconfirmed", message)

    def _results_of(self, steps: Sequence[PlanStep], results: Sequence[bytes]) -> Results:
        texts = [
            prompt.delimited(self._delimiter, step.subtool, result)
            for step, result in zip(steps, results, strict=False)
        ]
        return Results(texts + ["Not run: an earlier step failed."] * (len(steps) - len(results)))

    def _report_progress(self, activity: str) -> None:
        self._shown += 1
        self._report(self._shown, max(self._shown, 2.0 * self._participants.settings.max_steps), activity)


def is_error(result: bytes) -> bool:
    """Return True if a tool result reports an error."""
    if b'"isError"' not in result:
        return False
    return bool(msgspec.json.decode(result, type=dict[str, object]).get("isError"))
