"""One run of a child: its conversation, over whatever carries it, and its end.

A connection is opened once and ends once. It answers what children ask of their client. Whether and when to start again
is decided elsewhere (`child`); what carries the messages, and how that ends, is the transport's (`local`, `remote`).
"""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET, Raw

from switchboard_mcp.children.catalog import ServerSnapshot, Tool, read_tools
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.handshake import Listed, UnsupportedVersion, fetch_list, shake_hands
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol import jsonrpc, versions
from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import MessageTransport, OnClosed, OnResponseLost
from switchboard_mcp.transport.rpc import Peer, PendingRequest

# A child that asks and asks but does not read our answers gets no more of them.
MAX_UNREAD_ANSWERS = 1024 * 1024
SHOWN_OUTPUT_CHARS = 200


class ChildTransport(Protocol):
    """What a connection runs over."""

    @property
    def link(self) -> MessageTransport:
        """Carries the messages."""

    @property
    def pid(self) -> int:
        """The child's process id, 0 where it has none here."""

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Tell when the child is of no use any more, though the link does not say so, and which answers are lost."""

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """The tools that can be called over it."""

    async def stop(self) -> None:
        """Let the child go, by force where it must be. Leaves nothing open."""

    async def exit_reason(self, opened: bool) -> Failure:
        """The child has gone by itself: say why. Leaves nothing open."""

    def stderr_tail(self) -> list[str]:
        """What the child said last beside the protocol, with secrets masked."""


class ConnectionOwner(Protocol):
    """Who started a connection hears of its end and of what the child says."""

    def on_exit(self, connection: Connection, problem: Failure, unsent: list[ReadyWaiter]) -> None:
        """The child is gone without having been asked to go, and has surely not heard these."""

    def on_notification(self, connection: Connection, message: RpcMessage) -> None:
        """A notification from the child."""

    def on_request(self, connection: Connection, message: RpcMessage) -> None:
        """A request from the child to its client."""


class Connection:
    """See the module. `peer` is what calls are sent through."""

    def __init__(
        self, context: ChildContext, spec: ChildSpec, transport: ChildTransport, owner: ConnectionOwner
    ) -> None:
        self._context = context
        self._spec = spec
        self._transport = transport
        self._owner = owner
        self._stopping = False
        self._opened = False
        self._protocol = ""
        self._capabilities = b"{}"
        self._invalid_output: bytes | None = None
        self.peer = Peer(context.loop, transport.link, self)
        transport.watch(self.connection_lost, self.peer.fail)
        self.peer.start()
        context.flow_control.add(transport.link)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._transport.pid

    def stderr_tail(self) -> list[str]:
        """What the child said last beside the protocol."""
        return self._transport.stderr_tail()

    async def open(
        self, limit_s: float, capabilities: bytes = b"{}", *, stateless_first: bool = False
    ) -> ServerSnapshot | Failure | UnsupportedVersion:
        """Shake hands within the limit."""
        self._capabilities = capabilities
        snapshot = await shake_hands(
            self.peer, self._spec.name, limit_s, capabilities, stateless_first=stateless_first
        )
        if snapshot is None:
            return self._start_timeout(limit_s)
        if isinstance(snapshot, Failure | UnsupportedVersion):
            return snapshot
        self._opened = True
        self._protocol = snapshot.protocol
        snapshot.tools = self._callable_entries(snapshot.tools)
        return snapshot

    async def fetch(self, method: str, limit_s: float) -> Listed | Failure | None:
        """Ask for one of the child's lists again."""
        stateless = versions.is_stateless(self._protocol)
        listed = await fetch_list(
            self.peer, self._spec.name, method, limit_s, self._capabilities, stateless=stateless
        )
        if isinstance(listed, Listed) and method == "tools/list":
            listed.entries = self._callable_entries(listed.entries)
        return listed

    def _callable_entries(self, entries: list[Raw]) -> list[Raw]:
        """The tools that can be called over what carries them."""
        tools = self._transport.callable_tools(read_tools(entries), self._protocol)
        return [tool.raw for tool in tools if tool.raw is not UNSET]

    async def stop(self, problem: Failure) -> None:
        """Let the child go. Whoever still waits for an answer is told the problem at once."""
        self._stopping = True
        self.peer.fail_all(problem)
        await self._transport.stop()
        self._context.flow_control.discard(self._transport.link)

    def request_received(self, message: RpcMessage) -> None:
        """A child may ask its client; whether it is there we know ourselves."""
        assert message.id is not UNSET
        if self.peer.transport.write_buffer_size >= MAX_UNREAD_ANSWERS:
            return
        if message.method == "ping":
            self.peer.transport.send(jsonrpc.result(message.id, b"{}"))
        else:
            self._owner.on_request(self, message)

    def notification_received(self, message: RpcMessage) -> None:
        """Pass on what a child tells."""
        self._owner.on_notification(self, message)

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        """Log what is no message; the first is kept, in case nothing better follows."""
        if self._invalid_output is None and isinstance(noise, NonMessage):
            self._invalid_output = noise.line[: 4 * SHOWN_OUTPUT_CHARS]
        log = self._context.log
        if log.enabled("debug"):
            what = self._context.redactor.redact_and_clip(str(noise), SHOWN_OUTPUT_CHARS)
            log.debug("child.babbled", child=self._spec.name, what=what)

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """An answer beyond the limit fails the one call."""
        call.failed(
            failure(
                "message_too_large",
                f"Child '{self._spec.name}' answered with {size:,} bytes, "
                f"more than the {MAX_MESSAGE_BYTES:,} that Switchboard carries.",
                child=self._spec.name,
            )
        )

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """An answer that cannot be read fails the one call."""
        call.failed(
            failure(
                "child_protocol",
                f"Child '{self._spec.name}' answered with what cannot be read: {reason}.",
                child=self._spec.name,
            )
        )

    def connection_lost(self) -> None:
        """Nothing more comes from the child: unless we asked for it, find out why."""
        if not self._stopping:
            self._stopping = True
            self._context.start_task(self._report_exit())

    async def _report_exit(self) -> None:
        problem = await self._transport.exit_reason(self._opened)
        self._context.flow_control.discard(self._transport.link)
        # A server that has forgotten us has done nothing of what was asked since.
        unsent = self.peer.reclaim(ReadyWaiter) if problem.code == "child_session_lost" else []
        self.peer.fail_all(problem)
        self._owner.on_exit(self, problem, unsent)

    def _start_timeout(self, limit_s: float) -> Failure:
        garbage = ""
        if self._invalid_output is not None:
            line = self._context.redactor.redact_and_clip(
                self._invalid_output.decode("utf-8", "replace"), SHOWN_OUTPUT_CHARS
            )
            garbage = f" It wrote to stdout what is no MCP message, first: {line!r}."
        return failure(
            "child_start_timeout",
            f"Child '{self._spec.name}' did not complete its handshake within {limit_s:g} s.{garbage}",
            child=self._spec.name,
            stderr=self._transport.stderr_tail(),
        )
