"""Requests of stateless hosts that wait for the host's input, while a legacy child waits for a response.

Client requests that a child sends together go out in one `input_required` result. Its `requestState` is a key to the
suspended request, valid once, for the same principal and the same request. Between rounds no request of the host is
open; if the child answers meanwhile, the answer is kept until the host resumes the request.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from switchboard_mcp.gateway.client_requests.client_request import (
    ChildRequest,
    Encode,
    InputOrigin,
    OpenRequest,
    ResumeResult,
)
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import decode_members

# A host that does not resume its request within this time has given up.
SUSPEND_TIMEOUT_S = 600.0
# A child may send several requests at once; waiting briefly for the rest is cheaper than another round trip.
COALESCE_S = 0.02
# Each suspended request holds a call open in its child, so their number is limited.
MAX_SUSPENDED = 1000
# One client must leave room for others.
MAX_SUSPENDED_OF_ONE = 250
MAX_PENDING_INPUTS = 64


class PendingInput(Struct):
    """Input requested from the host, and the child's request it answers."""

    origin: InputOrigin
    input_request: dict[str, object]


class SuspendedRequest:
    """A request waiting for its host. If `fresh`, no call is open in the child, and resuming repeats the call."""

    __slots__ = (
        "count",
        "expiry_timer",
        "fingerprint",
        "fresh",
        "outcome",
        "pending",
        "request",
        "send_timer",
        "state",
    )

    def __init__(self, request: OpenRequest, *, fresh: bool = False) -> None:
        self.request = request
        self.fingerprint = request.fingerprint()
        self.fresh = fresh
        self.state = ""
        self.count = 0
        self.pending: dict[str, PendingInput] = {}
        self.outcome: tuple[Encode, Raw | bytes] | None = None
        self.send_timer: TimerHandle | None = None
        self.expiry_timer: TimerHandle | None = None


