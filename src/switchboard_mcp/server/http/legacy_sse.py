"""HTTP+SSE, the transport of 2024-11-05: one stream carries everything to the client, POSTs everything from it.

The session is the stream: when it ends, so does all that was asked on it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.server.http.event_stream import EventStream, event
from switchboard_mcp.server.http.exchange import EVENT_TYPE, HttpExchange
from switchboard_mcp.server.http.sessions import new_key

MESSAGES = "/messages"


class SseChannel:
    """All that goes to one client."""

    __slots__ = ("output", "session")

    def __init__(self, output: EventStream, gateway: Gateway, principal: str) -> None:
        self.output = output
        self.session = gateway.open(self, principal)

    def send(self, message: bytes) -> None:
        """A notification or a request of ours."""
        self.output.put(event(message))

    def answer(self, message: bytes) -> None:
        """A response."""
        self.output.put(event(message))


class LegacySseHandler:
    """See the module."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop, max_sessions: int) -> None:
        self._gateway = gateway
        self._loop = loop
        self._max_sessions = max_sessions
        self.all: dict[str, SseChannel] = {}
        self.opened = 0

    async def listen(self, exchange: HttpExchange) -> None:
        """GET /sse: a new session."""
        if not exchange.accepts(EVENT_TYPE):
            await exchange.refuse(406, "A GET here is answered with text/event-stream; accept it.")
            return
        if len(self.all) >= self._max_sessions:
            await exchange.refuse(503, "Too many sessions.")
            return
        channel = SseChannel(EventStream(self._loop, exchange.guard), self._gateway, exchange.principal)
        key = new_key()
        self.all[key] = channel
        self.opened += 1
        channel.output.put(f"event: endpoint\ndata: {MESSAGES}?sessionId={key}\n\n".encode())
        try:
            await exchange.stream(channel.output)
        finally:
            del self.all[key]
            self._gateway.close(channel.session)

    def find(self, exchange: HttpExchange) -> SseChannel | None:
        """The road to whoever sends a message, if the session is theirs."""
        keys = parse_qs(exchange.query.decode("latin-1"))
        key = (keys.get("sessionId") or keys.get("session_id") or [""])[0]
        channel = self.all.get(key)
        return channel if channel is not None and channel.session.principal == exchange.principal else None

    def receive(self, channel: SseChannel, body: bytes) -> None:
        """A message on a session; its answer goes out on the stream."""
        self._gateway.receive(channel.session, channel, body)

    def end_all(self) -> None:
        """Nothing comes any more."""
        for channel in self.all.values():
            channel.output.finish()
