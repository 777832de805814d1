"""An MCP client in this process, so commands see exactly what any other host sees.

Speaks MCP to the gateway over an in-memory transport. Interpreting the results is up to the commands.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.errors import METHOD_NOT_FOUND, Failure, SwitchboardError, refused
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import Approver, local_host
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.protocol.versions import LATEST_LEGACY
from switchboard_mcp.transport.memory import MemoryTransport, pair
from switchboard_mcp.transport.rpc import AwaitedRequest, Peer, PendingRequest

# The gateway limits how long a child may take; a person at a terminal has Ctrl-C.
TIMEOUT_S = 24 * 3600.0


class Progress(Struct, gc=False):
    """The params of a progress notification."""

    progress: float = 0.0
    total: float | None = None
    message: str | None = None


class LogMessage(Struct):
    """The params of a log notification."""

    level: str = ""
    logger: str = ""
    data: object = None


class ToolPage(Struct, rename="camel"):
    """The members of a `tools/list` result that all pages are collected from."""

    tools: list[Raw] = []
    next_cursor: str = ""


class ToolResult(Struct, rename="camel"):
    """The members of a `tools/call` result that commands use; `raw` is the whole result."""

    content: list[dict[str, object]] = []
    structured_content: Raw | UnsetType = UNSET
    is_error: bool | None = None
    raw: bytes = b""


OnProgress = Callable[[Progress], None]
OnLog = Callable[[LogMessage], None]

_decode_progress = msgspec.json.Decoder(Progress).decode
_decode_log = msgspec.json.Decoder(LogMessage).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


class LocalToolCall(AwaitedRequest):
    """A `tools/call` that requests progress."""

    __slots__ = ("on_progress",)

    def __init__(self, loop: AbstractEventLoop, name: str, arguments: bytes, tell: OnProgress | None) -> None:
        super().__init__(loop, "tools/call", b"{}", TIMEOUT_S)
        meta = {"progressToken": Raw(self.id)}
        params = {"name": name, "arguments": Raw(arguments), "_meta": meta}
        self.message = jsonrpc.request(self.id, "tools/call", jsonrpc.encode(params))
        self.on_progress = tell

    def progressed(self, params: Raw) -> None:
        """Report progress to the callback."""
        if self.on_progress is not None:
            try:
                self.on_progress(_decode_progress(params))
            except msgspec.DecodeError:
                return


class LocalClient:
    """An initialized MCP client; created by `connected`."""

    capabilities: Mapping[str, object] = {}

    def __init__(self, link: MemoryTransport, on_log: OnLog | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._on_log = on_log
        self._peer = Peer(self._loop, link, self)
        self._peer.start()

    async def initialize(self) -> None:
        """Perform the initialize handshake."""
        hello = {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "switchboard-cli", "version": __version__},
        }
        await self._request(AwaitedRequest(self._loop, "initialize", jsonrpc.encode(hello), TIMEOUT_S))
        self._peer.notify("notifications/initialized")

    async def list_tools(self) -> Raw:
        """Return the result of `tools/list`, with the tools of all its pages."""
        tools: list[Raw] = []
        params = b"{}"
        while True:
            result = await self._request(AwaitedRequest(self._loop, "tools/list", params, TIMEOUT_S))
            page = msgspec.json.decode(result, type=ToolPage)
            if not page.next_cursor and not tools:
                return result
            tools += page.tools
            if not page.next_cursor:
                return Raw(jsonrpc.encode({"tools": tools}))
            params = jsonrpc.encode({"cursor": page.next_cursor})

    async def call(self, name: str, arguments: object, tell: OnProgress | None = None) -> ToolResult:
        """Return the result of `tools/call`; cancelling it notifies the child."""
        call = LocalToolCall(self._loop, name, jsonrpc.encode(arguments), tell)
        try:
            raw = await self._request(call)
        except asyncio.CancelledError:
            self._peer.cancel(call, "cancelled by the user")
            # Two loop iterations: one hands the notification to the gateway, one lets the gateway notify the child.
            for _ in range(2):
                await asyncio.sleep(0)
            raise
        try:
            result = _decode_result(raw)
        except msgspec.DecodeError as problem:
            raise refused("child_protocol", f"The answer is not a tool result: {problem}.") from None
        result.raw = bytes(raw)
        return result

    async def _request(self, call: AwaitedRequest) -> Raw:
        self._peer.send(call)
        answer = await call.future
        if isinstance(answer, Failure):
            raise SwitchboardError(answer)
        if answer is None:
            raise refused("child_timeout", f"No answer within {TIMEOUT_S:g} s.")
        if answer.result is UNSET:
            error = jsonrpc.parse_error(answer.error) if answer.error is not UNSET else jsonrpc.RpcError()
            raise refused("internal", error.message or "The gateway sent no result.")
        return answer.result

    def request_received(self, message: RpcMessage) -> None:
        """Refuse a request: this client has no capabilities."""
        assert message.id is not UNSET
        self._link.send(jsonrpc.error(message.id, METHOD_NOT_FOUND, f"Method not found: {message.method}"))

    def notification_received(self, message: RpcMessage) -> None:
        """Report log messages; commands do not need list changes."""
        if (
            message.method == "notifications/message"
            and message.params is not UNSET
            and self._on_log is not None
        ):
            try:
                self._on_log(_decode_log(message.params))
            except msgspec.DecodeError:
                return

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        """Fail: the gateway sends valid messages only."""
        raise AssertionError(f"the gateway sent {noise!r}")

    def connection_lost(self) -> None:
        """Do nothing: the gateway never closes first."""

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """Do nothing: the in-memory transport has no limit."""

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """Do nothing: the gateway has already decoded every response."""


@asynccontextmanager
async def connected(
    gateway: Gateway, on_log: OnLog | None = None, approver: Approver | None = None
) -> AsyncIterator[LocalClient]:
    """Connect and initialize a client of the gateway. `approver` answers the questions of the gate."""
    ours, theirs = pair(asyncio.get_running_loop())
    session = gateway.attach(theirs, lambda _session: None, local_host(""))
    session.whole_results = True
    session.approver = approver
    host = LocalClient(ours, on_log)
    try:
        await host.initialize()
        yield host
    finally:
        gateway.close(session)
        ours.close()
