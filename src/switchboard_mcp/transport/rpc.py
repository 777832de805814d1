"""JSON-RPC requests and responses over a transport: ids, deadlines, cancellation.

A `PendingRequest` is one request in flight. The peer matches responses to requests by id (responses only: a request
from the other side that carries a pending id is a request), cancels a request when its deadline has passed and
notifies the other side, and fails whatever is open when the connection is over.

It is deliberately not MCP-aware, apart from the notifications for progress and cancellation. Method names are strings,
params and results raw JSON.
"""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop, BaseEventLoop, CancelledError, Future, TimerHandle
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.fair_queue import FairQueue

T = TypeVar("T")

# Time to read what has piled up while the transport was paused.
AFTER_PAUSE_S = 5.0
# The part of an undecodable envelope that is searched for its id.
HEAD_BYTES = 1024

# Errors of a decoder on invalid input; any other exception is a bug of ours.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# Returns a request id as JSON, unique in this process. Built from C functions only: every call needs one.
next_id: Callable[[], bytes] = map(b"%d".__mod__, count(1)).__next__


def clock(loop: AbstractEventLoop) -> Callable[[], float]:
    """Return the loop's clock. For asyncio's loop it is `monotonic` itself, which saves a Python frame per call."""
    return monotonic if type(loop).time is BaseEventLoop.time else loop.time


class PendingRequest:
    """A request in flight. Exactly one of `answered`, `failed` and `timed_out` ends it.

    Not an ABC: that would slow down every `isinstance` check of a request, which notifications are attributed by.
    """

    __slots__ = ("deadline", "id", "message", "timeout_s")
    cancellable = True  # the other side may be sent a cancellation
    is_subscription = False  # stays open indefinitely and does not count as work

    def __init__(self, id: bytes, message: bytes, timeout_s: float) -> None:
        self.id = id
        self.message = message
        self.timeout_s = timeout_s
        self.deadline = 0.0

    @property
    def sender(self) -> object:
        """The session it takes turns for; None if it takes none."""
        return None

    def answered(self, response: RpcMessage) -> None:
        """Handle the response, a result or an error."""
        raise NotImplementedError

    def failed(self, problem: Failure) -> None:
        """Handle a failure: no response will come."""
        raise NotImplementedError

    def timed_out(self) -> None:
        """Handle the timeout. The other side has been sent a cancellation."""
        raise NotImplementedError

    def progressed(self, params: Raw) -> None:
        """Handle a progress notification."""


class AwaitedRequest(PendingRequest):
    """A request whose response is awaited as a future."""

    __slots__ = ("cancellable", "future")

    def __init__(
        self,
        loop: AbstractEventLoop,
        method: str,
        params: bytes,
        timeout_s: float,
        *,
        cancellable: bool = True,
    ) -> None:
        id = next_id()
        super().__init__(id, jsonrpc.request(id, method, params), timeout_s)
        self.cancellable = cancellable
        self.future: Future[RpcMessage | Failure | None] = loop.create_future()

    def answered(self, response: RpcMessage) -> None:
        """Set the response."""
        self._settle(response)

    def failed(self, problem: Failure) -> None:
        """Set the failure."""
        self._settle(problem)

    def timed_out(self) -> None:
        """Set None."""
        self._settle(None)

    def _settle(self, value: RpcMessage | Failure | None) -> None:
        if not self.future.done():
            self.future.set_result(value)


class PeerListener(Protocol):
    """Receives everything from the other side that is not a response."""

    def request_received(self, message: RpcMessage) -> None:
        """Handle a request from the other side."""

    def notification_received(self, message: RpcMessage) -> None:
        """Handle a notification from the other side."""

    def invalid_received(self, invalid: NonMessage | Oversized | Malformed) -> None:
        """Handle input that is not a message."""

    def connection_lost(self) -> None:
        """Handle the end of the connection. The owner knows the reason and calls `fail_all`."""

    def response_too_large(self, request: PendingRequest, size: int) -> None:
        """Handle a response that exceeds the size limit."""

    def response_unreadable(self, request: PendingRequest, reason: str) -> None:
        """Handle a response that is not valid JSON or nested too deeply."""


