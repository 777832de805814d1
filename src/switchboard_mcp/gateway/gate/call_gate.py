"""The gate on the way to a child: every call is decided before it proceeds, and the user is asked if a rule says so.

| host | how it is asked |
| --- | --- |
| a command in this process | at its terminal |
| with a handshake, and elicitation | `elicitation/create`, while the call waits |
| stateless, and elicitation | an `input_required` result with a signed state; the host repeats the call |
| any other | `switchboard approvals`, the dashboard, and a mail to the overseer about these; the call waits a while, |
| | then is refused and may be repeated |

An answer comes from the host or from the user's own shell, never from arguments or results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.gate import GateSettings
from switchboard_mcp.errors import Failure, failure, shell_word
from switchboard_mcp.gateway.forward import PROMPTS, RESOURCES, TOOLS
from switchboard_mcp.gateway.gate.arguments import AmbiguousArgumentsError, readings
from switchboard_mcp.gateway.gate.open_questions import OpenQuestions, gate_key, questions_folder
from switchboard_mcp.gateway.gate.questions import (
    ELICITATION,
    Question,
    Subject,
    scope_text,
    show_arguments,
    show_name,
)
from switchboard_mcp.gateway.gate.signed_states import StateSigner, is_gate_state
from switchboard_mcp.gateway.request_context import DelegatedWaiter
from switchboard_mcp.gateway.session import Approver
from switchboard_mcp.policy.gate.conditions import Surroundings
from switchboard_mcp.policy.gate.rules import (
    Candidates,
    Decision,
    GateCall,
    GateRules,
    Kind,
    ToolHints,
    tool_hints,
    without_general_questions,
)
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.system import work_thread
from switchboard_mcp.system.real_paths import real_path
from switchboard_mcp.system.user_folders import state_folder

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite
    from switchboard_mcp.mail.server import MailServer

# At the end of a mail to the overseer. An answer by mail could not be distinguished from one that an agent has written.
ANSWER_BY = (
    "Answer on the dashboard, or in a terminal with `switchboard approvals allow {id}` or `switchboard approvals "
    "deny {id}`. A reply to this message is not an answer."
)
# The key of the input request in an `input_required` result.
INPUT_KEY = "approval"
KINDS: dict[str, Kind] = {TOOLS: "tool", RESOURCES: "resource", PROMPTS: "prompt"}
# Paths in arguments are looked up on disk, so only short ones are decided on the loop.
LOOP_BYTES = 1024
# Answered calls of other clients do not count, so this many clients and calls can be remembered.
MAX_GRANTS = 10_000


# The state that a stateless host returns, and its answers.
RetryInput = tuple[str, Raw | UnsetType]


class Grant(Struct, frozen=True):
    """An answer that counts for later calls. `until` is a time of the event loop; None for the session."""

    allow: bool
    until: float | None


class GatedCall(Struct):
    """One call in the gate. Exactly one of `proceed` and `refuse` ends it."""

    request: PipelineRequest
    call: GateCall
    args: bytes
    proceed: Callable[[], None]
    refuse: Callable[[Failure], None]
    rules: GateRules
    decision: Decision = Decision("allow")
    is_answered: bool = False
    question: Question | None = None  # created from the call if there is none
    subject: Subject | None = None  # of that question; without one, the call

    @property
    def is_open(self) -> bool:
        """True while the host waits for the call."""
        return not self.request.finished


class CallGate:
    """Decides the calls of all suites, and remembers the user's answers."""

    def __init__(self, settings: GateSettings, context: ChildContext) -> None:
        self.settings = settings
        self._rules = GateRules(settings)
        self._rules_of_wholes = GateRules(without_general_questions(settings))
        self._context = context
        self._now = context.loop.time
        self._signer: StateSigner | None = None
        self._grants: dict[tuple[object, ...], Grant] = {}
        # Questions to the user by the call that they are about, each with the last call that waited for it.
        self._asked: dict[tuple[object, ...], tuple[str, GatedCall]] = {}
        self.questions = OpenQuestions(questions_folder(context.workspace, context.environ), context.loop)

    def admit(
        self,
        request: PipelineRequest,
        proceed: Callable[[], None],
        refuse: Callable[[Failure], None],
        *,
        in_parts: bool = False,
    ) -> None:
        """Call `proceed` at once or when the user has allowed the request, else `refuse`.

        With `in_parts`, the caller decides what the call does part by part, so rules that ask about any tool do not ask
        about the whole.
        """
        kind = KINDS.get(request.listed_in)
        if kind is None:
            proceed()
            return
        gated = _gated(request, kind, proceed, refuse, self._rules_of_wholes if in_parts else self._rules)
        candidates = gated.rules.candidates(gated.call)
        if candidates.settled is not None:
            self._apply(gated, candidates.settled)
        elif _needs_tool(candidates, kind, gated.args) and not self._knows_hints(request):
            request.child.acquire(_StartFirst(self, gated, candidates))
        else:
            self.decide(gated, candidates)

    def ask(
        self,
        request: PipelineRequest,
        question: Question,
        decision: Decision,
        proceed: Callable[[], None],
        refuse: Callable[[Failure], None],
        retried: RetryInput | None,
        subject: Subject,
    ) -> None:
        """Ask the user a question that was not created from the call itself. `decision.rule` identifies it.

        `retried` is what `peek_retry_input` returned before the rules were applied to the call.
        """
        gated = _gated(request, "tool", proceed, refuse, self._rules)
        gated.decision, gated.question, gated.subject = decision, question, subject
        self._ask(gated, retried)

    def decision_about(self, call: GateCall, hints: ToolHints) -> Decision:
        """Return the decision about a subtool whose arguments are not known yet: a rule that may ask does ask.

        A rule that denies some arguments is applied to the call itself.
        """
        candidates = self._rules.candidates(call)
        return candidates.settled or self._rules.decide_by_names_alone(candidates, call.kind, hints)

    def decide(self, gated: GatedCall, candidates: Candidates) -> None:
        """Decide a call whose tool is known."""
        if not candidates.needs_args:
            hints = self._hints(gated)
            self._apply(gated, gated.rules.decide_by_hints(candidates, gated.call.kind, hints))
        elif len(gated.args) <= LOOP_BYTES:
            try:
                decision: Decision | Exception = self._decide_by_arguments(gated, candidates)
            except Exception as problem:  # noqa: BLE001 - what cannot be compared is refused, as in the thread
                decision = problem
            self._on_decided(gated, decision)
        else:
            work_thread.submit(
                gated.request.session,
                partial(self._decide_by_arguments, gated, candidates),
                partial(self._on_decided, gated),
            )

    def _decide_by_arguments(self, gated: GatedCall, candidates: Candidates) -> Decision:
        tool = self._tool(gated)
        hints = hints_of(gated.request.suite, tool)
        decided = gated.rules.decide_by_names(candidates, gated.call.kind, hints, gated.args)
        if decided is not None:
            return decided
        around = surroundings(gated.request.child, self._context)
        args = readings(gated.args, tool.input_schema if tool is not None else UNSET)
        return gated.rules.strictest(candidates, gated.call.kind, hints, args, around)

    def _hints(self, gated: GatedCall) -> ToolHints:
        return hints_of(gated.request.suite, self._tool(gated))

    def _tool(self, gated: GatedCall) -> Tool | None:
        call = gated.call
        return gated.request.pipeline.known_tool(call.name) if call.kind == "tool" else None

    def _on_decided(self, gated: GatedCall, decision: Decision | Exception) -> None:
        if isinstance(decision, Decision):
            self._apply(gated, decision)
        elif gated.is_open:
            reason = (
                str(decision) if isinstance(decision, AmbiguousArgumentsError) else "they are too complex"
            )
            message = f"The arguments of '{gated.call.name}' cannot be compared with the rules: {reason}."
            self._refuse(gated, "gate_denied", message)

    def _apply(self, gated: GatedCall, decision: Decision) -> None:
        if not gated.is_open:
            return
        gated.decision = decision
        watch = gated.request.watch
        if watch is not None:
            watch.decision = decision
        retried = _take_retry_input(gated.request)
        if (
            decision.effect == "allow"
            or (decision.effect == "ask" and not gated.request.is_worth_asking)
            or (decision.effect == "ask" and gated.request.is_approved_program_call)
        ):
            gated.proceed()
        elif decision.effect == "deny":
            self._refuse(gated, "gate_denied", f"A rule of this workspace denies {_describe(gated)}.")
        else:
            self._ask(gated, retried)

    def _ask(self, gated: GatedCall, retried: RetryInput | None) -> None:
        """Ask the user, unless an earlier answer counts."""
        request, rule = gated.request, gated.decision.rule
        interception = request.interception
        if interception is not None and interception.answered_rule == rule:
            gated.proceed()  # middleware has changed a call that this rule has asked about
            return
        answered = self._answered_rule(gated, retried)
        if retried is not None and answered == rule:
            responses = jsonrpc.decode_members(retried[1]) if isinstance(retried[1], Raw) else {}
            if INPUT_KEY in responses:
                self._states().use(retried[0], time.time())
                self._take_result(gated, responses[INPUT_KEY])
                return
        # Continued with input that the child requested, or with the answer to another question about the same call.
        is_continued = request.retry_input()[0] is not UNSET or answered not in (None, rule)
        answer = self._known_answer(gated, continued=is_continued)
        if answer is not None:
            self._settle(gated, answer)
        elif not request.can_be_answered:
            self._refuse(gated, "gate_unanswered", f"Nobody can be asked about {_describe(gated)}.")
        elif len(gated.args) <= work_thread.LOOP_BYTES:
            self._put(gated, self._question(gated))
        else:
            work_thread.submit(
                gated.request.session, partial(self._question, gated), partial(self._put, gated)
            )

    def _put(self, gated: GatedCall, question: Question | Exception) -> None:
        """Ask where the user can answer: at the terminal, in the host, or outside of it."""
        if not gated.is_open:
            return
        if isinstance(question, Exception):
            self._refuse(gated, "gate_unanswered", f"The arguments of {_describe(gated)} cannot be shown.")
        elif gated.request.session.approver is not None:
            self._ask_at_terminal(gated, question, gated.request.session.approver)
        elif _missing(gated.request) is None and question.is_shown_whole:
            self._ask_host(gated, question)
        else:
            self._ask_user(gated, question)

    def _ask_at_terminal(self, gated: GatedCall, question: Question, approver: Approver) -> None:
        if not approver.is_available:
            subject = gated.subject
            asked_by = subject.asked_by if subject is not None else "A rule"
            message = (
                f"{asked_by} asks before {_describe(gated)}, and this command has no terminal to ask at."
            )
            hint = "Run the same command in your own terminal"
            hint += f", or {subject.remedy}." if subject is not None else "."
            self._refuse(gated, "gate_unanswered", message, hint)
            return
        self._record(gated, "gate_asked")
        approver.ask(question.text(), partial(self._on_direct_answer, gated))
        self._context.loop.call_later(self.settings.keep_ms / 1000, self._on_direct_answer, gated, None)

    def _on_direct_answer(self, gated: GatedCall, allow: bool | None) -> None:
        """Handle the answer of the person at the terminal; None if it did not come in time."""
        if gated.is_open and not gated.is_answered:
            if allow is None:
                self._refuse(gated, "gate_unanswered", f"The user did not answer about {_describe(gated)}.")
            else:
                self._remember(gated, allow=allow)
                self._settle(gated, allow)

    def _ask_host(self, gated: GatedCall, question: Question) -> None:
        request = gated.request
        self._record(gated, "gate_asked")
        if request.is_stateless:
            params = Raw(question.elicitation())
            expires_at = time.time() + self.settings.keep_ms / 1000
            rule, principal = gated.decision.rule, request.session.principal
            state = self._states().issue(request.fingerprint(), principal, rule, expires_at)
            request.require_input({INPUT_KEY: client_requests.to_input_request(ELICITATION, params)}, state)
        else:
            request.timeout_s = request.call_timeout_s(request.child)
            request.session.broker.send(
                request.session,
                request,
                ELICITATION,
                question.elicitation(),
                partial(self._on_host_answer, gated),
            )

    def _on_host_answer(self, gated: GatedCall, message: RpcMessage) -> None:
        if gated.is_open:
            error = jsonrpc.get_error(message)
            self._take_result(gated, None if error is not None else message.result)

    def _answered_rule(self, gated: GatedCall, retried: RetryInput | None) -> int | None:
        """Return the rule whose question a stateless host has answered; None if the state is not valid."""
        if retried is None:
            return None
        request = gated.request
        return self._states().rule_of(
            retried[0], request.fingerprint(), request.session.principal, time.time()
        )

    def _take_result(self, gated: GatedCall, result: object) -> None:
        """Take the result of an elicitation: accepted, declined or cancelled."""
        action = ""
        if isinstance(result, Raw) and message_meta.is_object(result):
            action = message_meta.decode_text(jsonrpc.decode_members(result).get("action")) or ""
        if action in ("accept", "decline"):
            self._remember(gated, allow=action == "accept")
            self._settle(gated, allow=action == "accept")
        else:  # closed without an answer, or the host failed: the next call asks again
            self._refuse(gated, "gate_unanswered", f"The user did not answer about {_describe(gated)}.")

    def _ask_user(self, gated: GatedCall, question: Question) -> None:
        """Ask the user outside of the host, and let the call wait for a while."""
        settings = self.settings
        key = self._call_key(gated, continued=False)
        id, earlier = self._asked.get(key, ("", gated))
        if id and not earlier.is_open:  # the same call is repeated while its question is open
            self._asked[key] = (id, gated)
            self.questions.take_over(id, partial(self._on_user_answer, gated))
            self._wait(gated, id)
            return
        asker = gated.request.session.principal or _client_of(gated.request)
        if not self.questions.has_room_for(asker):
            self._refuse(gated, "gate_unanswered", f"Nobody can be asked about {_describe(gated)}.")
            return
        self._record(gated, "gate_asked")
        try:
            on_answer = partial(self._on_user_answer, gated)
            id = self.questions.ask(question, settings.keep_ms / 1000, on_answer, asker)
        except OSError as problem:
            message = f"Nobody can be asked about {_describe(gated)}: {problem.strerror or problem}."
            self._refuse(gated, "gate_unanswered", message)
            return
        self._asked[key] = (id, gated)
        if (mail := self._mail()) is not None:
            mail.notes.post(id, f"Approval {id}: {question.text(masked=True)}\n\n{ANSWER_BY.format(id=id)}")
        self._wait(gated, id)

    def _mail(self) -> MailServer | None:
        return cast("MailServer | None", self._context.builtin_apps.get("mail"))

    def _wait(self, gated: GatedCall, id: str) -> None:
        gated.request.on_progress(
            1, f"Waiting for approval: run `switchboard approvals allow {shell_word(id)}`."
        )
        self._context.loop.call_later(self.settings.wait_ms / 1000, self._stop_waiting, gated, id)

    def _on_user_answer(self, gated: GatedCall, allow: bool | None) -> None:
        id, _ = self._asked.pop(self._call_key(gated, continued=False), ("", gated))
        if (mail := self._mail()) is not None:
            mail.notes.settle(
                id, "No answer in time." if allow is None else "Allowed." if allow else "Denied."
            )
        if allow is not None:
            self._remember(gated, allow=allow, later=not gated.is_open)
            if gated.is_open:
                self._settle(gated, allow)
        elif gated.is_open:
            self._refuse(gated, "gate_unanswered", f"The user did not answer about {_describe(gated)}.")

    def _stop_waiting(self, gated: GatedCall, id: str) -> None:
        """Refuse a call that has waited long enough; an answer still counts when the call is repeated."""
        if gated.is_open and any(question.id == id for question in self.questions.all()):
            message = f"{_describe(gated, capital=True)} waits for the user's approval."
            hint = f"Ask the user to run `switchboard approvals allow {shell_word(id)}`, then make the same call again."
            self._refuse(gated, "gate_waiting", message, hint)

    def _settle(self, gated: GatedCall, allow: bool) -> None:
        if not gated.is_open:
            return
        if self._context.gate is not self:
            message = f"The rules have changed since the question about {_describe(gated)}."
            self._refuse(gated, "gate_unanswered", message, "Make the same call again.")
            return
        gated.is_answered = True
        self._record(gated, "gate_allowed" if allow else "gate_declined")
        if allow:
            if gated.request.interception is not None:
                gated.request.interception.answered_rule = gated.decision.rule
            gated.proceed()
        else:
            self._refuse(gated, "gate_declined", f"The user declined {_describe(gated)}.")

    def _refuse(self, gated: GatedCall, code: str, message: str, hint: str = "") -> None:
        reason = gated.decision.reason
        text = f"{message} Reason: {reason}" if reason else message
        call = gated.call
        gated.refuse(failure(code, text, child=call.child, subtool=call.name, hint=hint))

    def _remember(self, gated: GatedCall, *, allow: bool, later: bool = False) -> None:
        """Keep an answer for later calls of the subtool, as the rule says; `later` for the next one in any case."""
        duration, keep_s = gated.decision.seconds, self.settings.keep_ms / 1000
        if len(self._grants) >= MAX_GRANTS:
            self._drop_grants()
        if duration != 0 and allow:
            until = None if duration is None else self._now() + duration
            self._grants[self._subtool_key(gated)] = Grant(allow, until)
        # The same call, continued with input that its child requested, or repeated because the answer came late.
        self._grants[self._call_key(gated, continued=not later)] = Grant(allow, self._now() + keep_s)

    def _drop_grants(self) -> None:
        """Forget what has expired and what closed sessions were granted; everything if that is not enough."""
        now = self._now()
        kept = {
            key: grant
            for key, grant in self._grants.items()
            if (grant.until is None or now < grant.until) and not getattr(key[0], "closed", False)
        }
        self._grants = kept if len(kept) < MAX_GRANTS else {}

    def _known_answer(self, gated: GatedCall, *, continued: bool) -> bool | None:
        """Return an earlier answer that counts for this call, or None."""
        now = self._now()
        granted = self._grants.get(self._subtool_key(gated))
        if granted is not None and (granted.until is None or now < granted.until):
            return granted.allow
        if continued:
            granted = self._grants.get(self._call_key(gated, continued=True))
        else:
            granted = self._grants.pop(self._call_key(gated, continued=False), None)
        return granted.allow if granted is not None and now < (granted.until or 0) else None

    def _subtool_key(self, gated: GatedCall) -> tuple[object, ...]:
        request, call = gated.request, gated.call
        return (_client_of(request), gated.decision.rule, call.child, call.kind, call.name)

    def _call_key(self, gated: GatedCall, *, continued: bool) -> tuple[object, ...]:
        request = gated.request
        return (_client_of(request), gated.decision.rule, continued, request.fingerprint())

    def _question(self, gated: GatedCall) -> Question:
        if gated.question is not None:
            return gated.question
        request, call = gated.request, gated.call
        whole, masked = show_arguments(gated.args, request.suite.redact_args, self._context.redactor)
        return Question(
            child=call.child,
            subtool=show_name(call.name),
            arguments=whole,
            masked_arguments=masked,
            reason=gated.decision.reason,
            scope=scope_text(gated.decision.seconds),
            client=show_name(call.client),
            principal=call.principal,
        )

    def _record(self, gated: GatedCall, outcome: str) -> None:
        request = gated.request
        if request.watch is not None:
            request.watch.note_decision(outcome)
        request.pipeline.record_decision(
            "gate", request.session, gated.call.name, outcome, gated.args, client=gated.call.client
        )

    def _knows_hints(self, request: PipelineRequest) -> bool:
        """Return True if the tools are those of the running child, or locked. A catalog may be out of date."""
        inventory = request.child.inventory
        return bool(inventory.tools) or inventory.governed

    def _states(self) -> StateSigner:
        """Return the signer of states; without a state folder its key is valid until the server stops."""
        if self._signer is None:
            folder = state_folder(self._context.environ, "gate")
            try:
                key = gate_key(folder) if os.path.isabs(folder) else os.urandom(32)
            except OSError as problem:
                self._context.log.warning("gate.no_key", problem=str(problem))
                key = os.urandom(32)
            self._signer = StateSigner(key, os.path.realpath(self._context.workspace))
        return self._signer


