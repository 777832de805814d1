"""The gate of the program suite: a program is checked, and approved once with all it can call, before it runs.

A rule that denies one of its subtools refuses the whole program. If a rule asks about one, or `programs.approve` says
so, the user is asked once, with the code and the subtools. What the user has allowed is not asked about again.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.gateway.gate.call_gate import CallGate, hints_of, peek_retry_input
from switchboard_mcp.gateway.gate.questions import Question, Subject, show_arguments, show_code, show_name
from switchboard_mcp.gateway.programs.prepared import PreparedProgram
from switchboard_mcp.policy.gate.rules import Decision, GateCall

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gate.call_gate import RetryInput
    from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
    from switchboard_mcp.gateway.programs.program_server import ProgramServer

RUN = "run"
THIS_RUN = "Your answer counts for this run only."
# Distinguishes the question about a program from those of rules, which have small numbers.
PROGRAM_RULE = 1 << 120


class ManifestGate:
    """Decides the calls of the program suite. Implements `Gate`."""

    def __init__(self, server: ProgramServer, gate: CallGate) -> None:
        self._server = server
        self._gate = gate

    def admit(
        self, request: PipelineRequest, proceed: Callable[[], None], refuse: Callable[[Failure], None]
    ) -> None:
        """Apply the rules to the call itself, and to `run` the check and the approval of the program.

        A rule that asks about any tool asks about the subtools that the program can call, not about `run` as well.
        """
        if not request.listed_in:  # it is about the task of an earlier call
            self._gate.admit(request, proceed, refuse)
            return
        if request.target()[0] != RUN:

            def go_on() -> None:
                self._server.admitted(request)
                proceed()

            self._gate.admit(request, go_on, refuse)
            return
        retried = peek_retry_input(request)

        def prepare() -> None:
            self._server.start_task(self._prepare(request, retried, proceed, refuse))

        self._gate.admit(request, prepare, refuse, in_parts=True)

    async def _prepare(
        self,
        request: PipelineRequest,
        retried: RetryInput | None,
        proceed: Callable[[], None],
        refuse: Callable[[Failure], None],
    ) -> None:
        try:
            prepared = await self._server.prepare(request)
            if not request.finished:
                self._decide(request, prepared, retried, proceed, refuse)
        except CancelledError:
            raise
        except SwitchboardError as problem:
            refuse(problem.failure)
        except Exception as problem:  # noqa: BLE001 - the host gets an answer, without our internals
            self._server.log_problem(problem)
            refuse(failure("internal", "The program could not be prepared."))

    def _decide(
        self,
        request: PipelineRequest,
        prepared: PreparedProgram,
        retried: RetryInput | None,
        proceed: Callable[[], None],
        refuse: Callable[[Failure], None],
    ) -> None:
        reasons: list[str] = []
        by_rule, by_setting = False, self._asks_by_itself(prepared)
        for child, subtool in sorted(prepared.manifest):
            decision = self._decision_about(request, child, subtool)
            if decision.effect == "deny":
                reason = f" Reason: {decision.reason}" if decision.reason else ""
                message = (
                    f"A rule of this workspace denies the subtool '{subtool}' of child '{child}'.{reason}"
                )
                refuse(failure("gate_denied", message, child=child, subtool=subtool))
                return
            if decision.effect == "ask":
                by_rule = True
                if decision.reason and decision.reason not in reasons:
                    reasons.append(decision.reason)
        if not (by_rule or by_setting) or prepared.was_approved:
            self._server.admitted(request, prepared, approved=prepared.was_approved)
            proceed()
            return

        def allowed() -> None:
            self._server.admitted(request, prepared, approved=True)
            proceed()

        question = self._question(request, prepared, " ".join(reasons))
        decision = Decision("ask", _rule_of(prepared), question.reason)
        subject = _subject(prepared, by_rule=by_rule)
        self._gate.ask(request, question, decision, allowed, refuse, retried, subject)

    def _asks_by_itself(self, prepared: PreparedProgram) -> bool:
        approve = self._server.settings.approve
        return approve == "always" or (approve == "writes" and bool(prepared.writes))

    def _decision_about(self, request: PipelineRequest, child: str, subtool: str) -> Decision:
        session = request.session
        suite = self._server.gateway.view_of(session.viewer).suite_of(child)
        if suite is None:
            return Decision("deny")
        matches = (tool for tool in suite.child.inventory.known_tools() if tool.name == subtool)
        call = GateCall(
            "tool", child, suite.name, subtool, request.client, session.principal, session.profile
        )
        return self._gate.decision_about(call, hints_of(suite, next(matches, None)))

    def _question(self, request: PipelineRequest, prepared: PreparedProgram, reason: str) -> Question:
        redactor = self._server.redactor
        calls = ", ".join(
            f"{show_name(child)}.{show_name(subtool)} ({'write' if (child, subtool) in prepared.writes else 'read'})"
            for child, subtool in sorted(prepared.manifest)
        )
        masked_calls = ""
        if prepared.input:
            whole, masked = show_arguments(prepared.input, [], redactor)
            masked_calls = f"{calls}. Input: {masked}" if masked else ""
            calls += f". Input: {whole}"
        code, masked_code = show_code(prepared.code, redactor)
        return Question(
            child=request.suite.source,
            subtool=f"{RUN} {prepared.name}".strip(),
            arguments=calls or "nothing",
            reason=reason,
            scope=THIS_RUN,
            client=show_name(request.client),
            principal=request.session.principal,
            code=code or " ",
            masked_arguments=masked_calls,
            masked_code=masked_code,
        )


def _subject(prepared: PreparedProgram, *, by_rule: bool) -> Subject:
    """Return the program as messages of the gate name it: by the subtools that it can write to, or else call."""
    named = ", ".join(f"{show_name(child)}.{show_name(subtool)}" for child, subtool in _named(prepared))
    program = f"the program '{prepared.name}'" if prepared.name else "the program"
    if prepared.writes:
        program += f", which can write ({named})"
    elif named:
        program += f", which can call {named}"
    if by_rule:
        return Subject(program, "A rule of `gate`", "change the rule")
    return Subject(program, "The setting programs.approve", 'set programs.approve to "never"')


def _named(prepared: PreparedProgram) -> list[tuple[str, str]]:
    return sorted(prepared.writes or prepared.manifest)


def _rule_of(prepared: PreparedProgram) -> int:
    """Return the number of the question about a program; it differs for any other code, input or manifest."""
    parts = (prepared.code, prepared.input.decode("utf-8", "replace"), repr(sorted(prepared.manifest)))
    return PROGRAM_RULE | int.from_bytes(sha256("\0".join(parts).encode("utf-8", "replace")).digest()[:15])
