"""The server side of a wrapped child: an in-process server that can also send requests to its client.

With `through`, it also lists and forwards the original tools of the child.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.ask.conversation import CannotAskError
from switchboard_mcp.errors import METHOD_NOT_FOUND, Failure, SwitchboardError, failure, refused
from switchboard_mcp.inprocess import mcp_server
from switchboard_mcp.inprocess.server_app import ToolTable
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.rpc import PendingRequest

# A person may have to answer. As long as Switchboard itself waits.
CLIENT_TIMEOUT_S = 3600.0


class DirectCalls(Protocol):
    """The wrapped child, for direct calls without a plan."""

    async def list_tools(self) -> list[Raw]:
        """Return the allowed tools as the child sent them."""

    async def call_tool(self, params: Raw) -> bytes:
        """Forward a `tools/call` and return its result."""


class _Hello(Struct):
    capabilities: dict[str, Raw] = {}


class _Name(Struct):
    name: str = ""


_decode_hello = msgspec.json.Decoder(_Hello).decode
_decode_name = msgspec.json.Decoder(_Name).decode


class AskingServer(mcp_server.InProcessServer):
    """An in-process server that can send requests to its client."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        link: MessageTransport,
        menu: ToolTable,
        start_task: Callable[[Coroutine[Any, Any, None]], Task[None]],
        wrong: Callable[[str, BaseException], None],
        gone: Callable[[], None],
        through: DirectCalls | None = None,
    ) -> None:
        super().__init__(loop, link, menu, start_task, wrong)
        self._on_close = gone
        self._through = through
        self.capabilities: dict[str, Raw] = {}

    def supports(self, capability: str) -> bool:
        """Return True if the client declared this capability."""
        return capability in self.capabilities

    async def request(self, method: str, params: bytes) -> Raw:
        """Send a request and return its result. Raise `SwitchboardError` if there is none."""
        answer = await self._peer.request(method, params, CLIENT_TIMEOUT_S)
        if isinstance(answer, Failure):
            raise SwitchboardError(answer)
        if answer is None:
            raise refused("host_refused", f"The host did not answer: {method}.")
        error = jsonrpc.get_error(answer)
        if error is not None or answer.result is UNSET:
            rpc_error = jsonrpc.parse_error(error) if error is not None else jsonrpc.RpcError()
            problem = failure(
                "host_refused", f"The host refused {method}: {rpc_error.message or 'no result'}"
            )
            raise CannotAskError(problem) if rpc_error.code == METHOD_NOT_FOUND else SwitchboardError(problem)
        return answer.result

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self._peer.notify(method, params)

    def request_received(self, message: RpcMessage) -> None:
        """Handle a request of the client."""
        if message.method == "initialize" and message.params is not UNSET:
            self.capabilities = _decode_hello(message.params).capabilities
        through = self._through
        if through is not None and message.id is not UNSET:
            params = message.params if message.params is not UNSET else Raw(b"{}")
            if message.method == "tools/list":
                self.run(bytes(message.id), message.method, self._list(through))
                return
            if message.method == "tools/call" and _decode_name(params).name not in self._tool_table.tools:
                self.run(bytes(message.id), message.method, through.call_tool(params))
                return
        super().request_received(message)

    async def _list(self, through: DirectCalls) -> bytes:
        return jsonrpc.encode({"tools": [*self._tool_table.tool_definitions, *await through.list_tools()]})

    def connection_lost(self) -> None:
        """Fail pending requests: the client has disconnected."""
        self._peer.fail_all(failure("host_refused", "The host has disconnected."))
        super().connection_lost()
        self._on_close()

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """Fail a request whose response exceeds the message size limit."""
        call.failed(failure("message_too_large", f"The host's answer of {size} bytes is too large."))

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """Fail a request whose response cannot be parsed."""
        call.failed(failure("host_refused", f"The host's answer cannot be read: {reason}."))