class _StartFirst(DelegatedWaiter):
    """Decides a call once its child has listed its tools."""

    __slots__ = ("_candidates", "_gate", "_gated")

    def __init__(self, gate: CallGate, gated: GatedCall, candidates: Candidates) -> None:
        super().__init__(gated.request)
        self._gate, self._gated, self._candidates = gate, gated, candidates

    def on_ready(self, child: Child) -> None:
        """Decide the call, unless the host has cancelled it."""
        if self._gated.is_open:
            self._gate.decide(self._gated, self._candidates)

    def on_failed(self, problem: Failure) -> None:
        """Fail the call: the child did not start."""
        if self._gated.is_open:
            self._gated.refuse(problem)


def hints_of(suite: ChildSuite, tool: Tool | None) -> ToolHints:
    """Return the annotations of a tool; MCP's defaults for one that is unknown."""
    if tool is None:
        return ToolHints()
    hints = suite.annotations_of(tool)
    return tool_hints(hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)


def surroundings(child: Child, context: ChildContext) -> Surroundings:
    """Return what relative paths in the arguments of a child's calls refer to."""
    workspace = context.workspace
    folder = os.path.join(workspace, child.spec.cwd) if child.spec.cwd else workspace
    return Surroundings(folder, workspace, context.environ.get("HOME", ""), real_path)


