"""Requests of modern hosts that wait for the host's input, while the child goes on as if it had asked a host of old.

What a child asks in one breath is asked in one `input_required`. The state that comes with it is a key into this lot:
good for one return, by the same principal, with the same request. Between the rounds no request of the host is open;
what the child answers meanwhile is kept for its return.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from enum import Enum

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.request import Encode, HostRequest
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta
from switchboard_mcp.transport.base import MessageTransport

# A host that does not come back for its suspended request within this time has request_state up.
SUSPEND_TIMEOUT_S = 600.0
# What a child asks at once comes in a few pieces; a round trip to the host costs more than pending for the rest.
COALESCE_S = 0.02
# Each holds a call open in its child; so many are no hosts but a flood.
MAX_SUSPENDED = 1000
MAX_PENDING_INPUTS = 64

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class ChildRequest(Struct, frozen=True):
    """Where a child's question came from."""

    link: MessageTransport
    id: bytes

    def answer(self, result: Raw | bytes) -> None:
        """Give the child its answer."""
        self.link.send(jsonrpc.result(self.id, result))

    def refuse(self, code: int, message: str) -> None:
        """Tell the child that there is none."""
        self.link.send(jsonrpc.error(self.id, code, message))


class PendingInput(Struct):
    """A question for the host, and who asks it."""

    origin: ChildRequest
    input_request: dict[str, object]


class SuspendedRequest:
    """A request in the lot. Without a call in the child it is `fresh`: its return is a call like the first."""

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

    def __init__(self, request: HostRequest, *, fresh: bool = False) -> None:
        self.request = request
        self.fingerprint = request.fingerprint()
        self.fresh = fresh
        self.state = ""
        self.count = 0
        self.pending: dict[str, PendingInput] = {}
        self.outcome: tuple[Encode, Raw | bytes] | None = None
        self.send_timer: TimerHandle | None = None
        self.expiry_timer: TimerHandle | None = None


class ResumeResult(Enum):
    """What a request is that brings a state."""

    HANDLED = "dealt with"
    FRESH = "fresh"  # to be served as if it had brought none
    FOREIGN = "foreign"  # the state is not one of ours


class SuspendedRequests:
    """See the module."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._by_state: dict[str, SuspendedRequest] = {}  # by state
        self._by_origin: dict[ChildRequest, SuspendedRequest] = {}  # by what is asked and not answered
        self._prefix = ""

    def suspend(
        self, request: HostRequest, origin: ChildRequest, method: str, params: Raw | UnsetType
    ) -> None:
        """A child asks in the middle of a modern host's request."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        if suspended is None:
            suspended = request.suspended = SuspendedRequest(request)
        if self._is_full or len(suspended.pending) >= MAX_PENDING_INPUTS:
            origin.refuse(INTERNAL_ERROR, "Too many questions wait for an answer.")
            return
        suspended.count += 1
        suspended.pending[f"q{suspended.count}"] = PendingInput(
            origin, client_requests.to_input_request(method, params)
        )
        self._by_origin[origin] = suspended
        request.extend_deadline(SUSPEND_TIMEOUT_S * 2)
        if request.is_awaited and suspended.send_timer is None:
            suspended.send_timer = self._loop.call_later(COALESCE_S, self._send_inputs, suspended)

    def request_urls(self, request: HostRequest, input_requests: dict[str, dict[str, object]]) -> bool:
        """A child wants URLs to be visited before it is called again; False where there is no room to ask."""
        if self._is_full:
            return False
        self._answer_input_required(SuspendedRequest(request, fresh=True), input_requests)
        return True

    def resume(
        self,
        inbound: IncomingRequest,
        fingerprint: bytes,
        request_state: Raw | UnsetType,
        input: Raw | UnsetType,
    ) -> ResumeResult:
        """A modern host may bring a state, and input with it."""
        if request_state is UNSET or not inbound.is_stateless:
            return ResumeResult.FOREIGN
        state = message_meta.decode_text(request_state)
        if state is None:
            raise msgspec.ValidationError("`requestState` must be the text that was request_state")
        responses = {} if input is UNSET else _decode_object(input)
        if not self._prefix or not state.startswith(self._prefix):
            return ResumeResult.FOREIGN
        suspended = self._by_state.get(state)
        if suspended is None or not _matches(suspended, inbound, fingerprint):
            inbound.refuse(INVALID_PARAMS, "Unknown or expired requestState.")
        elif inbound.is_duplicate:
            inbound.refuse(INVALID_REQUEST, "A request with this id is still under way.")
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
            self.drop_inputs(request, "The request is over.")
            return
        request.resume_as(inbound)
        if suspended.pending:
            self._send_inputs(suspended)
        else:
            request.extend_deadline(request.timeout)

    def cancel_input(self, origin: ChildRequest) -> None:
        """A child no longer wants an answer."""
        suspended = self._by_origin.pop(origin, None)
        if suspended is not None:
            suspended.pending = {
                key: kept for key, kept in suspended.pending.items() if kept.origin != origin
            }
            if not suspended.pending and suspended.request.is_awaited:
                suspended.request.extend_deadline(suspended.request.timeout)

    def drop_inputs(self, request: HostRequest, reason: str) -> None:
        """The child is done with a request: what it asked needs no answer. Its host may still come back for it."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        if suspended is not None:
            if suspended.send_timer is not None:
                suspended.send_timer.cancel()
                suspended.send_timer = None
            pending, suspended.pending = suspended.pending, {}
            for question in pending.values():
                self._by_origin.pop(question.origin, None)
                question.origin.refuse(INTERNAL_ERROR, reason)

    def forget(self, request: HostRequest) -> None:
        """Nobody will come back for a request."""
        suspended: SuspendedRequest | None = getattr(request, "suspended", None)
        if suspended is not None:
            self._release(suspended)

    def session_closed(self, session: Session) -> None:
        """A host has gone for good, unless it is one that comes anew with each request."""
        if not session.ephemeral:
            for suspended in [*self._by_state.values()]:
                if suspended.request.session is session:
                    self._expire(suspended, "the host has gone")

    @property
    def _is_full(self) -> bool:
        return len(self._by_state) >= MAX_SUSPENDED

    def _send_inputs(self, suspended: SuspendedRequest) -> None:
        suspended.send_timer = None
        if not suspended.request.is_awaited:  # the child did not wait for its answers
            self.drop_inputs(suspended.request, "The request is over.")
        elif suspended.pending:
            self._answer_input_required(
                suspended, {key: pending.input_request for key, pending in suspended.pending.items()}
            )

    def _answer_input_required(
        self, suspended: SuspendedRequest, input_requests: dict[str, dict[str, object]]
    ) -> None:
        from secrets import token_urlsafe

        if not self._prefix:  # of this process alone: a child may be another Switchboard
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
    """Whether a request is the suspended one come back."""
    principal = suspended.request.session.principal
    return principal == inbound.session.principal and suspended.fingerprint == fingerprint
