"""A small MCP server in this process, over a transport in memory: how Switchboard offers its own tools.

A `ServerApp` defines its tools and resources. The server speaks the legacy protocol family, since the gateway
translates between families. It handles requests, progress, cancellation and subscriptions of one client, and keeps a
failing tool from affecting others. Not aware of what tools do.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Task
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.config.sections import CHANNEL
from switchboard_mcp.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Failure,
    SwitchboardError,
    failure,
    rpc_error,
    tool_result,
)
from switchboard_mcp.inprocess.server_app import (
    ClientIdentity,
    ClientSession,
    ToolRequest,
    ToolSpec,
    ToolTable,
)
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.rpc import Cancelled, Peer, PendingRequest

UPDATED = "notifications/resources/updated"


class _CallParams(Struct, rename="camel"):
    name: str = ""
    arguments: Raw | UnsetType = UNSET
    meta: dict[str, Raw] = msgspec.field(name="_meta", default={})


class _UriParams(Struct):
    uri: str


_decode_call = msgspec.json.Decoder(_CallParams).decode
_decode_uri = msgspec.json.Decoder(_UriParams).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode


class InProcessServer:
    """The server of one client. `start_task` owns its tasks, `on_error` is called with bugs of ours."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        transport: MessageTransport,
        tool_table: ToolTable,
        start_task: Callable[[Coroutine[Any, Any, None]], Task[None]],
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._tool_table = tool_table
        self._start_task = start_task
        self._on_error = on_error
        self._peer = Peer(loop, transport, self)
        self._session: ClientSession
        self._running: dict[bytes, Task[None]] = {}
        self._subscribed: frozenset[str] = frozenset()
        self._closed = False

    async def open(self, client: ClientIdentity) -> None:
        """Open the session and start receiving."""
        self._session = await self._tool_table.app.open_session(self, client)
        self._peer.start()

    def resource_updated(self, uri: str) -> None:
        """Notify the client of a changed resource if it has subscribed to it."""
        if uri in self._subscribed:
            self._peer.notify(UPDATED, jsonrpc.encode({"uri": uri}))

    def log_message(self, level: str, text: str) -> None:
        """Send a log message to the client."""
        params = {"level": level, "logger": self._tool_table.app.name, "data": text}
        self._peer.notify("notifications/message", jsonrpc.encode(params))

    def channel_event(self, text: str, meta: Mapping[str, str]) -> None:
        """Send a channel event to the client."""
        self._peer.notify(CHANNEL, jsonrpc.encode({"content": text, "meta": meta}))

    async def close(self) -> None:
        """Cancel all work for this client and close its session."""
        if not self._closed:
            self._closed = True
            for task in list(self._running.values()):
                task.cancel()
            self._peer.transport.close()
            await self._session.close()

    def request_received(self, message: RpcMessage) -> None:
        """Handle a request."""
        assert message.id is not UNSET
        id, method = bytes(message.id), str(message.method)
        fixed = self._tool_table.static_results.get(method)
        if fixed is not None:
            self._peer.transport.send(jsonrpc.result(id, fixed))
            return
        serve = HANDLERS.get(method)
        params = message.params if message.params is not UNSET else Raw(b"{}")
        if serve is None:
            self._refuse(id, METHOD_NOT_FOUND, f"Method not found: {method}")
            return
        try:
            work = serve(self, id, params)
        except msgspec.DecodeError as problem:
            self._refuse(id, INVALID_PARAMS, f"{method}: {problem}")
            return
        if work is not None:
            self.run(id, method, work)

    def run(self, id: bytes, method: str, work: Coroutine[Any, Any, bytes]) -> None:
        """Run a coroutine and respond with its result."""
        task = self._running[id] = self._start_task(self._respond(id, method, work))
        task.add_done_callback(lambda _task: self._running.pop(id, None))

    def notification_received(self, message: RpcMessage) -> None:
        """Handle a notification; only cancellation has an effect."""
        if message.method == "notifications/cancelled" and message.params is not UNSET:
            request_id = _decode_cancelled(message.params).request_id
            task = self._running.get(bytes(request_id)) if request_id is not UNSET else None
            if task is not None:
                task.cancel()

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        """Ignore it: an in-memory client sends messages only."""

    def connection_lost(self) -> None:
        """Close the session."""
        self._start_task(self.close())

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """Ignore it: this server sends no requests."""

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """Ignore it: this server sends no requests."""

    def call_tool(self, id: bytes, params: Raw) -> Coroutine[Any, Any, bytes] | None:
        """Handle `tools/call`."""
        call = _decode_call(params)
        tool = self._tool_table.tools.get(call.name)
        if tool is None:
            self._refuse(id, INVALID_PARAMS, f"Unknown tool '{call.name}'.")
            return None
        encoded = call.arguments if call.arguments is not UNSET else Raw(b"{}")
        try:
            arguments = msgspec.json.decode(encoded, type=tool.args_type)
        except msgspec.DecodeError as problem:
            invalid = failure("arguments_invalid", f"{tool.name}: {problem}.", schema=tool.schema)
            self._peer.transport.send(jsonrpc.result(id, tool_result(invalid)))
            return None
        request = ToolRequest(self._peer.notify, call.meta.get("progressToken", UNSET), id)
        return self._call(tool, arguments, request)

    def read_resource(self, id: bytes, params: Raw) -> Coroutine[Any, Any, bytes]:
        """Handle `resources/read`."""
        return self._read(_decode_uri(params).uri)

    def subscribe(self, id: bytes, params: Raw) -> None:
        """Handle `resources/subscribe`."""
        self._set_subscriptions(id, self._subscribed | {_decode_uri(params).uri})

    def unsubscribe(self, id: bytes, params: Raw) -> None:
        """Handle `resources/unsubscribe`."""
        self._set_subscriptions(id, self._subscribed - {_decode_uri(params).uri})

    def _set_subscriptions(self, id: bytes, uris: frozenset[str]) -> None:
        self._subscribed = uris
        self._session.subscriptions_changed(uris)
        self._peer.transport.send(jsonrpc.result(id, b"{}"))

    async def _call(self, tool: ToolSpec, arguments: Struct, request: ToolRequest) -> bytes:
        try:
            outcome = await tool.handler(self._session, arguments, request)
        except SwitchboardError as problem:
            outcome = problem.failure
        except Exception as problem:  # noqa: BLE001 - the client gets an answer, without our internals
            self._on_error(tool.name, problem)
            outcome = failure("internal", f"Tool '{tool.name}' failed unexpectedly.")
        if isinstance(outcome, Failure):
            return tool_result(outcome)
        if isinstance(outcome, Raw):  # a child's result, relayed as it is
            return bytes(outcome)
        if isinstance(outcome, bytes):  # JSON text for a model, sent once
            return jsonrpc.encode({"content": [{"type": "text", "text": outcome.decode()}]})
        text = jsonrpc.encode(outcome)
        return jsonrpc.encode(
            {"content": [{"type": "text", "text": text.decode()}], "structuredContent": Raw(text)}
        )

    async def _read(self, uri: str) -> bytes:
        try:
            contents = await self._session.read(uri)
        except SwitchboardError as problem:
            contents = problem.failure
        if contents is None:
            raise _RpcError(message_meta.RESOURCE_NOT_FOUND, f"Unknown resource '{uri}'.")
        if isinstance(contents, Failure):
            raise SwitchboardError(contents)
        text = jsonrpc.encode(contents).decode()
        return jsonrpc.encode({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})

    async def _respond(self, id: bytes, method: str, work: Coroutine[Any, Any, bytes]) -> None:
        """Run it and send the response; none is sent if it is cancelled."""
        try:
            answer = jsonrpc.result(id, await work)
        except CancelledError:
            work.close()
            raise
        except _RpcError as problem:
            answer = jsonrpc.error(id, problem.code, str(problem))
        except SwitchboardError as problem:
            answer = jsonrpc.error_body(id, rpc_error(problem.failure))
        except Exception as problem:  # noqa: BLE001 - as above
            self._on_error(method, problem)
            answer = jsonrpc.error_body(id, rpc_error(failure("internal", f"{method} failed unexpectedly.")))
        self._peer.transport.send(answer)

    def _refuse(self, id: bytes, code: int, message: str) -> None:
        self._peer.transport.send(jsonrpc.error(id, code, message))


class _RpcError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


HANDLERS: dict[str, Callable[[InProcessServer, bytes, Raw], Coroutine[Any, Any, bytes] | None]] = {
    "tools/call": InProcessServer.call_tool,
    "resources/read": InProcessServer.read_resource,
    "resources/subscribe": InProcessServer.subscribe,
    "resources/unsubscribe": InProcessServer.unsubscribe,
}