def _gated(
    request: PipelineRequest,
    kind: Kind,
    proceed: Callable[[], None],
    refuse: Callable[[Failure], None],
    rules: GateRules,
) -> GatedCall:
    name, args = request.target()
    suite, session = request.suite, request.session
    call = GateCall(
        kind,
        suite.source,
        suite.name,
        name,
        request.client,
        session.principal,
        session.profile,
        request.suite_tool,
    )
    return GatedCall(request, call, args, proceed, refuse, rules)


def _needs_tool(candidates: Candidates, kind: Kind, args: bytes) -> bool:
    """Return whether the decision needs the tool: its hints, or its schema because of JSON in a text."""
    holds_json = b'"{' in args or b'"[' in args
    return candidates.needs_hints or (candidates.needs_args and kind == "tool" and holds_json)


def _client_of(request: PipelineRequest) -> object:
    """Return whose answers count for a request: its session, or its principal if every request is a session."""
    return request.session.process_owner


def peek_retry_input(request: PipelineRequest) -> RetryInput | None:
    """Return the state and the answers that a stateless host has sent to the gate, and leave them in the request."""
    state, input = request.retry_input()
    text = message_meta.decode_text(state) if state is not UNSET else None
    return (text, input) if text is not None and is_gate_state(text) else None


def _take_retry_input(request: PipelineRequest) -> RetryInput | None:
    """Remove and return the state and the answers that a stateless host has sent to the gate.

    They are not for the child, and are kept in case middleware changes the call.
    """
    state, input = request.retry_input()
    interception = request.interception
    if state is UNSET:
        return interception.gate_input if interception is not None else None
    text = message_meta.decode_text(state)
    if text is None or not is_gate_state(text):
        return None
    request.drop_retry_input()
    if interception is not None:
        interception.gate_input = (text, input)
    return text, input


def _missing(request: PipelineRequest) -> object:
    return client_requests.missing_capability(request.capabilities, ELICITATION, UNSET)


def _describe(gated: GatedCall, *, capital: bool = False) -> str:
    call = gated.call
    words = {"tool": "the call of subtool", "resource": "the resource", "prompt": "the prompt"}[call.kind]
    text = f"{words} '{show_name(call.name)}' of child '{call.child}'"
    if gated.subject is not None:
        text = gated.subject.text
    return text[0].upper() + text[1:] if capital else text
