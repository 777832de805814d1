"""A small MCP server in this process, on a link in memory: how Switchboard offers tools of its own.

What it is comes from a `program`. The server speaks the handshake era, since the gateway puts any host's era to any
child's; it owns requests, progress, cancellation and subscriptions of one client, and keeps one failing tool from the
rest. It knows nothing of what tools do.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Task
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

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
    """One client's server. `start_task` owns what it does meanwhile, `wrong` hears of faults of ours."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        link: MessageTransport,
        menu: ToolTable,
        start_task: Callable[[Coroutine[Any, Any, None]], Task[None]],
        wrong: Callable[[str, BaseException], None],
    ) -> None:
        self._menu = menu
        self._start_task = start_task
        self._wrong = wrong
        self._peer = Peer(loop, link, self)
        self._sitting: ClientSession
        self._working: dict[bytes, Task[None]] = {}
        self._followed: frozenset[str] = frozenset()
        self._over = False

    async def open(self, caller: ClientIdentity) -> None:
        """Begin to listen."""
        self._sitting = await self._menu.app.open_session(self, caller)
        self._peer.start()

    def resource_updated(self, uri: str) -> None:
        """A resource has changed: tell the client if it follows it."""
        if uri in self._followed:
            self._peer.notify(UPDATED, jsonrpc.encode({"uri": uri}))

    def log_message(self, level: str, text: str) -> None:
        """A log message for the client."""
        told = {"level": level, "logger": self._menu.app.name, "data": text}
        self._peer.notify("notifications/message", jsonrpc.encode(told))

    async def close(self) -> None:
        """Nothing more is done for this client."""
        if not self._over:
            self._over = True
            for task in list(self._working.values()):
                task.cancel()
            self._peer.transport.close()
            await self._sitting.close()

    def request_received(self, message: RpcMessage) -> None:
        """The client asks."""
        assert message.id is not UNSET
        id, method = bytes(message.id), str(message.method)
        fixed = self._menu.static_results.get(method)
        if fixed is not None:
            self._peer.transport.send(jsonrpc.result(id, fixed))
            return
        serve = SERVED.get(method)
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
        """Answer a request with what comes of a piece of work."""
        task = self._working[id] = self._start_task(self._contained(id, method, work))
        task.add_done_callback(lambda _task: self._working.pop(id, None))

    def notification_received(self, message: RpcMessage) -> None:
        """The client tells; only of a request that it no longer wants."""
        if message.method == "notifications/cancelled" and message.params is not UNSET:
            wanted = _decode_cancelled(message.params).request_id
            task = self._working.get(bytes(wanted)) if wanted is not UNSET else None
            if task is not None:
                task.cancel()

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        """Nobody sends such here."""

    def connection_lost(self) -> None:
        """The client has gone."""
        self._start_task(self.close())

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """We ask nothing."""

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """We ask nothing."""

    def call_tool(self, id: bytes, params: Raw) -> Coroutine[Any, Any, bytes] | None:
        """`tools/call`."""
        asked = _decode_call(params)
        tool = self._menu.tools.get(asked.name)
        if tool is None:
            self._refuse(id, INVALID_PARAMS, f"Unknown tool '{asked.name}'.")
            return None
        written = asked.arguments if asked.arguments is not UNSET else Raw(b"{}")
        try:
            arguments = msgspec.json.decode(written, type=tool.args_type)
        except msgspec.DecodeError as problem:
            told = failure("arguments_invalid", f"{tool.name}: {problem}.", schema=tool.schema)
            self._peer.transport.send(jsonrpc.result(id, tool_result(told)))
            return None
        request = ToolRequest(self._peer.notify, asked.meta.get("progressToken", UNSET))
        return self._use(tool, arguments, request)

    def read_resource(self, id: bytes, params: Raw) -> Coroutine[Any, Any, bytes]:
        """`resources/read`."""
        return self._read(_decode_uri(params).uri)

    def subscribe(self, id: bytes, params: Raw) -> None:
        """`resources/subscribe`."""
        self._follow(id, self._followed | {_decode_uri(params).uri})

    def unsubscribe(self, id: bytes, params: Raw) -> None:
        """`resources/unsubscribe`."""
        self._follow(id, self._followed - {_decode_uri(params).uri})

    def _follow(self, id: bytes, uris: frozenset[str]) -> None:
        self._followed = uris
        self._sitting.subscriptions_changed(uris)
        self._peer.transport.send(jsonrpc.result(id, b"{}"))

    async def _use(self, tool: ToolSpec, arguments: Struct, request: ToolRequest) -> bytes:
        try:
            outcome = await tool.handler(self._sitting, arguments, request)
        except SwitchboardError as problem:
            outcome = problem.failure
        except Exception as problem:  # noqa: BLE001 - the client gets an answer, without our internals
            self._wrong(tool.name, problem)
            outcome = failure("internal", f"Tool '{tool.name}' went wrong.")
        if isinstance(outcome, Failure):
            return tool_result(outcome)
        if isinstance(outcome, Raw):  # somebody else's result, passed on as it is
            return bytes(outcome)
        text = jsonrpc.encode(outcome)
        return jsonrpc.encode(
            {"content": [{"type": "text", "text": text.decode()}], "structuredContent": Raw(text)}
        )

    async def _read(self, uri: str) -> bytes:
        try:
            held = await self._sitting.read(uri)
        except SwitchboardError as problem:
            held = problem.failure
        if held is None:
            raise _Refused(message_meta.RESOURCE_NOT_FOUND, f"Unknown resource '{uri}'.")
        if isinstance(held, Failure):
            raise SwitchboardError(held)
        text = jsonrpc.encode(held).decode()
        return jsonrpc.encode({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})

    async def _contained(self, id: bytes, method: str, work: Coroutine[Any, Any, bytes]) -> None:
        """Do it and answer; nothing is answered where it was cancelled."""
        try:
            answer = jsonrpc.result(id, await work)
        except CancelledError:
            work.close()
            raise
        except _Refused as problem:
            answer = jsonrpc.error(id, problem.code, str(problem))
        except SwitchboardError as problem:
            answer = jsonrpc.error_body(id, rpc_error(problem.failure))
        except Exception as problem:  # noqa: BLE001 - as above
            self._wrong(method, problem)
            answer = jsonrpc.error_body(id, rpc_error(failure("internal", f"{method} went wrong.")))
        self._peer.transport.send(answer)

    def _refuse(self, id: bytes, code: int, message: str) -> None:
        self._peer.transport.send(jsonrpc.error(id, code, message))


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


SERVED: dict[str, Callable[[InProcessServer, bytes, Raw], Coroutine[Any, Any, bytes] | None]] = {
    "tools/call": InProcessServer.call_tool,
    "resources/read": InProcessServer.read_resource,
    "resources/subscribe": InProcessServer.subscribe,
    "resources/unsubscribe": InProcessServer.unsubscribe,
}