class Cancelled(Struct, rename="camel"):
    """Params of `notifications/cancelled`."""

    request_id: Raw | UnsetType = UNSET
    reason: str = ""


class ProgressTarget(Struct, rename="camel"):
    """The member of `notifications/progress` params that names the request."""

    progress_token: Raw | UnsetType = UNSET


_decode_progress = msgspec.json.Decoder(ProgressTarget).decode


class Peer:
    """One side of a JSON-RPC connection."""

    def __init__(self, loop: AbstractEventLoop, transport: MessageTransport, listener: PeerListener) -> None:
        self.transport = transport
        self.pending: dict[bytes, PendingRequest] = {}
        self.response_count = 0
        self._queue: FairQueue | None = None  # while several sessions send requests
        self._loop = loop
        self._listener = listener
        self._now = clock(loop)
        self._timer: TimerHandle | None = None
        self._timer_at = math.inf  # the time at which the timer fires
        self._final_failure: Failure | None = None

    def start(self) -> None:
        """Start receiving."""
        self.transport.start(self.receive, self._listener.connection_lost, self._receive_invalid)

    def send(self, request: PendingRequest) -> None:
        """Send a request and track its response. Its time runs from now, even if others have their turn before it."""
        request.deadline = deadline = self._now() + request.timeout_s
        self.pending[request.id] = request
        if self._queue is None or self._may_send(request, self._queue):
            self.transport.send(request.message)
        if deadline < self._timer_at:
            self._set_timer(deadline)

    def take_turns(self) -> None:
        """Let sessions take turns from now on, since several send requests."""
        if self._queue is None and self._final_failure is None:
            self._queue = FairQueue(self._loop, self.transport.send, self.pending.values())

    def is_waiting(self, request: PendingRequest) -> bool:
        """Return True if a request waits for its turn and has not been sent."""
        return self._queue is not None and self._queue.is_waiting(request.id)

    def _may_send(self, request: PendingRequest, queue: FairQueue) -> bool:
        if not queue.is_needless(request):
            return queue.admit(request)
        self._queue = None
        queue.release()
        return True

    def _pop(self, id: bytes) -> PendingRequest | None:
        """Remove a request that has ended and return it; None if there is no such request."""
        request = self.pending.pop(id, None)
        if request is not None and self._queue is not None:
            self._queue.answered(request)
        return request

    def _end_turns(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    async def request(
        self, method: str, params: bytes, timeout: float, *, cancellable: bool = True
    ) -> RpcMessage | Failure | None:
        """Send a request and await its response; None if it timed out."""
        request = AwaitedRequest(self._loop, method, params, timeout, cancellable=cancellable)
        self.send(request)
        try:
            return await request.future
        except CancelledError:
            self.cancel(request, "cancelled")
            raise

    def notify(self, method: str, params: bytes | None = None) -> None:
        """Send a notification."""
        self.transport.send(jsonrpc.notification(method, params))

    def cancel(self, request: PendingRequest, reason: str) -> bool:
        """Drop a request and send a cancellation; return False if it was no longer pending."""
        if self.pending.pop(request.id, None) is None:
            return False
        was_sent = self._queue is None or self._queue.remove(request)
        if not was_sent or not request.cancellable:
            return True
        params_json = b'{"requestId":%b,"reason":%b}' % (request.id, jsonrpc.encode(reason))
        self.notify("notifications/cancelled", params_json)
        return True

    @property
    def busy(self) -> bool:
        """True if the other side has requests of ours to work on."""
        return any(not request.is_subscription for request in self.pending.values())

    def reset_deadline(self, request: PendingRequest, seconds: float) -> None:
        """Set a request's deadline to `seconds` from now, later or earlier than before."""
        request.deadline = deadline = self._now() + seconds
        if request.id in self.pending and deadline < self._timer_at:
            self._set_timer(deadline)

    def fail(self, id: bytes, problem: Failure) -> None:
        """Fail one request: no response will come for it. Others are not affected."""
        request = self._pop(id)
        if request is not None:
            request.failed(problem)

    def reclaim(self, kind: type[T]) -> list[T]:
        """Remove and return pending requests of this type, for their owners to send elsewhere."""
        self._end_turns()
        reclaimed: list[T] = [request for request in self.pending.values() if isinstance(request, kind)]
        self.pending = {id: request for id, request in self.pending.items() if not isinstance(request, kind)}
        return reclaimed

    def fail_all(self, problem: Failure) -> None:
        """End the connection: fail every open request, and every later one, with the same failure."""
        self._final_failure = problem
        self._end_turns()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf
        try:
            while self.pending:
                self.pending.pop(next(iter(self.pending))).failed(problem)
        finally:
            if self.pending:  # an error in one handler must not keep the others waiting
                self._loop.call_soon(self.fail_all, problem)

    def receive(self, data: bytes) -> None:
        """Handle one message from the other side."""
        if not data.isascii():
            data = jsonrpc.replace_invalid_utf8(data)
        try:
            message = jsonrpc.decode(data)
        except UNREADABLE:
            repaired = jsonrpc.parse(data)
            if isinstance(repaired, Malformed):
                self._receive_undecodable(data, repaired)
                return
            message = repaired
        if message.method is UNSET:
            request = self.pending.pop(bytes(message.id), None) if message.id is not UNSET else None
            if request is not None:
                if self._queue is not None:
                    self._queue.answered(request)
                self.response_count += 1
                try:
                    request.answered(message)
                except Exception as problem:
                    # The caller must learn that the response cannot be used.
                    self._listener.response_unreadable(request, str(problem))
                    if not isinstance(problem, UNREADABLE):
                        raise
        elif message.id is not UNSET and bytes(message.id) != b"null":
            self._listener.request_received(message)
        elif message.method == "notifications/progress":
            self._progress(message)
        else:
            self._listener.notification_received(message)

    def _receive_undecodable(self, data: bytes, malformed: Malformed) -> None:
        if data[:1] == b"[":
            members = jsonrpc.split_batch(data)
            if not isinstance(members, Malformed):
                for member in members:
                    if member[:1] == b"{":
                        self.receive(member)
                return
        # A message cut short by the end of the connection is part of that end.
        request = (
            None if self.transport.ended else self._pop_by_fragments(data[:HEAD_BYTES], data[-HEAD_BYTES:])
        )
        if request is not None:
            self._listener.response_unreadable(request, malformed.reason)
        else:
            self._listener.invalid_received(malformed)

    def _pop_by_fragments(self, head: bytes, tail: bytes) -> PendingRequest | None:
        """Remove and return the request that a response belongs to of which only the ends are readable."""
        return self._pop(jsonrpc.find_id(head, tail)) if jsonrpc.starts_like_response(head) else None

    def _progress(self, message: RpcMessage) -> None:
        if message.params is UNSET:
            return
        try:
            token = _decode_progress(message.params).progress_token
        except (msgspec.DecodeError, RecursionError):
            return
        request = self.pending.get(bytes(token)) if token is not UNSET else None
        if request is not None:
            # Progress restarts the timeout, unless the deadline has been set even later.
            request.deadline = max(request.deadline, self._now() + request.timeout_s)
            request.progressed(message.params)

    def _receive_invalid(self, frame: NonMessage | Oversized) -> None:
        if isinstance(frame, Oversized):
            request = self._pop_by_fragments(frame.head, frame.tail)
            if request is not None:
                self._listener.response_too_large(request, frame.size)
                return
        self._listener.invalid_received(frame)

    def _set_timer(self, when: float) -> None:
        if self._final_failure is not None:
            self.fail_all(self._final_failure)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._expire), when

    def _expire(self) -> None:
        """Time out requests whose deadline has passed. One timer serves all requests, so a response costs none."""
        self._timer, self._timer_at = None, math.inf
        now = self._now()
        if self.transport.paused:  # responses may already be buffered, so do not time requests out
            for request in self.pending.values():
                request.deadline = max(request.deadline, now + AFTER_PAUSE_S)
        try:
            for request in [request for request in self.pending.values() if request.deadline <= now]:
                if self.cancel(request, "timeout"):
                    request.timed_out()
        finally:
            if self.pending:
                self._set_timer(min(request.deadline for request in self.pending.values()))
