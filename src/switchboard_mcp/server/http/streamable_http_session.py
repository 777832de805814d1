"""Streamable HTTP with sessions (protocol versions before 2026-07-28).

A session outlives its connections: a client that loses one has not cancelled, and may resume its streams.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import INVALID_REQUEST
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.protocol import jsonrpc, versions
from switchboard_mcp.server.http import validation
from switchboard_mcp.server.http.event_stream import EventStream
from switchboard_mcp.server.http.exchange import EVENT_TYPE, HttpExchange
from switchboard_mcp.server.http.session_turns import SessionTurns
from switchboard_mcp.server.http.sessions import HostSession, Sessions
from switchboard_mcp.server.http.streamable_http_stateless import COMMIT_S
from switchboard_mcp.server.http.validation import MessageHead, Refusal, refusal

LAST_EVENT = b"last-event-id"


class _Cancelled(Struct, rename="camel"):
    request_id: Raw | UnsetType = UNSET


_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode


class SessionHandler:
    """Serves POST, GET and DELETE of clients with a session."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop, sessions: Sessions) -> None:
        self._gateway = gateway
        self._loop = loop
        self._turns = SessionTurns(loop)
        self.sessions = sessions

    async def serve(self, exchange: HttpExchange, posted: MessageHead, body: bytes) -> None:
        """Serve a POST of one message."""
        key = exchange.headers.get(validation.SESSION)
        if key is None and posted.method == "initialize" and posted.id is not UNSET:
            await self._initialize(exchange, bytes(posted.id), body)
            return
        session = self._session(exchange)
        if isinstance(session, Refusal):
            await exchange.reply(session.status, session.body)
        elif posted.id is not UNSET and posted.method is not UNSET:
            await self._request(exchange, session, {bytes(posted.id): body})
        else:
            self._receive(session, posted, body)
            await exchange.reply(202)

    async def serve_batch(self, exchange: HttpExchange, body: bytes) -> None:
        """Serve a POST of a batch, which only protocol version 2025-03-26 has."""
        session = self._session(exchange)
        if isinstance(session, Refusal):
            await exchange.reply(session.status, session.body)
            return
        members = jsonrpc.split_batch(body) if versions.allows_batches(session.session.version) else []
        if not isinstance(members, list) or not members:
            message = "Invalid request: batches are not supported in this session."
            await exchange.reply(400, jsonrpc.error(b"null", INVALID_REQUEST, message))
            return
        read = [(member, validation.read(member)) for member in members]
        bad = next((posted for _, posted in read if isinstance(posted, Refusal)), None)
        if bad is not None:
            await exchange.reply(bad.status, bad.body)
            return
        requests = {}
        for member, posted in read:
            assert isinstance(posted, MessageHead)
            if posted.id is not UNSET and posted.method is not UNSET:
                requests[bytes(posted.id)] = member
            else:
                self._receive(session, posted, member)
        if requests:
            await self._request(exchange, session, requests, batch=True)
        else:
            await exchange.reply(202)

    async def listen(self, exchange: HttpExchange) -> None:
        """Serve a GET: the session's own stream, or a resumed one."""
        if not exchange.accepts(EVENT_TYPE):
            await exchange.refuse(406, "GET returns text/event-stream. Add it to Accept.")
            return
        session = self._session(exchange)
        if isinstance(session, Refusal):
            await exchange.reply(session.status, session.body)
            return
        number, after = 0, None
        last_event = exchange.headers.get(LAST_EVENT)
        if last_event is not None:
            first, _, second = last_event.strip().partition(b"-")
            if not (first.isdigit() and second.isdigit() and len(last_event) < 40):
                await exchange.refuse(400, "Last-Event-ID is not an event id of this server.")
                return
            number, after = int(first), int(second)
        stream = session.stream(number)
        if stream is None:
            await exchange.refuse(400, "The stream of this Last-Event-ID is no longer available.")
        elif stream.attached and last_event is None:
            await exchange.refuse(409, "This session already has a stream.")
        else:
            output = EventStream(self._loop, exchange.guard)
            stream.attach(output, after, primed=session.supports_priming)
            self.sessions.begin_request(session)
            try:
                await exchange.stream(output, (validation.SESSION, session.key.encode()))
            finally:
                self.sessions.end_request(session)

    async def delete(self, exchange: HttpExchange) -> None:
        """Serve a DELETE: end the session."""
        session = self._session(exchange)
        if isinstance(session, Refusal):
            await exchange.reply(session.status, session.body)
        else:
            self.sessions.end(session)
            await exchange.reply(200)

    async def _initialize(self, exchange: HttpExchange, id: bytes, body: bytes) -> None:
        session = self.sessions.open(exchange.principal)
        if session is None:
            await exchange.reply(503, jsonrpc.error(id, INVALID_REQUEST, "Too many sessions."))
            return
        try:
            await self._request(exchange, session, {id: body})
        finally:
            if not session.session.initialized:
                self.sessions.end(session)

    async def _request(
        self,
        exchange: HttpExchange,
        session: HostSession,
        requests: dict[bytes, bytes],
        *,
        batch: bool = False,
    ) -> None:
        """Forward one request, or those of a batch, by id, and respond with JSON or events."""
        output = EventStream(self._loop, exchange.guard)
        post = session.post(output, list(requests), batch=batch)
        key = (validation.SESSION, session.key.encode())
        self.sessions.begin_request(session)
        try:
            if len(self.sessions.all) > 1:
                await self._turns.wait(session)
            for body in requests.values():
                self._gateway.receive(session.session, post, body)
            events = exchange.prefers_events
            if not (post.answered or output.buffer or events):
                await output.wait(COMMIT_S)
            answer = None if events else post.body()
            if answer is not None:
                await exchange.reply(200, answer, key)
            elif not output.closed:
                post.commit(primed=session.supports_priming)
                session.retain(post)
                await exchange.stream(output, key)
        finally:
            if not post.committed:
                session.forget(post)
            self.sessions.end_request(session)

    def _receive(self, session: HostSession, posted: MessageHead, body: bytes) -> None:
        """Forward a notification or a response."""
        in_flight = session.session.in_flight
        cancelled = b""
        if posted.method == "notifications/cancelled" and posted.params is not UNSET:
            try:
                id = _decode_cancelled(posted.params).request_id
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                id = UNSET
            cancelled = bytes(id) if id is not UNSET and bytes(id) in in_flight else b""
        self._gateway.receive(session.session, session.own_stream, body)
        if cancelled and cancelled not in in_flight:
            session.on_cancelled(cancelled)
        self.sessions.begin_request(session)
        self.sessions.end_request(session)

    def _session(self, exchange: HttpExchange) -> HostSession | Refusal:
        """Return the session that a request names."""
        key = exchange.headers.get(validation.SESSION)
        if key is None:
            return refusal(400, INVALID_REQUEST, "Mcp-Session-Id is missing. Send `initialize` to get one.")
        session = self.sessions.find(key.decode("latin-1"), exchange.principal)
        if session is None:
            return refusal(404, INVALID_REQUEST, "No such session. Send `initialize` again.")
        return session
