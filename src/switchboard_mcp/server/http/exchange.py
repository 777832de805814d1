"""One HTTP request and its response, as the handlers see them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.server.http import asgi
from switchboard_mcp.server.http.asgi import EVENTS, JSON, BodyFailure, Headers, Receive, Send
from switchboard_mcp.server.http.connection_limits import ConnectionGuard
from switchboard_mcp.server.http.event_stream import EventStream

JSON_TYPE, EVENT_TYPE = b"application/json", b"text/event-stream"


class HttpExchange(Struct):
    """One request. `extra` headers go with every response; `principal` is the authenticated client.

    `query_token` is the token of a client that sent it in the URL.
    """

    method: str
    path: str
    query: bytes
    headers: Headers
    pairs: Sequence[tuple[bytes, bytes]]
    guard: ConnectionGuard
    receive: Receive
    send: Send
    extra: tuple[tuple[bytes, bytes], ...] = ()
    principal: str = ""
    query_token: str = ""
    body_read: bool = False

    def accepts(self, kind: bytes) -> bool:
        """Return True if the client accepts this content type."""
        accepted = self.headers.get(b"accept")
        if accepted is None or b"*/*" in accepted:
            return True
        accepted = accepted.lower()
        return kind in accepted or kind.partition(b"/")[0] + b"/*" in accepted

    @property
    def prefers_events(self) -> bool:
        """True if the client names events before JSON, or accepts nothing else."""
        accepted = self.headers.get(b"accept", b"").lower()
        events, plain = accepted.find(EVENT_TYPE), accepted.find(JSON_TYPE)
        return events >= 0 and (events < plain or not self.accepts(JSON_TYPE))

    async def body(self, limit: int) -> bytes | None:
        """Return the body, or None if it is too large (responded with 413) or the client has gone."""
        body = await self.read_body(limit)
        if not isinstance(body, BodyFailure):
            return body
        if body is BodyFailure.TOO_LARGE:
            message = f"The body is larger than {limit:,} bytes (http.maxBodyBytes)."
            await asgi.respond(self.send, 413, message.encode(), asgi.TEXT, asgi.CLOSE, *self.extra)
        return None

    async def read_body(self, limit: int) -> bytes | BodyFailure:
        """Return the body, or the reason why it cannot be read. Disconnects a client that is too slow."""
        timer = self.guard.abort_after(asgi.BODY_TIMEOUT_S)
        try:
            return await asgi.read_body(self.receive, self.headers, limit)
        finally:
            timer.cancel()
            self.body_read = True

    async def discard_body(self) -> bool:
        """Read and drop an unread body. Return False if it did not end in time."""
        return self.body_read or not asgi.has_body(self.headers) or await asgi.discard(self.receive)

    async def refuse(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        """Respond with a status and a sentence, before the body is read."""
        await asgi.refuse(
            self.receive, self.send, self.headers, status, message.encode(), asgi.TEXT, *headers, *self.extra
        )

    async def reply(self, status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> None:
        """Respond with JSON, or without a body."""
        if body:
            headers = (JSON, *headers)
        if self.extra:
            headers = (*headers, *self.extra)
        await asgi.respond(self.send, status, body, *headers)

    async def stream(self, output: EventStream, *headers: tuple[bytes, bytes]) -> None:
        """Respond with events until they end or the client disconnects."""
        pairs = [*EVENTS, *headers, *self.extra]
        await self.send({"type": "http.response.start", "status": 200, "headers": pairs})
        await output.pump(self.send)
