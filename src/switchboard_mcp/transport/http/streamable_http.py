"""A link over Streamable HTTP, in both eras of the protocol.

Every message is a POST of its own; the answer to a request is its response, as JSON or as a stream of events. What the
server says unasked comes over a GET. In the handshake era there is a session, a lost stream is taken up again where the
server gives its events ids, and cancelling is a message; without a handshake each request stands alone, and cancelling
is closing its response. The era of a request is told by its body.

Looks at envelopes, at what headers must repeat, and at the version in the answer to `initialize`; nothing else.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, nullcontext
from typing import Unpack

import httpx2
import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.protocol import http_headers, jsonrpc, trace_context
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.protocol.sse import EventStream
from switchboard_mcp.transport.http.client import content_type, drain, read_body
from switchboard_mcp.transport.http.http_errors import refusal, refusal_body, rpc_error_in, session_is_gone
from switchboard_mcp.transport.http.ordered import OrderedHttpTransport
from switchboard_mcp.transport.http.remote_base import (
    QueuedMessage,
    RemoteServer,
    StartTask,
    TransportOptions,
    TransportTask,
)
from switchboard_mcp.transport.rpc import Cancelled

JSON, EVENTS = "application/json", "text/event-stream"
LISTEN = "subscriptions/listen"  # stays open for good
SESSION, LAST_EVENT = "mcp-session-id", "last-event-id"
# Each request holds a connection until it is answered; beyond this many they wait for their turn.
MAX_REQUESTS = 100
# How long to leave a server alone before a stream is taken up again. What the server asks for counts, but for a hurry
# that would be a flood; otherwise the wait is doubled each time.
SHORTEST_WAIT_S, FIRST_WAIT_S, LONGEST_WAIT_S = 0.01, 1.0, 60.0
# A call's stream that could not be taken up this often in a row is lost.
MOST_TRIES = 3
# What a server asks during a call may come over its own stream, and is lost while there is none; so calls wait for it.
# Some servers say nothing on it before they have something to say: these we wait for no longer than this, and once.
HEARING_WITHIN_S = 1.0
ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
# Failures that say the server cannot be used as it is, and not only that one call went wrong.
DOOM = frozenset({"child_unreachable", "child_unauthorized"})
PASSING = frozenset({"child_unreachable", "child_answer_lost"})


class _Greeting(Struct, rename="camel"):
    protocol_version: str = ""


_decode_greeting = msgspec.json.Decoder(_Greeting).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode


class PostExchange:
    """One request and the way back of its answer. Its headers are its own where it stands alone (`modern`)."""

    __slots__ = ("answered", "errand", "headers", "id", "method", "opening", "parcel", "stateless", "trace")

    def __init__(self, message: RpcMessage, parcel: QueuedMessage, extra: dict[str, str]) -> None:
        self.id = bytes(message.id)  # type: ignore[arg-type]  # a request has one
        self.method = message.method
        self.opening = message.method == "initialize"
        self.parcel = parcel
        self.headers = extra
        self.trace = trace_context.trace_headers(message)
        self.stateless = bool(extra)
        self.answered = False
        self.errand: TransportTask

    def settled_by(self, message: bytes) -> bool:
        """Whether a message is the answer."""
        envelope = jsonrpc.parse(message)
        if isinstance(envelope, Malformed):
            members = jsonrpc.split_batch(message) if message[:1] == b"[" else envelope
            return not isinstance(members, Malformed) and any(map(self.settled_by, members))
        return envelope.method is UNSET and envelope.id is not UNSET and bytes(envelope.id) == self.id


class StreamableHttpTransport(OrderedHttpTransport):
    """See the module."""

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(server, start_task, **options)
        self._session = ""
        self._version = ""
        self._under_way: dict[bytes, PostExchange] = {}
        self._turns = asyncio.Semaphore(MAX_REQUESTS)
        self._hearing = asyncio.Event()
        self._hearing.set()
        self._doom: Failure | None = None

    def request(self, message: RpcMessage, parcel: QueuedMessage) -> None:
        """A POST, whose response is the answer."""
        exchange = PostExchange(message, parcel, http_headers.request_headers(message, self.mirrors))
        if exchange.stateless:
            self._version = exchange.headers[http_headers.VERSION]
        self._under_way[exchange.id] = exchange
        exchange.errand = self.spawn(self._run(exchange))

    def cancel(self, message: RpcMessage, parcel: QueuedMessage) -> None:
        """Tell the server, where closing the response does not say it."""
        told = Cancelled() if message.params is UNSET else _decode_cancelled(message.params)
        exchange = self._under_way.get(bytes(told.request_id)) if told.request_id is not UNSET else None
        if exchange is None:
            parcel.taken()  # there is nothing to stop
        elif exchange.stateless or exchange.opening:
            parcel.taken()  # closing the response says it; and a greeting cannot be cancelled
            exchange.errand.cancel()
        else:
            self.put(parcel, exchange.errand.cancel)

    def introduce(self) -> None:
        """The server knows that we are ready: what waits may go, and it may say things unasked."""
        super().introduce()
        self._hearing.clear()
        self.spawn(self._listen())

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _run(self, exchange: PostExchange) -> None:
        problem: Failure | None = None
        try:
            await self.introduced.wait()
            if not self._hearing.is_set() and exchange.method in ASKING:
                await self._until_hearing()
            # A subscription must not take the turn of a call.
            async with nullcontext() if exchange.method == LISTEN else self._turns:
                await self._exchange(exchange)
        except SwitchboardError as trouble:
            problem = trouble.failure
        except Exception as surprise:  # noqa: BLE001 - the caller waits for an answer, whatever went wrong
            self.on_error(surprise)
            problem = self.server.failure("internal", "could not be asked")
        finally:
            self._under_way.pop(exchange.id, None)
            exchange.parcel.taken()
        self._doom = problem if problem is not None and problem.code in DOOM else None
        if problem is not None:
            self._fail(exchange, problem)

    async def _until_hearing(self) -> None:
        try:
            async with asyncio.timeout(HEARING_WITHIN_S):
                await self._hearing.wait()
        except TimeoutError:
            self._hearing.set()

    def _fail(self, exchange: PostExchange, problem: Failure) -> None:
        """One call went wrong: with it the link is over where nothing else can go well, and then all fail together."""
        if problem.code == "child_session_lost":
            self._forgotten(problem)
        elif self._doom is not None and all(other.method == LISTEN for other in self._under_way.values()):
            self.finish(problem)
        else:
            self.fail_request(exchange.id, problem)

    def _forgotten(self, problem: Failure) -> None:
        """The session is gone. What the server had taken of it before may have been done."""
        for exchange in list(self._under_way.values()):
            if exchange.parcel.is_gone:
                lost = self.server.failure("child_answer_lost", "has lost our session with this call in it")
                self.fail_request(exchange.id, lost)
        self.finish(problem)

    async def _exchange(self, exchange: PostExchange) -> None:
        events = EventStream(self.limit)
        extra = exchange.headers if exchange.stateless else {} if exchange.opening else self._of_session()
        extra = {"content-type": JSON, "accept": f"{JSON}, {EVENTS}", **extra, **exchange.trace}
        try:
            async with self.client.stream("POST", self.server.url, extra, exchange.parcel) as response:
                exchange.parcel.taken()
                await self._read(response, exchange, events)
        except SwitchboardError as problem:
            if problem.failure.code not in PASSING or not events.last_id:
                raise
        if not exchange.answered:
            await self._take_up(exchange, events)

    def _of_session(self) -> dict[str, str]:
        named = {SESSION: self._session, http_headers.VERSION: self._version}
        return {name: value for name, value in named.items() if value}

    async def _read(self, response: httpx2.Response, exchange: PostExchange, events: EventStream) -> None:
        if not response.is_success:
            await self._refused(response, exchange)
            return
        if exchange.opening:
            self._session = response.headers.get(SESSION, "")
        kind = content_type(response)
        if kind == EVENTS:
            await self._pump(response, events, exchange)
        elif kind == JSON:
            body = await read_body(response, self.limit)
            await self._hand_over(body, exchange)
            if not exchange.answered:
                start = (body.head if isinstance(body, Oversized) else body[:1000]).decode("utf-8", "replace")
                raise self._error("child_protocol", "answered a request with what is no answer to it", start)
        else:
            what = f"answered a request with {kind or 'nothing'} (HTTP {response.status_code})"
            raise self._error("child_http_error", f"{what}, where JSON or an event stream was due")

    async def _refused(self, response: httpx2.Response, exchange: PostExchange) -> None:
        """A status that is no success: an error of the protocol in its body is the answer, anything else a failure."""
        body = await refusal_body(response)
        if not exchange.stateless and not exchange.opening:
            self._check_session(response, body)
        error = rpc_error_in(body, exchange.id)
        if error is None or response.status_code in (401, 403):
            raise SwitchboardError(refusal(self.server, response, body))
        exchange.answered = True
        await self.deliver(jsonrpc.error_body(exchange.id, error))

    def _check_session(self, response: httpx2.Response, body: bytes) -> None:
        if self._session and session_is_gone(response.status_code, body):
            raise self._error("child_session_lost", "does not know our session any more")

    async def _hand_over(self, piece: bytes | Oversized, exchange: PostExchange | None) -> None:
        if isinstance(piece, Oversized):
            if exchange is not None and jsonrpc.starts_like_response(piece.head):
                exchange.answered |= jsonrpc.find_id(piece.head, piece.tail) == exchange.id
            await self.deliver_oversized(piece)
            return
        message = jsonrpc.replace_invalid_utf8(piece)
        if exchange is not None and exchange.settled_by(message):
            exchange.answered = True
            if exchange.opening:
                self._version = _version_in(message)
        await self.deliver(message, b"" if exchange is None else exchange.id)

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _pump(
        self, response: httpx2.Response, events: EventStream, exchange: PostExchange | None
    ) -> None:
        """Deliver what comes, until the answer has come or the stream ends."""
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                for event in events.feed(chunk):
                    if isinstance(event, Oversized):
                        await self._hand_over(event, exchange)
                    elif event.data and event.name == "message":
                        await self._hand_over(event.data, exchange)
                if exchange is not None and exchange.answered:
                    await drain(chunks)

    async def _take_up(self, exchange: PostExchange, events: EventStream) -> None:
        """The stream of a request has ended without its answer: ask for the rest."""
        tries = 0
        while not exchange.answered:
            if exchange.stateless or not events.last_id or tries >= MOST_TRIES:
                raise self._error("child_answer_lost", "ended its response before it had answered")
            await asyncio.sleep(_wait_s(events, tries))
            place = events.last_id
            try:
                await self._get(events, exchange)
                # A server that says when to come back means it: it is not ready yet.
                tries = 0 if events.last_id != place or events.retry_ms is not None else tries + 1
            except SwitchboardError as problem:
                if problem.failure.code not in PASSING:
                    raise
                tries += 1

    async def _get(self, events: EventStream, exchange: PostExchange | None) -> None:
        """The server's own stream, or the rest of a request's. Raises where there is none to be had."""
        extra = {"accept": EVENTS, **self._of_session()}
        if events.last_id:
            extra[LAST_EVENT] = events.last_id
        async with self.client.stream("GET", self.server.url, extra) as response:
            if not response.is_success or content_type(response) != EVENTS:
                body = await refusal_body(response)
                self._check_session(response, body)
                raise SwitchboardError(refusal(self.server, response, body))
            events.restart()
            self._hearing.set()
            await self._pump(response, events, exchange)

    async def _listen(self) -> None:
        """What the server says unasked, for as long as it has a stream for that."""
        events = EventStream(self.limit)
        tries = 0
        while True:
            place = events.last_id
            try:
                await self._get(events, None)
                tries = 0 if events.last_id != place else tries + 1
            except SwitchboardError as problem:
                self._hearing.set()  # there is nothing to hear
                if problem.failure.code not in PASSING:
                    self.not_taken(problem.failure)
                    return
                tries += 1
            await asyncio.sleep(_wait_s(events, tries))

    # --- everything else ---------------------------------------------------------------------------------------------

    async def post(self, parcel: QueuedMessage) -> None:
        """A POST, whose response says nothing."""
        extra = {"content-type": JSON, "accept": f"{JSON}, {EVENTS}", **self._of_session()}
        async with self.client.stream("POST", self.server.url, extra, parcel) as response:
            if not response.is_success:
                body = await refusal_body(response)
                self._check_session(response, body)
                raise SwitchboardError(refusal(self.server, response, body))
            async with aclosing(response.aiter_bytes()) as chunks:
                await drain(chunks)

    def not_taken(self, problem: Failure) -> None:
        """Where the session is gone, so is the link."""
        super().not_taken(problem)
        if problem.code == "child_session_lost":
            self._forgotten(problem)

    async def leave(self) -> None:
        """End the session, once what was sent before has gone."""
        for exchange in list(self._under_way.values()):
            exchange.errand.cancel()
        await super().leave()
        if self._session:
            try:
                async with self.client.stream("DELETE", self.server.url, self._of_session()) as response:
                    await refusal_body(response)
            except SwitchboardError as problem:
                self.note(problem.failure.message)

    def _error(self, code: str, what: str, said: str = "") -> SwitchboardError:
        return SwitchboardError(self.server.failure(code, what, detail=said))


def _version_in(message: bytes) -> str:
    """The version that a server has agreed to in its answer to `initialize`."""
    envelope = jsonrpc.parse(message)
    if isinstance(envelope, Malformed) or envelope.result is UNSET:
        return ""
    try:
        return _decode_greeting(envelope.result).protocol_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _wait_s(events: EventStream, tries: int) -> float:
    if events.retry_ms is not None:
        return max(SHORTEST_WAIT_S, events.retry_ms / 1000)
    return min(FIRST_WAIT_S * 2.0 ** min(tries, 10), LONGEST_WAIT_S)


dial = StreamableHttpTransport
