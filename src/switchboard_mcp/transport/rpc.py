"""Requests and answers over a link: ids, deadlines, cancellation.

A `Call` is one request under way. The peer matches answers to calls by id (answers only: a request from the other side
that carries a pending id is a request), gives up on a call when its time is over and tells the other side so, and fails
whatever is open when the link ends. It does not know methods.
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

T = TypeVar("T")

# Time for what has piled up while a link was paused to be read.
AFTER_PAUSE_S = 5.0
# Where the id of an envelope is looked for that cannot be read as a whole.
HEAD_BYTES = 1024

# What a decoder says of what it cannot read; anything else is a fault of ours.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# A request id, unique in this process, as JSON. Made without a frame of ours: every call needs one.
next_id: Callable[[], bytes] = map(b"%d".__mod__, count(1)).__next__


def clock(loop: AbstractEventLoop) -> Callable[[], float]:
    """The loop's own time. asyncio's is this clock, by way of a frame of Python that every call would pay for."""
    return monotonic if type(loop).time is BaseEventLoop.time else loop.time


class PendingRequest:
    """One request under way. Subclasses say what becomes of its answer; exactly one of the three ends it."""

    __slots__ = ("deadline", "id", "message", "timeout")
    cancellable = True  # whether the other side may be told that its answer is no longer wanted
    is_subscription = False  # whether it stays open for good, and is no work

    def __init__(self, id: bytes, message: bytes, timeout: float) -> None:
        self.id = id
        self.message = message
        self.timeout = timeout
        self.deadline = 0.0

    def answered(self, answer: RpcMessage) -> None:
        """The other side has answered, with a result or an error."""
        raise NotImplementedError

    def failed(self, problem: Failure) -> None:
        """No answer will come."""
        raise NotImplementedError

    def timed_out(self) -> None:
        """No answer came in time; the other side has been told to stop."""
        raise NotImplementedError

    def progressed(self, params: Raw) -> None:
        """The other side reports progress."""


class AwaitedRequest(PendingRequest):
    """A call whose answer is awaited."""

    __slots__ = ("cancellable", "future")

    def __init__(
        self,
        loop: AbstractEventLoop,
        method: str,
        params: bytes,
        timeout: float,
        *,
        cancellable: bool = True,
    ) -> None:
        id = next_id()
        super().__init__(id, jsonrpc.request(id, method, params), timeout)
        self.cancellable = cancellable
        self.future: Future[RpcMessage | Failure | None] = loop.create_future()

    def answered(self, answer: RpcMessage) -> None:
        """Hand the answer over."""
        self._settle(answer)

    def failed(self, problem: Failure) -> None:
        """Hand the failure over."""
        self._settle(problem)

    def timed_out(self) -> None:
        """Hand over nothing."""
        self._settle(None)

    def _settle(self, value: RpcMessage | Failure | None) -> None:
        if not self.future.done():
            self.future.set_result(value)


class PeerListener(Protocol):
    """Who owns a peer hears what is no answer."""

    def request_received(self, message: RpcMessage) -> None:
        """The other side asks something."""

    def notification_received(self, message: RpcMessage) -> None:
        """The other side tells something."""

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        """The other side sent what is no message."""

    def connection_lost(self) -> None:
        """The other side is gone. Open calls are still open: the owner knows why, and calls `fail_all`."""

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """The answer to `call` was larger than any message may be."""

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """The answer to `call` is no JSON, or nested too deeply."""


class Cancelled(Struct, rename="camel"):
    """Params of `notifications/cancelled`."""

    request_id: Raw | UnsetType = UNSET
    reason: str = ""


class ProgressTarget(Struct, rename="camel"):
    """The part of `notifications/progress` that says whose it is."""

    progress_token: Raw | UnsetType = UNSET


_decode_progress = msgspec.json.Decoder(ProgressTarget).decode


class Peer:
    """One side of a JSON-RPC conversation."""

    def __init__(self, loop: AbstractEventLoop, transport: MessageTransport, listener: PeerListener) -> None:
        self.transport = transport
        self.pending: dict[bytes, PendingRequest] = {}
        self.response_count = 0
        self._loop = loop
        self._listener = listener
        self._now = clock(loop)
        self._timer: TimerHandle | None = None
        self._wake = math.inf  # when the timer fires
        self._over: Failure | None = None

    def start(self) -> None:
        """Begin to listen."""
        self.transport.start(self.receive, self._listener.connection_lost, self._odd)

    def send(self, call: PendingRequest) -> None:
        """Send a request and watch for its answer."""
        call.deadline = deadline = self._now() + call.timeout
        self.pending[call.id] = call
        self.transport.send(call.message)
        if deadline < self._wake:
            self._arm(deadline)

    async def request(
        self, method: str, params: bytes, timeout: float, *, cancellable: bool = True
    ) -> RpcMessage | Failure | None:
        """Send a request and await its answer; None when it came too late."""
        call = AwaitedRequest(self._loop, method, params, timeout, cancellable=cancellable)
        self.send(call)
        try:
            return await call.future
        except CancelledError:
            self.cancel(call, "cancelled")
            raise

    def notify(self, method: str, params: bytes | None = None) -> None:
        """Send a notification."""
        self.transport.send(jsonrpc.notification(method, params))

    def cancel(self, call: PendingRequest, reason: str) -> bool:
        """Forget a call and tell the other side to stop; False where it was over already."""
        if self.pending.pop(call.id, None) is None:
            return False
        if not call.cancellable:
            return True
        told = b'{"requestId":%b,"reason":%b}' % (call.id, jsonrpc.encode(reason))
        self.notify("notifications/cancelled", told)
        return True

    @property
    def busy(self) -> bool:
        """Whether the other side has work to do for us."""
        return any(not call.is_subscription for call in self.pending.values())

    def reset_deadline(self, call: PendingRequest, seconds: float) -> None:
        """Give a call so much time from now on, be it more than it had or less."""
        call.deadline = deadline = self._now() + seconds
        if call.id in self.pending and deadline < self._wake:
            self._arm(deadline)

    def fail(self, id: bytes, problem: Failure) -> None:
        """To this request no answer will come, while others have their own way back."""
        call = self.pending.pop(id, None)
        if call is not None:
            call.failed(problem)

    def reclaim(self, kind: type[T]) -> list[T]:
        """Open calls that their owners may make again elsewhere; here they are forgotten."""
        taken: list[T] = [call for call in self.pending.values() if isinstance(call, kind)]
        self.pending = {id: call for id, call in self.pending.items() if not isinstance(call, kind)}
        return taken

    def fail_all(self, problem: Failure) -> None:
        """The conversation is over: end every open call with the same failure, and every later one."""
        self._over = problem
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._wake = None, math.inf
        try:
            while self.pending:
                self.pending.pop(next(iter(self.pending))).failed(problem)
        finally:
            if self.pending:  # one that cannot be told must not keep the others waiting
                self._loop.call_soon(self.fail_all, problem)

    def receive(self, data: bytes) -> None:
        """One message from the other side."""
        if not data.isascii():
            data = jsonrpc.replace_invalid_utf8(data)
        try:
            message = jsonrpc.decode(data)
        except UNREADABLE:
            mended = jsonrpc.parse(data)
            if isinstance(mended, Malformed):
                self._receive_odd(data, mended)
                return
            message = mended
        if message.method is UNSET:
            call = self.pending.pop(bytes(message.id), None) if message.id is not UNSET else None
            if call is not None:
                self.response_count += 1
                try:
                    call.answered(message)
                except Exception as problem:
                    # Whoever waits is told, should it turn out that the answer cannot be used.
                    self._listener.response_unreadable(call, str(problem))
                    if not isinstance(problem, UNREADABLE):
                        raise
        elif message.id is not UNSET and bytes(message.id) != b"null":
            self._listener.request_received(message)
        elif message.method == "notifications/progress":
            self._progress(message)
        else:
            self._listener.notification_received(message)

    def _receive_odd(self, data: bytes, malformed: Malformed) -> None:
        if data[:1] == b"[":
            members = jsonrpc.split_batch(data)
            if not isinstance(members, Malformed):
                for member in members:
                    if member[:1] == b"{":
                        self.receive(member)
                return
        # What is cut short by the end of the link is part of that end.
        call = None if self.transport.ended else self._meant(data[:HEAD_BYTES], data[-HEAD_BYTES:])
        if call is not None:
            self._listener.response_unreadable(call, malformed.reason)
        else:
            self._listener.invalid_received(malformed)

    def _meant(self, head: bytes, tail: bytes) -> PendingRequest | None:
        """Take out the call that an answer was meant for of which only the ends can be read."""
        return (
            self.pending.pop(jsonrpc.find_id(head, tail), None)
            if jsonrpc.starts_like_response(head)
            else None
        )

    def _progress(self, message: RpcMessage) -> None:
        if message.params is UNSET:
            return
        try:
            token = _decode_progress(message.params).progress_token
        except (msgspec.DecodeError, RecursionError):
            return
        call = self.pending.get(bytes(token)) if token is not UNSET else None
        if call is not None:
            # Whoever reports progress is at work: its time starts anew, unless it has been given more.
            call.deadline = max(call.deadline, self._now() + call.timeout)
            call.progressed(message.params)

    def _odd(self, piece: NonMessage | Oversized) -> None:
        if isinstance(piece, Oversized):
            call = self._meant(piece.head, piece.tail)
            if call is not None:
                self._listener.response_too_large(call, piece.size)
                return
        self._listener.invalid_received(piece)

    def _arm(self, when: float) -> None:
        if self._over is not None:
            self.fail_all(self._over)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wake = self._loop.call_at(when, self._expire), when

    def _expire(self) -> None:
        """End the calls whose time is over; wait for the next. One timer serves all calls, so answers cost none."""
        self._timer, self._wake = None, math.inf
        now = self._now()
        if self.transport.paused:  # their answers may be there already: nobody is late whom we do not hear
            for call in self.pending.values():
                call.deadline = max(call.deadline, now + AFTER_PAUSE_S)
        try:
            for call in [call for call in self.pending.values() if call.deadline <= now]:
                if self.cancel(call, "timeout"):
                    call.timed_out()
        finally:
            if self.pending:
                self._arm(min(call.deadline for call in self.pending.values()))
