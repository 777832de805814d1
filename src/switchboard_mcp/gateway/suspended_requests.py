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

# A host that does not come back for its parked request within this time has given up.
PARKED_S = 600.0
# What a child asks at once comes in a few pieces; a round trip to the host costs more than waiting for the rest.
BREATH_S = 0.02
# Each holds a call open in its child; so many are no hosts but a flood.
MOST_PARKED = 1000
MOST_WAITING = 64

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class Origin(Struct, frozen=True):
    """Where a child's question came from."""

    link: MessageTransport
    id: bytes

    def answer(self, result: Raw | bytes) -> None:
        """Give the child its answer."""
        self.link.send(jsonrpc.result(self.id, result))

    def refuse(self, code: int, message: str) -> None:
        """Tell the child that there is none."""
        self.link.send(jsonrpc.error(self.id, code, message))


class WaitingQuestion(Struct):
    """A question for the host, and who asks it."""

    origin: Origin
    question: dict[str, object]


class SuspendedRequest:
    """A request in the lot. Without a call in the child it is `fresh`: its return is a call like the first."""

    __slots__ = ("asking", "count", "fingerprint", "fresh", "outcome", "request", "state", "timer", "waiting")

    def __init__(self, request: HostRequest, *, fresh: bool = False) -> None:
        self.request = request
        self.fingerprint = request.fingerprint()
        self.fresh = fresh
        self.state = ""
        self.count = 0
        self.waiting: dict[str, WaitingQuestion] = {}
        self.outcome: tuple[Encode, Raw | bytes] | None = None
        self.asking: TimerHandle | None = None
        self.timer: TimerHandle | None = None


class ResumeResult(Enum):
    """What a request is that brings a state."""

    DEALT_WITH = "dealt with"
    FRESH = "fresh"  # to be served as if it had brought none
    FOREIGN = "foreign"  # the state is not one of ours


