"""Transport over Streamable HTTP, for both protocol families.

Every message is a POST of its own; the response to a request is JSON or an event stream. Other messages from the
server come over a GET stream. In the legacy family there is a session, a lost stream is resumed if its events have
ids, and cancelling is a message; in the stateless family each request stands alone, and cancelling means closing its
response. The family of a request is derived from its body.

Reads envelopes, what headers must repeat, and the version in the `initialize` result; nothing else.
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
from switchboard_mcp.protocol.method_traits import traits_of
from switchboard_mcp.protocol.sse import EventStream
from switchboard_mcp.transport.http.client import HttpClient, body_chunks, content_type, drain, read_body
from switchboard_mcp.transport.http.event_pieces import read_events
from switchboard_mcp.transport.http.http_errors import (
    find_rpc_error,
    read_error_body,
    response_failure,
    session_is_gone,
)
from switchboard_mcp.transport.http.remote_base import (
    HttpTransport,
    QueuedMessage,
    RemoteServer,
    StartTask,
    TransportOptions,
    TransportTask,
)
from switchboard_mcp.transport.rpc import Cancelled

JSON, EVENTS = "application/json", "text/event-stream"
LISTEN = "subscriptions/listen"  # stays open indefinitely
SESSION, LAST_EVENT = "mcp-session-id", "last-event-id"
# Every request holds a connection until its response has come; further ones wait.
MAX_REQUESTS = 100
# Delay before a stream is resumed: what the server asks for, but at least MIN_RETRY_S, or else exponential backoff.
MIN_RETRY_S, FIRST_RETRY_S, MAX_RETRY_S = 0.01, 1.0, 60.0
# Attempts in a row to resume the stream of a call before it is given up.
MAX_RESUME_ATTEMPTS = 3
# Requests from the server during a call may come over the GET stream and are lost while there is none, so calls wait
# for it. Some servers send no response head before their first message: wait only this long, and only once.
LISTEN_TIMEOUT_S = 1.0
# Failures that mean that the server cannot be used at all, not only that one call failed.
SERVER_DOWN = frozenset({"child_unreachable", "child_unauthorized"})
TRANSIENT = frozenset({"child_unreachable", "child_answer_lost"})


class _InitializeResult(Struct, rename="camel"):
    protocol_version: str = ""


_decode_initialize_result = msgspec.json.Decoder(_InitializeResult).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode


class PostExchange:
    """One request and its response. In the stateless family it has its own headers."""

    __slots__ = (
        "answered",
        "headers",
        "id",
        "is_initialize",
        "method",
        "queued",
        "stateless",
        "task",
        "trace",
    )

    def __init__(self, message: RpcMessage, queued: QueuedMessage, extra: dict[str, str]) -> None:
        self.id = bytes(message.id)  # type: ignore[arg-type]  # a request has one
        self.method: str = message.method  # type: ignore[assignment]  # a request has one
        self.is_initialize = message.method == "initialize"
        self.queued = queued
        self.headers = extra
        self.trace = trace_context.trace_headers(message)
        self.stateless = bool(extra)
        self.answered = False
        self.task: TransportTask

    def is_answered_by(self, message: bytes) -> bool:
        """Return True if a message is the response to this request."""
        envelope = jsonrpc.parse(message)
        if isinstance(envelope, Malformed):
            members = jsonrpc.split_batch(message) if message[:1] == b"[" else envelope
            return not isinstance(members, Malformed) and any(map(self.is_answered_by, members))
        return envelope.method is UNSET and envelope.id is not UNSET and bytes(envelope.id) == self.id


class StreamableHttpTransport(HttpTransport):
    """Transport with a POST per message and a GET stream for unsolicited messages."""

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(HttpClient(server, options.get("auth")), server, start_task, **options)
        self._session = ""
        self._version = ""
        self._in_flight: dict[bytes, PostExchange] = {}
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._listening = asyncio.Event()
        self._listening.set()
        self._server_failure: Failure | None = None

    def send_request(self, message: RpcMessage, queued: QueuedMessage) -> None:
        """Post a request; the HTTP response carries the JSON-RPC response."""
        exchange = PostExchange(message, queued, http_headers.request_headers(message, self.mirrors))
        if exchange.stateless:
            self._version = exchange.headers[http_headers.VERSION]
        self._in_flight[exchange.id] = exchange
        exchange.task = self.spawn(self._run(exchange))

    def send_cancel(self, message: RpcMessage, queued: QueuedMessage) -> None:
        """Cancel a request: with a message, or in the stateless family by closing the response."""
        params = Cancelled() if message.params is UNSET else _decode_cancelled(message.params)
        exchange = self._in_flight.get(bytes(params.request_id)) if params.request_id is not UNSET else None
        if exchange is None:
            queued.mark_sent()  # nothing to cancel
        elif exchange.stateless or exchange.is_initialize:
            queued.mark_sent()  # closing the response cancels it; `initialize` cannot be cancelled by a message
            exchange.task.cancel()
        else:
            self.enqueue(queued, exchange.task.cancel)

    def on_initialized(self) -> None:
        """Release waiting requests and open the stream for unsolicited messages."""
        super().on_initialized()
        self._listening.clear()
        self.spawn(self._listen())

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _run(self, exchange: PostExchange) -> None:
        problem: Failure | None = None
        try:
            await self.initialized.wait()
            if not self._listening.is_set() and traits_of(exchange.method).may_request_input:
                await self._wait_for_stream()
            # A subscription must not use up a slot.
            async with nullcontext() if exchange.method == LISTEN else self._slots:
                await self._exchange(exchange)
        except SwitchboardError as error:
            problem = error.failure
        except Exception as surprise:  # noqa: BLE001 - the caller waits for an answer, whatever went wrong
            self.on_error(surprise)
            problem = self.server.failure("internal", "could not be called")
        finally:
            self._in_flight.pop(exchange.id, None)
            exchange.queued.mark_sent()
        self._server_failure = problem if problem is not None and problem.code in SERVER_DOWN else None
        if problem is not None:
            self._fail(exchange, problem)

    async def _wait_for_stream(self) -> None:
        try:
            async with asyncio.timeout(LISTEN_TIMEOUT_S):
                await self._listening.wait()
        except TimeoutError:
            self._listening.set()

    def _fail(self, exchange: PostExchange, problem: Failure) -> None:
        """Fail one request, or the whole transport if no other request can succeed either."""
        if problem.code == "child_session_lost":
            self._session_lost(problem)
        elif self._server_failure is not None and all(
            other.method == LISTEN for other in self._in_flight.values()
        ):
            self.connection_lost(problem)
        else:
            self.fail_request(exchange.id, problem)

    def _session_lost(self, problem: Failure) -> None:
        """End the transport after the session was lost. Requests already sent may have been carried out."""
        for exchange in list(self._in_flight.values()):
            if exchange.queued.is_sent:
                lost = self.server.failure("child_answer_lost", "has lost our session with this call in it")
                self.fail_request(exchange.id, lost)
        self.connection_lost(problem)

    async def _exchange(self, exchange: PostExchange) -> None:
        events = EventStream(self.limit)
        extra = (
            exchange.headers
            if exchange.stateless
            else {}
            if exchange.is_initialize
            else self._session_headers()
        )
        extra = {"content-type": JSON, "accept": f"{JSON}, {EVENTS}", **extra, **exchange.trace}
        try:
            async with self.client.stream("POST", self.server.url, extra, exchange.queued) as response:
                exchange.queued.mark_sent()
                await self._read(response, exchange, events)
        except SwitchboardError as problem:
            if problem.failure.code not in TRANSIENT or not events.last_id:
                raise
        if not exchange.answered:
            await self._resume(exchange, events)

    def _session_headers(self) -> dict[str, str]:
        named = {SESSION: self._session, http_headers.VERSION: self._version}
        return {name: value for name, value in named.items() if value}

    async def _read(self, response: httpx2.Response, exchange: PostExchange, events: EventStream) -> None:
        if not response.is_success:
            await self._handle_error_status(response, exchange)
            return
        if exchange.is_initialize:
            self._session = response.headers.get(SESSION, "")
        kind = content_type(response)
        if kind == EVENTS:
            await self._read_stream(response, events, exchange)
        elif kind == JSON:
            body = await read_body(response, self.limit)
            await self._deliver_message(body, exchange)
            if not exchange.answered:
                start = (body.head if isinstance(body, Oversized) else body[:1000]).decode("utf-8", "replace")
                raise self._error(
                    "child_protocol", "sent a body that is not a response to the request", start
                )
        else:
            what = f"answered a request with {kind or 'nothing'} (HTTP {response.status_code})"
            raise self._error("child_http_error", f"{what} instead of JSON or an event stream")

    async def _handle_error_status(self, response: httpx2.Response, exchange: PostExchange) -> None:
        """Handle an error status: a JSON-RPC error in the body is the response, anything else a failure."""
        body = await read_error_body(response)
        if not exchange.stateless and not exchange.is_initialize:
            self._check_session(response, body)
        error = find_rpc_error(body, exchange.id)
        if error is None or response.status_code in (401, 403):
            raise SwitchboardError(response_failure(self.server, response, body))
        exchange.answered = True
        await self.deliver(jsonrpc.error_body(exchange.id, error))

    def _check_session(self, response: httpx2.Response, body: bytes) -> None:
        if self._session and session_is_gone(response.status_code, body):
            raise self._error("child_session_lost", "no longer knows our session")

    async def _deliver_message(self, piece: bytes | Oversized, exchange: PostExchange | None) -> None:
        if isinstance(piece, Oversized):
            if exchange is not None and jsonrpc.starts_like_response(piece.head):
                exchange.answered |= jsonrpc.find_id(piece.head, piece.tail) == exchange.id
            await self.deliver_oversized(piece)
            return
        message = jsonrpc.replace_invalid_utf8(piece)
        if exchange is not None and exchange.is_answered_by(message):
            exchange.answered = True
            if exchange.is_initialize:
                self._version = _negotiated_version(message)
        await self.deliver(message, b"" if exchange is None else exchange.id)

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _read_stream(
        self, response: httpx2.Response, events: EventStream, exchange: PostExchange | None
    ) -> None:
        """Deliver messages until the response has come or the stream ends."""
        async with aclosing(body_chunks(response)) as chunks:
            async for event in read_events(events, chunks, self.limit):
                if isinstance(event, Oversized):
                    await self._deliver_message(event, exchange)
                elif event.data and event.name == "message":
                    await self._deliver_message(event.data, exchange)
                if exchange is not None and exchange.answered:
                    break
            if exchange is not None and exchange.answered:
                await drain(chunks)

    async def _resume(self, exchange: PostExchange, events: EventStream) -> None:
        """Resume the stream of a request that ended without its response."""
        attempts = 0
        while not exchange.answered:
            if exchange.stateless or not events.last_id or attempts >= MAX_RESUME_ATTEMPTS:
                raise self._error("child_answer_lost", "ended its stream before it had answered")
            await asyncio.sleep(_retry_delay(events, attempts))
            position = events.last_id
            try:
                await self._get(events, exchange)
                # A server that sends a retry time is still working on it: that is not a failed attempt.
                attempts = 0 if events.last_id != position or events.retry_ms is not None else attempts + 1
            except SwitchboardError as problem:
                if problem.failure.code not in TRANSIENT:
                    raise
                attempts += 1

    async def _get(self, events: EventStream, exchange: PostExchange | None) -> None:
        """Read the server's own stream, or the rest of a request's. Raises if there is none."""
        extra = {"accept": EVENTS, **self._session_headers()}
        if events.last_id:
            extra[LAST_EVENT] = events.last_id
        async with self.client.stream("GET", self.server.url, extra) as response:
            if not response.is_success or content_type(response) != EVENTS:
                body = await read_error_body(response)
                self._check_session(response, body)
                raise SwitchboardError(response_failure(self.server, response, body))
            events.restart()
            self._listening.set()
            await self._read_stream(response, events, exchange)

    async def _listen(self) -> None:
        """Receive unsolicited messages for as long as the server offers a stream for them."""
        events = EventStream(self.limit)
        attempts = 0
        while True:
            position = events.last_id
            try:
                await self._get(events, None)
                attempts = 0 if events.last_id != position else attempts + 1
            except SwitchboardError as problem:
                self._listening.set()  # there is no stream to wait for
                if problem.failure.code not in TRANSIENT:
                    self.on_post_failed(problem.failure)
                    return
                attempts += 1
            await asyncio.sleep(_retry_delay(events, attempts))

    # --- everything else ---------------------------------------------------------------------------------------------

    async def post(self, queued: QueuedMessage) -> None:
        """Post a message that is not a request."""
        extra = {"content-type": JSON, "accept": f"{JSON}, {EVENTS}", **self._session_headers()}
        async with self.client.stream("POST", self.server.url, extra, queued) as response:
            if not response.is_success:
                body = await read_error_body(response)
                self._check_session(response, body)
                raise SwitchboardError(response_failure(self.server, response, body))
            async with aclosing(body_chunks(response)) as chunks:
                await drain(chunks)

    def on_post_failed(self, problem: Failure) -> None:
        """Report it, and end the transport if the session is gone."""
        super().on_post_failed(problem)
        if problem.code == "child_session_lost":
            self._session_lost(problem)

    async def finish_sending(self) -> None:
        """End the session once everything has been sent."""
        for exchange in list(self._in_flight.values()):
            exchange.task.cancel()
        await super().finish_sending()
        if self._session:
            try:
                async with self.client.stream("DELETE", self.server.url, self._session_headers()) as response:
                    await read_error_body(response)
            except SwitchboardError as problem:
                self.note(problem.failure.message)

    def _error(self, code: str, what: str, detail: str = "") -> SwitchboardError:
        return SwitchboardError(self.server.failure(code, what, detail=detail))


def _negotiated_version(message: bytes) -> str:
    """Return the version in the response to `initialize`."""
    envelope = jsonrpc.parse(message)
    if isinstance(envelope, Malformed) or envelope.result is UNSET:
        return ""
    try:
        return _decode_initialize_result(envelope.result).protocol_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _retry_delay(events: EventStream, attempts: int) -> float:
    if events.retry_ms is not None:
        return max(MIN_RETRY_S, events.retry_ms / 1000)
    return min(FIRST_RETRY_S * 2.0 ** min(attempts, 10), MAX_RETRY_S)


dial = StreamableHttpTransport
