"""Requests to a child whose suite has a pipeline: recorded, limited, paged, cached and passed through middleware.

Each class is the plain request with its start and its ends overridden. Limits and records apply to every request;
so does middleware, if configured, and the cache to tool calls: then the request has an `Interception`. Progress,
requests from the child to the host and cancellation work as without a pipeline.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from switchboard_mcp.errors import INVALID_REQUEST, Failure, failure
from switchboard_mcp.gateway.forward import RESOURCES, TOOLS, ForwardedRequest
from switchboard_mcp.gateway.incoming import RETRY_MEMBERS
from switchboard_mcp.gateway.pipeline.interception import CALL, Interception
from switchboard_mcp.gateway.request import HostRequest
from switchboard_mcp.gateway.suites.suite_calls import SubtoolCall
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.middleware import is_error
from switchboard_mcp.observability.call_record import CallRecord, ErrorKeeper
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.apps import APP
from switchboard_mcp.protocol.method_traits import traits_of
from switchboard_mcp.suites.suite_arguments import SuiteCall

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.pipeline import CallPipeline
    from switchboard_mcp.gateway.pipeline.rate_limit import RateLimiter
    from switchboard_mcp.gateway.pipeline.watched_call import WatchedCall
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

# Methods whose params have an item and its arguments.
WITH_ARGUMENTS = frozenset({CALL, "prompts/get"})
# Methods that the rules of the gate apply to. The others continue what was let through, such as a task.
COMPLETION = "completion/complete"
GATED_METHODS = frozenset(
    {
        CALL,
        "prompts/get",
        "resources/read",
        "resources/directory/read",
        "skills/get",
        "resources/subscribe",
        "subscriptions/listen",
        COMPLETION,
    }
)
_STATE = ("error", "finished", "interception", "limiter", "outcome", "pipeline", "started_at", "watch")


class Gate(Protocol):
    """Decides calls before they proceed. Implemented by `gateway.gate`."""

    def admit(
        self, request: PipelineRequest, proceed: Callable[[], None], refuse: Callable[[Failure], None]
    ) -> None:
        """Call `proceed` at once or when the user has allowed the request, else `refuse`."""


class PipelineRequest(HostRequest):
    """Adds limits, records, paging and interception to a request for a child."""

    if not TYPE_CHECKING:
        __slots__ = ()  # the leaf classes declare `_STATE`: two bases with slots of their own cannot be combined

    pipeline: CallPipeline
    suite: ChildSuite
    started_at: float
    limiter: RateLimiter | None  # set while the request holds one of its slots
    interception: Interception | None  # None if there is neither middleware nor cache
    outcome: str  # empty until the child or a failure has settled it
    error: bytes  # what went wrong, as the host is told, if the request failed
    finished: bool
    watch: WatchedCall | None  # None unless details of calls are kept
    kind = "call"  # as the audit log names it
    follows_call = False
    origin = ""
    selects = False  # the host wants a part of the result, which is taken from the whole
    deliver = HostRequest.finish  # answers the host; `super()` would cost as much as the rest of `finish`

    def sample(self, result: Raw | bytes) -> None:
        """Let the type of the result be learned: only of suite calls."""

    @abstractmethod
    def target(self) -> tuple[str, bytes]:
        """Return the name of what is called, as the child knows it, and the arguments as JSON."""

    @abstractmethod
    def permits(self, subtool: str) -> bool:
        """Return True if middleware may change the request to this subtool."""

    @abstractmethod
    def replace_call(self, subtool: str, args: bytes) -> None:
        """Call a different subtool, or the same one with different arguments."""

    @abstractmethod
    def retry_input(self) -> tuple[Raw | UnsetType, Raw | UnsetType]:
        """Return `requestState` and `inputResponses` of a stateless host that repeats the request."""

    @abstractmethod
    def drop_retry_input(self) -> None:
        """Remove them: they are not for the child."""

    @property
    def listed_in(self) -> str:
        """The list that has what is called; empty for a request that is only a part of another."""
        return TOOLS

    @property
    def suite_tool(self) -> str:
        """The suite tool that the host has called; empty for a request that is not a suite call."""
        return ""

    @property
    def can_be_answered(self) -> bool:
        """True unless the host expects no answer."""
        return True

    @property
    def is_worth_asking(self) -> bool:
        """True unless it only helps to write a request that is asked about."""
        return True

    @property
    def is_approved_program_call(self) -> bool:
        """True if a program makes the call, and the user has allowed that program to."""
        program = self.session.program_calls.get(self.host_id)
        return program is not None and program.is_approved(self.suite.source, self.target()[0])

    def require_input(self, requests: dict[str, dict[str, object]], state: str) -> None:
        """Answer a stateless host that its input is needed; it repeats the request with that."""
        if not self.finished and self.is_awaited:
            self.close("input_required")
            if self.interception is not None:  # middleware may wait for the gate
                self.interception.cancel()
            del self.session.in_flight[self.host_id]
            self.channel.answer(
                jsonrpc.result(self.host_id, message_meta.input_required_result(requests, state))
            )

    def begin(self) -> None:
        """Start the request, unless the id is in use or nothing may be done unrecorded."""
        if self.session.in_flight.setdefault(self.host_id, self) is not self:
            message = "A request with this id is still in progress."
            self.session.refuse(self.channel, self.host_id, INVALID_REQUEST, message)
            return
        observer = self.pipeline.observer
        if observer is not None and observer.watch is not None:
            self.watch = self.channel = observer.watch(self)
        if observer is not None and observer.fail_closed and observer.write_failure is not None:
            self.on_failed(observer.write_failure)
        elif self.pipeline.gate is not None:
            self.pipeline.gate.admit(self, self.enter, self.on_failed)
        else:
            self.enter()

    def enter(self) -> None:
        """Continue with the middleware and the cache, if there are any."""
        if self.interception is not None:
            self.interception.begin()
        else:
            self.proceed(self.started_at)

    def proceed(self, now: float) -> None:
        """Continue with the limits and the child."""
        limiters = self.pipeline.limiters
        if limiters is not None:
            limiter = limiters.shared or limiters.for_principal(self.session.principal)
            decision = limiter.acquire(self, now)
            if decision is not True:
                if decision is not False:
                    self.on_failed(decision)
                return
        try:
            if self.watch is not None:
                self.watch.acquire(self.acquire_child, self)
            else:
                self.acquire_child()
        except BaseException:
            self.release_slot()
            raise

    def on_admitted(self) -> None:
        """Continue with the child after waiting for a slot."""
        try:
            if self.watch is not None:
                self.watch.acquire(self.acquire_child, self)
            else:
                self.acquire_child()
        except Exception as problem:  # noqa: BLE001 - runs from the event loop, so nobody else would answer the host
            self.on_failed(failure("internal", f"The call failed unexpectedly: {type(problem).__name__}."))

    def finish(self, result: Raw | bytes) -> None:
        """Answer the host with a result, unless middleware waits for it. Sends the first page if it is too large."""
        if self.finished:
            return
        body = bytes(result)
        if self.watch is not None:
            self.watch.settled()
        if self.interception is not None and self.interception.takes(body):
            return
        if not self.outcome:
            # `is_error` looks for this first; doing it here saves a call for nearly every result.
            if body.find(b'"isError"') > 0 and is_error(body):
                self.outcome, self.error = "error", body
            else:
                self.outcome = "ok"
        if self.child.result_types is not None:
            self.sample(body)
        pager = self.pipeline.pager
        if pager is not None and len(body) > pager.max_bytes and self.kind == "call" and not self.selects:
            body = pager.first_page(body, self.session, self.target()[0])
        self.close(self.outcome)
        self.deliver(body)

    def on_failed(self, problem: Failure) -> None:
        """Handle a failure: for middleware that waits for the result, else for the host."""
        if self.finished:
            return
        self.outcome, self.error = problem.code, jsonrpc.encode(problem)
        if self.watch is not None:
            self.watch.problem = problem
            self.watch.settled()
        if self.interception is None or not self.interception.on_failure(problem):
            super().on_failed(problem)

    def finish_with_error(self, body: Raw | bytes) -> None:
        """Answer the host with a JSON-RPC error, past any middleware."""
        if not self.finished:
            self.error = bytes(body)
            self.close(self.outcome or "protocol_error")
            super().finish_with_error(body)

    def answer_host_error(self, error: Raw) -> bool:
        """Answer the host if the error is about the host itself; return whether it was."""
        answered = super().answer_host_error(error)
        if answered and not self.finished:
            self.close("input_required")
        return answered

    def cancel(self, reason: str) -> None:
        """Stop everything: the host no longer waits."""
        if not self.finished:
            self.withdraw()
            self.close("cancelled")
            if self.interception is not None:
                self.interception.cancel()
        super().cancel(reason)

    def stop_child(self, reason: str) -> None:
        """Cancel the request to the child and leave the one of the host open."""
        super().cancel(reason)

    def close(self, outcome: str) -> None:
        """Release what the request holds, and record how it ended."""
        self.finished = True
        if self.limiter is not None:
            self.limiter.release(self)
        if self.interception is not None:
            self.interception.close()
        pipeline = self.pipeline
        observer = pipeline.observer
        if observer is not None:
            subtool, args = self.target()
            session = self.session
            principal = session.principal or pipeline.context.default_principal
            seconds = pipeline.now() - self.started_at
            session.calls += 1
            number = 0 if session.ephemeral else session.calls
            observer.record(
                CallRecord(
                    self.kind,
                    principal,
                    pipeline.source,
                    subtool,
                    args,
                    outcome,
                    seconds,
                    0.0,
                    self.client,
                    number,
                    self.origin,
                    0 if session.ephemeral else session.number,
                )
            )
            if self.watch is not None:
                self.watch.close(self, args)
            if self.error and isinstance(observer, ErrorKeeper):
                observer.keep_error(self.error, args, self.suite.redact_args)

    def release_slot(self) -> None:
        """Give the slot to the next call that waits."""
        if self.limiter is not None:
            self.limiter.release(self)

    def withdraw(self) -> None:
        """Release the slot, or stop waiting for one."""
        limiters = self.pipeline.limiters
        if self.limiter is None and limiters is not None:
            limiters.for_principal(self.session.principal).abandon(self)
        self.release_slot()

    def admit_again(self, settle: Callable[[Failure | None], None]) -> bool:
        """Let the gate decide the call as middleware has changed it; return False if there is no gate."""
        if self.pipeline.gate is None:
            return False
        self.pipeline.gate.admit(self, lambda: settle(None), settle)
        return True

    def fingerprint(self) -> bytes:
        """Identify the call as the host sent it, since the host will repeat that, and not what middleware sends."""
        original = self.interception.original_fingerprint if self.interception is not None else b""
        return original or super().fingerprint()


class PipelineCall(PipelineRequest, SubtoolCall):
    """`action: call` of a suite with a pipeline."""

    __slots__ = _STATE
    deliver = SubtoolCall.finish
    sample = SubtoolCall.sample

    def __init__(
        self,
        session: Session,
        channel: ReplyChannel,
        host_id: bytes,
        params: PlainParams,
        pipeline: CallPipeline,
    ) -> None:
        # Written out instead of two calls: with policy, audit and limits on, every call comes through here.
        self.session = session
        self.channel = channel
        self.host_id = host_id
        self.suite = suite = pipeline.suite
        self.child = suite.child
        self.params = params
        self.meta = params.meta
        self.id = b""
        self.pipeline = pipeline
        self.started_at = pipeline.now()
        self.limiter = None
        self.outcome = ""
        self.error = b""
        self.finished = False
        self.watch = None
        self.interception = Interception(self) if pipeline.intercepts else None

    @property
    def suite_tool(self) -> str:
        """The suite tool that the host has called: the suite or one of its twins."""
        return self.params.name

    @property
    def origin(self) -> str:  # type: ignore[override]
        """The run for a call that a program has made, otherwise empty."""
        programs = self.session.program_calls
        return f"program {programs[self.host_id].run_id}" if self.host_id in programs else ""

    @property
    def selects(self) -> bool:  # type: ignore[override]
        """True if the host wants a part of the result, or a program the whole of it."""
        arguments = self.params.arguments
        return bool(arguments.select or arguments.find) or self.host_id in self.session.program_calls

    def target(self) -> tuple[str, bytes]:
        """Return the subtool and its arguments."""
        arguments = self.params.arguments
        return arguments.subtool, bytes(arguments.args)  # type: ignore[arg-type]  # settled, so never UNSET

    def permits(self, subtool: str) -> bool:
        """Return True if the subtool is not denied."""
        return self.suite.access.permits(subtool)

    def replace_call(self, subtool: str, args: bytes) -> None:
        """Call a different subtool, or the same one with different arguments."""
        old = self.params
        select, find = old.arguments.select, old.arguments.find
        arguments = SuiteCall(action="call", subtool=subtool, args=Raw(args), select=select, find=find)
        self.params = PlainParams(old.name, arguments, old.meta, old.input_responses, old.request_state)

    def retry_input(self) -> tuple[Raw | UnsetType, Raw | UnsetType]:
        """Return `requestState` and `inputResponses` of a stateless host that repeats the call."""
        return self.params.request_state, self.params.input_responses

    def drop_retry_input(self) -> None:
        """Remove them: they are not for the child."""
        self.params.request_state = self.params.input_responses = UNSET


class PipelineForward(PipelineRequest, ForwardedRequest):
    """A forwarded request to a child whose suite has a pipeline."""

    __slots__ = _STATE

    def __init__(self, plain: ForwardedRequest, pipeline: CallPipeline) -> None:
        super().__init__(plain.inbound, plain.match, plain.members, plain.relay)
        self.pipeline = pipeline
        self.started_at = pipeline.now()
        self.limiter = None
        self.outcome = ""
        self.error = b""
        self.finished = False
        self.watch = None
        intercepts = pipeline.intercepts if self.kind == "call" else bool(pipeline.middleware)
        self.interception = Interception(self) if intercepts else None

    @property
    def kind(self) -> str:  # type: ignore[override]
        """`call` for a tool, otherwise the method."""
        return "call" if self.method == CALL else self.method

    @property
    def origin(self) -> str:  # type: ignore[override]
        """`app` for a call of an app's page, otherwise empty."""
        return APP if self.match.by_page else ""

    @property
    def follows_call(self) -> bool:  # type: ignore[override]
        """True for a request about the task of an earlier call."""
        return traits_of(self.method).follows_call

    def target(self) -> tuple[str, bytes]:
        """Return the item, as the child knows it, and the arguments, or the other params of a request without any."""
        if self.method in WITH_ARGUMENTS:
            return self.match.name, bytes(self.members.get("arguments", Raw(b"{}")))
        left_out = (
            traits_of(self.method).item_param if self.match.listed_in == RESOURCES else "",
            *RETRY_MEMBERS,
        )
        others = {name: value for name, value in self.members.items() if name not in left_out}
        return self.match.name, jsonrpc.encode(others)

    def permits(self, subtool: str) -> bool:
        """Return True if the item is not denied. Only a request that names its item can be for another."""
        return replace(self.match, name=subtool).is_permitted and (
            subtool == self.match.name or self._item_param != ""
        )

    def replace_call(self, subtool: str, args: bytes) -> None:
        """Send the request for a different item, or for the same one with different arguments."""
        if self.method in WITH_ARGUMENTS:
            self.members = {**self.members, "arguments": Raw(args)}
        else:
            kept = {name: self.members[name] for name in RETRY_MEMBERS if name in self.members}
            self.members = {**jsonrpc.decode_members(args), **kept}
        if self._item_param:
            self.members = {**self.members, self._item_param: Raw(jsonrpc.encode(subtool))}
        self.match = replace(self.match, name=subtool)

    @property
    def listed_in(self) -> str:
        """The list that has the item; empty for a request that is only a part of another, or about many items."""
        return self.match.listed_in if self.method in GATED_METHODS else ""

    @property
    def can_be_answered(self) -> bool:
        """True unless the host expects no answer."""
        return not self.host_id.startswith(b"!")

    @property
    def is_worth_asking(self) -> bool:
        """True unless it only completes the arguments of a request that is asked about."""
        return self.method != COMPLETION

    def retry_input(self) -> tuple[Raw | UnsetType, Raw | UnsetType]:
        """Return `requestState` and `inputResponses` of a stateless host that repeats the request."""
        return self.members.get("requestState", UNSET), self.members.get("inputResponses", UNSET)

    def drop_retry_input(self) -> None:
        """Remove them: they are not for the child."""
        self.members = {name: value for name, value in self.members.items() if name not in RETRY_MEMBERS}

    def refuse(self, error: bytes, outcome: str) -> None:
        """Answer with a JSON-RPC error, and record the outcome."""
        self.outcome = outcome
        super().refuse(error, outcome)

    @property
    def _item_param(self) -> str:
        """The param that names the item; empty if the request is not for a tool, prompt or resource by its name."""
        named = self.method in WITH_ARGUMENTS or self.match.listed_in == RESOURCES
        return traits_of(self.method).item_param if named else ""