class SuspendedRequests:
    """See the module."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._parked: dict[str, SuspendedRequest] = {}  # by state
        self._asked: dict[Origin, SuspendedRequest] = {}  # by what is asked and not answered
        self._prefix = ""

    def park(self, request: HostRequest, origin: Origin, method: str, params: Raw | UnsetType) -> None:
        """A child asks in the middle of a modern host's request."""
        parked: SuspendedRequest | None = getattr(request, "parked", None)
        if parked is None:
            parked = request.parked = SuspendedRequest(request)
        if self._full or len(parked.waiting) >= MOST_WAITING:
            origin.refuse(INTERNAL_ERROR, "Too many questions wait for an answer.")
            return
        parked.count += 1
        parked.waiting[f"q{parked.count}"] = WaitingQuestion(origin, client_requests.embedded(method, params))
        self._asked[origin] = parked
        request.allow(PARKED_S * 2)
        if request.wanted and parked.asking is None:
            parked.asking = self._loop.call_later(BREATH_S, self._ask, parked)

    def ask_urls(self, request: HostRequest, wanted: dict[str, dict[str, object]]) -> bool:
        """A child wants URLs to be visited before it is called again; False where there is no room to ask."""
        if self._full:
            return False
        self._send(SuspendedRequest(request, fresh=True), wanted)
        return True

    def come_back(
        self, inbound: IncomingRequest, fingerprint: bytes, given: Raw | UnsetType, input: Raw | UnsetType
    ) -> ResumeResult:
        """A modern host may bring a state, and input with it."""
        if given is UNSET or not inbound.modern:
            return ResumeResult.FOREIGN
        state = message_meta.text_of(given)
        if state is None:
            raise msgspec.ValidationError("`requestState` must be the text that was given")
        responses = {} if input is UNSET else _decode_object(input)
        if not self._prefix or not state.startswith(self._prefix):
            return ResumeResult.FOREIGN
        parked = self._parked.get(state)
        if parked is None or not _same(parked, inbound, fingerprint):
            inbound.refuse(INVALID_PARAMS, "Unknown or expired requestState.")
        elif inbound.under_way:
            inbound.refuse(INVALID_REQUEST, "A request with this id is still under way.")
        elif parked.fresh:
            self._release(parked)
            return ResumeResult.FRESH
        else:
            self._release(parked)
            self._go_on(parked, inbound, responses)
        return ResumeResult.DEALT_WITH

    def _go_on(self, parked: SuspendedRequest, inbound: IncomingRequest, responses: dict[str, Raw]) -> None:
        for key, response in responses.items():
            if key in parked.waiting and message_meta.is_object(response):
                origin = parked.waiting.pop(key).origin
                self._asked.pop(origin, None)
                origin.answer(response)
        request = parked.request
        if parked.outcome is not None:
            encode, body = parked.outcome
            inbound.route.answer(encode(inbound.id, body))
            self.drop(request, "The request is over.")
            return
        request.rejoin(inbound)
        if parked.waiting:
            self._ask(parked)
        else:
            request.allow(request.timeout)

    def withdraw(self, origin: Origin) -> None:
        """A child no longer wants an answer."""
        parked = self._asked.pop(origin, None)
        if parked is not None:
            parked.waiting = {key: kept for key, kept in parked.waiting.items() if kept.origin != origin}
            if not parked.waiting and parked.request.wanted:
                parked.request.allow(parked.request.timeout)

    def drop(self, request: HostRequest, why: str) -> None:
        """The child is done with a request: what it asked needs no answer. Its host may still come back for it."""
        parked: SuspendedRequest | None = getattr(request, "parked", None)
        if parked is not None:
            if parked.asking is not None:
                parked.asking.cancel()
                parked.asking = None
            waiting, parked.waiting = parked.waiting, {}
            for question in waiting.values():
                self._asked.pop(question.origin, None)
                question.origin.refuse(INTERNAL_ERROR, why)

    def forget(self, request: HostRequest) -> None:
        """Nobody will come back for a request."""
        parked: SuspendedRequest | None = getattr(request, "parked", None)
        if parked is not None:
            self._release(parked)

    def gone(self, session: Session) -> None:
        """A host has gone for good, unless it is one that comes anew with each request."""
        if not session.passing:
            for parked in [*self._parked.values()]:
                if parked.request.session is session:
                    self._forget(parked, "the host has gone")

    @property
    def _full(self) -> bool:
        return len(self._parked) >= MOST_PARKED

    def _ask(self, parked: SuspendedRequest) -> None:
        parked.asking = None
        if not parked.request.wanted:  # the child did not wait for its answers
            self.drop(parked.request, "The request is over.")
        elif parked.waiting:
            self._send(parked, {key: waiting.question for key, waiting in parked.waiting.items()})

    def _send(self, parked: SuspendedRequest, wanted: dict[str, dict[str, object]]) -> None:
        from secrets import token_urlsafe

        if not self._prefix:  # of this process alone: a child may be another Switchboard
            self._prefix = f"switchboard:{token_urlsafe(6)}:"
        parked.state = self._prefix + token_urlsafe(24)
        self._parked[parked.state] = parked
        parked.timer = self._loop.call_later(PARKED_S, self._forget, parked, "the host did not come back")
        request = parked.request
        del request.session.under_way[request.host_id]
        request.route.answer(
            jsonrpc.result(request.host_id, message_meta.ask_for_input(wanted, parked.state))
        )

    def _release(self, parked: SuspendedRequest) -> None:
        self._parked.pop(parked.state, None)
        if parked.timer is not None:
            parked.timer.cancel()

    def _forget(self, parked: SuspendedRequest, why: str) -> None:
        self._release(parked)
        if parked.outcome is not None:
            self.drop(parked.request, why)
        elif not parked.fresh:
            parked.request.cancel(why)


def _same(parked: SuspendedRequest, inbound: IncomingRequest, fingerprint: bytes) -> bool:
    """Whether a request is the parked one come back."""
    whose = parked.request.session.principal
    return whose == inbound.session.principal and parked.fingerprint == fingerprint
