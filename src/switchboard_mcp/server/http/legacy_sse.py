"""HTTP+SSE, the transport of 2024-11-05: one stream carries all messages to the client, POSTs all messages from it.

The session is the stream: when the stream ends, its requests are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from urllib.parse import parse_qs, quote

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import http_host
from switchboard_mcp.server.http.event_stream import EventStream, event
from switchboard_mcp.server.http.exchange import EVENT_TYPE, HttpExchange
from switchboard_mcp.server.http.sessions import new_key

MESSAGES = "/messages"


class SseChannel:
    """The reply channel of one client: its event stream."""

    __slots__ = ("output", "session")

    def __init__(self, output: EventStream, gateway: Gateway, principal: str) -> None:
        self.output = output
        self.session = gateway.open(self, http_host("sse", principal))

    @property
    def backlog(self) -> int:
        """Bytes that the host has not taken."""
        return self.output.size

    def send(self, message: bytes) -> None:
        """Send a notification or a request."""
        self.output.put(event(message))

    def answer(self, message: bytes) -> None:
        """Send a response."""
        self.output.put(event(message))


class LegacySseHandler:
    """Serves `/sse` and `/messages`."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop, max_sessions: int) -> None:
        self._gateway = gateway
        self._loop = loop
        self._max_sessions = max_sessions
        self.all: dict[str, SseChannel] = {}
        self.opened = 0

    async def listen(self, exchange: HttpExchange) -> None:
        """Serve GET /sse: open a session and stream its messages."""
        if not exchange.accepts(EVENT_TYPE):
            await exchange.refuse(406, "GET returns text/event-stream. Add it to Accept.")
            return
        if len(self.all) >= self._max_sessions:
            await exchange.refuse(503, "Too many sessions.")
            return
        channel = SseChannel(EventStream(self._loop, exchange.guard), self._gateway, exchange.principal)
        key = new_key()
        self.all[key] = channel
        self.opened += 1
        endpoint = f"{MESSAGES}?sessionId={key}"
        if exchange.query_token:  # a client that cannot send headers posts to exactly this URL
            endpoint += f"&token={quote(exchange.query_token, safe='')}"
        channel.output.put(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        try:
            await exchange.stream(channel.output)
        finally:
            del self.all[key]
            self._gateway.close(channel.session)

    def find(self, exchange: HttpExchange) -> SseChannel | None:
        """Return the session a POST names, or None if it is unknown or belongs to another principal."""
        keys = parse_qs(exchange.query.decode("latin-1"))
        key = (keys.get("sessionId") or keys.get("session_id") or [""])[0]
        channel = self.all.get(key)
        return channel if channel is not None and channel.session.principal == exchange.principal else None

    def receive(self, channel: SseChannel, body: bytes) -> None:
        """Handle a message of the client. Its response goes out on the stream."""
        self._gateway.receive(channel.session, channel, body)

    def end_all(self, principals: Set[str] | None = None) -> None:
        """End all streams, or those of some clients."""
        for channel in self.all.values():
            if principals is not None and channel.session.principal not in principals:
                continue
            channel.output.finish()