class SuspendedRequests:
    """Suspends and resumes requests."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._by_state: dict[str, SuspendedRequest] = {}  # by state
        self._by_origin: dict[InputOrigin, SuspendedRequest] = {}  # by unanswered request
        self._prefix = ""

    def suspend(
        self, request: OpenRequest, origin: InputOrigin, method: str, params: Raw | UnsetType
    ) -> None:
        """Request input for a child in the middle of a stateless host's request."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        if suspended is None:
            suspended = request.suspended = SuspendedRequest(request)
        if self._is_full(request) or len(suspended.pending) >= MAX_PENDING_INPUTS:
            origin.refuse(INTERNAL_ERROR, "Too many client requests are pending.")
            return
        suspended.count += 1
        suspended.pending[f"q{suspended.count}"] = PendingInput(
            origin, client_requests.to_input_request(method, params)
        )
        self._by_origin[origin] = suspended
        request.extend_deadline(SUSPEND_TIMEOUT_S * 2)
        if request.is_awaited and suspended.send_timer is None:
            suspended.send_timer = self._loop.call_later(COALESCE_S, self._send_inputs, suspended)

    def request_urls(self, request: OpenRequest, input_requests: dict[str, dict[str, object]]) -> bool:
        """Ask the host to visit URLs before the child is called again; return False if there are too many suspended."""
        if self._is_full(request):
            return False
        self._answer_input_required(SuspendedRequest(request, fresh=True), input_requests)
        return True

    def resume(
        self,
        inbound: IncomingRequest,
        fingerprint: Callable[[], bytes],
        request_state: Raw | UnsetType,
        input: Raw | UnsetType,
    ) -> ResumeResult:
        """Resume a suspended request if a stateless host brings its state, with its input."""
        if request_state is UNSET or not inbound.is_stateless:
            return ResumeResult.FOREIGN
        state = message_meta.decode_text(request_state)
        if state is None:
            raise msgspec.ValidationError("`requestState` must be the string that was issued")
        responses = {} if input is UNSET else decode_members(input)
        if not self._prefix or not state.startswith(self._prefix):
            return ResumeResult.FOREIGN
        suspended = self._by_state.get(state)
        if suspended is None or not _matches(suspended, inbound, fingerprint()):
            inbound.refuse(INVALID_PARAMS, "Unknown or expired requestState.")
        elif inbound.is_duplicate:
            inbound.refuse(INVALID_REQUEST, "A request with this id is still in progress.")
        elif suspended.fresh:
            self._release(suspended)
            return ResumeResult.FRESH
        else:
            self._release(suspended)
            self._continue(suspended, inbound, responses)
        return ResumeResult.HANDLED

    def _continue(
        self, suspended: SuspendedRequest, inbound: IncomingRequest, responses: dict[str, Raw]
    ) -> None:
        for key, response in responses.items():
            if key in suspended.pending and message_meta.is_object(response):
                origin = suspended.pending.pop(key).origin
                self._by_origin.pop(origin, None)
                origin.answer(response)
        request = suspended.request
        if suspended.outcome is not None:
            encode, body = suspended.outcome
            inbound.channel.answer(encode(inbound.id, body))
            self.drop_inputs(request, "The request has ended.")
            return
        request.resume_as(inbound)
        if suspended.pending:
            self._send_inputs(suspended)
        else:
            request.restore_deadline()

    def cancel_input(self, origin: ChildRequest) -> None:
        """Drop a client request that its child has withdrawn."""
        suspended = self._by_origin.pop(origin, None)
        if suspended is not None:
            suspended.pending = {
                key: kept for key, kept in suspended.pending.items() if kept.origin != origin
            }
            if not suspended.pending and suspended.request.is_awaited:
                suspended.request.restore_deadline()

    def drop_inputs(self, request: OpenRequest, reason: str) -> None:
        """Refuse the pending client requests of a request the child has finished. Its host may still resume it."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        if suspended is not None:
            if suspended.send_timer is not None:
                suspended.send_timer.cancel()
                suspended.send_timer = None
            pending, suspended.pending = suspended.pending, {}
            for question in pending.values():
                self._by_origin.pop(question.origin, None)
                question.origin.refuse(INTERNAL_ERROR, reason)

    def is_asking(self, request: OpenRequest) -> bool:
        """Return True if a request is about to be answered with a request for input."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        return suspended is not None and bool(suspended.pending)

    def forget(self, request: OpenRequest) -> None:
        """Release a request that will not be resumed."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        if suspended is not None:
            self._release(suspended)

    def session_closed(self, session: Session) -> None:
        """Cancel the requests of a host that has disconnected, unless it opens a new session for each request."""
        if not session.ephemeral:
            for suspended in [*self._by_state.values()]:
                if suspended.request.session is session:
                    self._expire(suspended, "the host has disconnected")

    def _is_full(self, request: OpenRequest) -> bool:
        """Return True if no further request of this client can be suspended."""
        principal = request.session.principal
        own = sum(suspended.request.session.principal == principal for suspended in self._by_state.values())
        return own >= MAX_SUSPENDED_OF_ONE or len(self._by_state) >= MAX_SUSPENDED

    def _send_inputs(self, suspended: SuspendedRequest) -> None:
        suspended.send_timer = None
        if not suspended.request.is_awaited:  # the child answered without waiting for the input
            self.drop_inputs(suspended.request, "The request has ended.")
        elif suspended.pending:
            self._answer_input_required(
                suspended, {key: pending.input_request for key, pending in suspended.pending.items()}
            )

    def _answer_input_required(
        self, suspended: SuspendedRequest, input_requests: dict[str, dict[str, object]]
    ) -> None:
        from secrets import token_urlsafe

        if not self._prefix:  # unique to this process: a child may be another Switchboard
            self._prefix = f"switchboard:{token_urlsafe(6)}:"
        suspended.state = self._prefix + token_urlsafe(24)
        self._by_state[suspended.state] = suspended
        suspended.expiry_timer = self._loop.call_later(
            SUSPEND_TIMEOUT_S, self._expire, suspended, "the host did not resume the request"
        )
        request = suspended.request
        del request.session.in_flight[request.host_id]
        request.channel.answer(
            jsonrpc.result(
                request.host_id, message_meta.input_required_result(input_requests, suspended.state)
            )
        )

    def _release(self, suspended: SuspendedRequest) -> None:
        self._by_state.pop(suspended.state, None)
        if suspended.expiry_timer is not None:
            suspended.expiry_timer.cancel()

    def _expire(self, suspended: SuspendedRequest, reason: str) -> None:
        self._release(suspended)
        if suspended.outcome is not None:
            self.drop_inputs(suspended.request, reason)
        elif not suspended.fresh:
            suspended.request.cancel(reason)


def _matches(suspended: SuspendedRequest, inbound: IncomingRequest, fingerprint: bytes) -> bool:
    """Return True if a request of the same client resumes this suspended one."""
    session = suspended.request.session
    same_client = session is inbound.session if not session.ephemeral else inbound.session.ephemeral
    return (
        same_client
        and session.principal == inbound.session.principal
        and suspended.fingerprint == fingerprint
    )
