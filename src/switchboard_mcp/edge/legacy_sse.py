"""HTTP+SSE, the transport of 2024-11-05: one stream carries everything to the client, POSTs everything from it.

The session is the stream: when it ends, so does all that was asked on it.
"""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from urllib.parse import parse_qs

from switchboard_mcp.edge import ladder
from switchboard_mcp.edge.exchange import EVENT_TYPE, Exchange
from switchboard_mcp.edge.ladder import Refusal
from switchboard_mcp.edge.outlet import Outlet, event
from switchboard_mcp.edge.sessions import KEY_BYTES
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import Session

MESSAGES = "/messages"


class SseRoad:
    """All that goes to one client."""

    __slots__ = ("outlet",)

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def send(self, message: bytes) -> None:
        """A notification or a request of ours."""
        self.outlet.put(event(message))

    def answer(self, message: bytes) -> None:
        """A response."""
        self.outlet.put(event(message))


class LegacySse:
    """See the module."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._gateway = gateway
        self._loop = loop
        self._most = most
        self.all: dict[str, tuple[Session, SseRoad]] = {}

    async def listen(self, exchange: Exchange) -> None:
        """GET /sse: a new session."""
        if not exchange.takes(EVENT_TYPE):
            await exchange.refuse(406, "A GET here is answered with text/event-stream; accept it.")
            return
        if len(self.all) >= self._most:
            await exchange.refuse(503, "Too many sessions.")
            return
        road = SseRoad(Outlet(self._loop, exchange.guard))
        session = self._gateway.open(road, exchange.principal)
        key = token_urlsafe(KEY_BYTES)
        self.all[key] = session, road
        road.outlet.put(f"event: endpoint\ndata: {MESSAGES}?sessionId={key}\n\n".encode())
        try:
            await exchange.stream(road.outlet)
        finally:
            del self.all[key]
            self._gateway.close(session)

    async def post(self, exchange: Exchange, limit: int) -> None:
        """POST /messages: a message on a session."""
        keys = parse_qs(exchange.query.decode("latin-1"))
        key = (keys.get("sessionId") or keys.get("session_id") or [""])[0]
        session, road = self.all.get(key, (None, None))
        if session is None or road is None or session.principal != exchange.principal:
            await exchange.refuse(404, "There is no such session; GET /sse opens one.")
            return
        body = await exchange.body(limit)
        if body is None:
            return
        posted = ladder.read(body) if body[:1] != b"[" else None
        if isinstance(posted, Refusal):
            await exchange.reply(posted.status, posted.body)
            return
        self._gateway.receive(session, road, body)
        await exchange.reply(202)

    def end_all(self) -> None:
        """Nothing comes any more."""
        for _session, road in self.all.values():
            road.outlet.finish()
