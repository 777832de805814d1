"""HTTP+SSE, the transport of 2024-11-05: one stream carries everything to the client, POSTs everything from it.

The session is the stream: when it ends, so does all that was asked on it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.server.http.event_stream import Outlet, event
from switchboard_mcp.server.http.exchange import EVENT_TYPE, HttpExchange
from switchboard_mcp.server.http.sessions import new_key

MESSAGES = "/messages"


class SseChannel:
    """All that goes to one client."""

    __slots__ = ("outlet", "session")

    def __init__(self, outlet: Outlet, gateway: Gateway, principal: str) -> None:
        self.outlet = outlet
        self.session = gateway.open(self, principal)

    def send(self, message: bytes) -> None:
        """A notification or a request of ours."""
        self.outlet.put(event(message))

    def answer(self, message: bytes) -> None:
        """A response."""
        self.outlet.put(event(message))


class LegacySseHandler:
    """See the module."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._gateway = gateway
        self._loop = loop
        self._most = most
        self.all: dict[str, SseChannel] = {}
        self.opened = 0

    async def listen(self, exchange: HttpExchange) -> None:
        """GET /sse: a new session."""
        if not exchange.takes(EVENT_TYPE):
            await exchange.refuse(406, "A GET here is answered with text/event-stream; accept it.")
            return
        if len(self.all) >= self._most:
            await exchange.refuse(503, "Too many sessions.")
            return
        road = SseChannel(Outlet(self._loop, exchange.guard), self._gateway, exchange.principal)
        key = new_key()
        self.all[key] = road
        self.opened += 1
        road.outlet.put(f"event: endpoint\ndata: {MESSAGES}?sessionId={key}\n\n".encode())
        try:
            await exchange.stream(road.outlet)
        finally:
            del self.all[key]
            self._gateway.close(road.session)

    def find(self, exchange: HttpExchange) -> SseChannel | None:
        """The road to whoever sends a message, if the session is theirs."""
        keys = parse_qs(exchange.query.decode("latin-1"))
        key = (keys.get("sessionId") or keys.get("session_id") or [""])[0]
        road = self.all.get(key)
        return road if road is not None and road.session.principal == exchange.principal else None

    def receive(self, road: SseChannel, body: bytes) -> None:
        """A message on a session; its answer goes out on the stream."""
        self._gateway.receive(road.session, road, body)

    def end_all(self) -> None:
        """Nothing comes any more."""
        for road in self.all.values():
            road.outlet.finish()
