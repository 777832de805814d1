"""Streamable HTTP without sessions (protocol version 2026-07-28): one POST, one response, no state.

The response is JSON if nothing is sent before it, otherwise an event stream. Until the stream starts, an error still
has its own HTTP status. A client that closes the connection has cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set

from msgspec import UNSET, Raw

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import Session, http_host
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.http_headers import HeaderMirror, InvalidMirror, find_mirrors
from switchboard_mcp.server.http import validation
from switchboard_mcp.server.http.event_stream import EventStream, event
from switchboard_mcp.server.http.exchange import HttpExchange
from switchboard_mcp.server.http.validation import MessageHead

# A response that takes longer is announced by starting an event stream.
COMMIT_S = 15.0


class ReplyStream:
    """The reply channel of one request."""

    __slots__ = ("answered", "committed", "output")

    def __init__(self, output: EventStream) -> None:
        self.output = output
        self.answered: bytes | None = None
        self.committed = False

    @property
    def backlog(self) -> int:
        """Bytes that the host has not taken."""
        return self.output.size

    def send(self, message: bytes) -> None:
        """Send a message before the response."""
        self.output.put(event(message))

    def answer(self, message: bytes) -> None:
        """Send the response."""
        self.answered = message
        if self.committed:
            self._finish(message)
        else:
            self.output.wake()

    def commit(self) -> None:
        """Switch from JSON to an event stream."""
        self.committed = True
        if self.answered is not None:
            self._finish(self.answered)

    def _finish(self, message: bytes) -> None:
        self.output.put(event(message))
        self.output.finish()


class StatelessHandler:
    """Serves POSTs of clients without a session. `sessions` has one entry per request in progress."""

    def __init__(self, gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
        self._gateway = gateway
        self._loop = loop
        self.sessions: set[Session] = set()

    async def serve(self, exchange: HttpExchange, posted: MessageHead, body: bytes) -> None:
        """Serve a POST of one message."""
        if posted.method is UNSET:
            error = jsonrpc.error(b"null", -32600, "Without a session there is no request to respond to.")
            await exchange.reply(400, error)
            return
        if posted.id is UNSET:
            await exchange.reply(202)
            return
        mirrors = self._mirrored_arguments(posted, self._gateway.view_of(exchange.principal))
        refused = validation.check(posted, exchange.headers, exchange.pairs, mirrors)
        if refused is not None:
            await exchange.reply(refused.status, refused.body)
            return
        output = EventStream(self._loop, exchange.guard)
        reply = ReplyStream(output)
        session = self._gateway.open(reply, http_host("http", exchange.principal), ephemeral=True)
        self.sessions.add(session)
        try:
            self._gateway.receive(session, reply, body)
            if reply.answered is None and not output.buffer:
                await output.wait(COMMIT_S)
            if reply.answered is not None and not output.buffer:
                await exchange.reply(validation.status_of(reply.answered, posted.id), reply.answered)
            elif not output.closed:
                reply.commit()
                await exchange.stream(output)
        finally:
            self.sessions.discard(session)
            self._gateway.close(session)

    def end_subscriptions(self, principals: Set[str] | None = None) -> None:
        """Complete all open subscriptions, or those of some clients."""
        for session in self.sessions:
            if principals is not None and session.principal not in principals:
                continue
            for listen in list(session.listens.values()):
                meta = {message_meta.SUBSCRIPTION: Raw(listen.id)}
                result = jsonrpc.encode({"resultType": "complete", "_meta": meta})
                listen.channel.answer(jsonrpc.result(listen.id, result))

    def _mirrored_arguments(self, posted: MessageHead, view: View) -> tuple[HeaderMirror, ...]:
        """Return the arguments that headers mirror, by the schema of the called tool."""
        if posted.method != "tools/call" or not view.has_direct_tools:
            return ()
        tool = view.tool_list.find_direct(validation.tool_of(posted))
        if tool is None:
            return ()
        schema = tool.suite.child.inventory.tool(tool.name).input_schema
        mirrors = find_mirrors(schema) if schema is not UNSET else ()
        return () if isinstance(mirrors, InvalidMirror) else mirrors
