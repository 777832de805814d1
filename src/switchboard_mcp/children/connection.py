"""The connection to one run of a child: handshake, list fetching, incoming messages, shutdown.

A connection is opened once and ends once. It knows neither how messages are carried (`process_transport`,
`remote_transport`, `builtin`) nor when the child is restarted (`child`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw
from msgspec.structs import replace

from switchboard_mcp.children.catalog import ServerSnapshot, Tool, read_tools
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.handshake import (
    Listed,
    UnsupportedVersion,
    fetch_list,
    initialize_params,
    read_page,
    shake_hands,
)
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import KINDS, Failure, failure, is_network_failure
from switchboard_mcp.protocol import jsonrpc, versions
from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import MessageTransport, OnClosed, OnResponseLost
from switchboard_mcp.transport.rpc import AwaitedRequest, Peer, PendingRequest
from switchboard_mcp.transport.stdio import PipeTransport

if TYPE_CHECKING:
    from switchboard_mcp.sandbox.runner import RunningSandbox

# A child that sends requests without reading our answers gets no more of them.
MAX_UNREAD_ANSWERS = 1024 * 1024
SHOWN_OUTPUT_CHARS = 200
SHOWN_OUTPUT_LINES = 3
NOT_QUOTED = "(Not shown, since several sessions use this server. The lines are in the log of Switchboard.)"
# Failures of a start whose cause only the child's own lines name.
EXPLAINED = frozenset({"child_start_timeout", "child_start_failed"})
# A child that waits for headers has long been ready when its start times out, so it answers at once.
FRAMING_PROBE_S = 1.0
HEADER = re.compile(r"content-?length", re.IGNORECASE)
COMPLAINT = re.compile(r"missing|invalid|expect|must|need|require|without|not found", re.IGNORECASE)


class ChildTransport(Protocol):
    """Carries the messages of one connection."""

    @property
    def link(self) -> MessageTransport:
        """The message transport."""

    @property
    def pid(self) -> int:
        """The child's process id, or 0."""

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Call `gone` if the child becomes unusable although its stream stays open, and `lost` for lost responses."""

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """Return the tools that can be called over this transport."""

    async def stop(self) -> None:
        """Stop the child, by force if needed, and release everything."""

    async def exit_reason(self, opened: bool) -> Failure:
        """Return why the child ended by itself, and release everything."""

    def stderr_tail(self) -> list[str]:
        """Return the first and the last lines of stderr, redacted: some programs print the cause first."""

    def stderr_since(self, count: int) -> tuple[int, list[str]]:
        """Return the number of all lines of stderr, and those after the first `count` that are kept, redacted."""


class ConnectionOwner(Protocol):
    """Receives the messages and the end of a connection. Implemented by `Child`."""

    def on_exit(self, connection: Connection, problem: Failure, unsent: list[ReadyWaiter]) -> None:
        """Handle an end that was not requested. The `unsent` calls have certainly not been processed."""

    def on_notification(self, connection: Connection, message: RpcMessage) -> None:
        """Handle a notification from the child."""

    def on_request(self, connection: Connection, message: RpcMessage) -> None:
        """Handle a request from the child to its client."""


class Connection:
    """One connection to a child. Calls are sent through `peer`."""

    def __init__(
        self, context: ChildContext, spec: ChildSpec, transport: ChildTransport, owner: ConnectionOwner
    ) -> None:
        self._context = context
        self._spec = spec
        self._transport = transport
        self._owner = owner
        self._stopping = False
        self._opened = False
        self._has_several_users = False
        self._protocol = ""
        self._capabilities = b"{}"
        self._invalid_output: list[bytes] = []  # the first lines of it
        self.peer = Peer(context.loop, transport.link, self)
        transport.watch(self.connection_lost, self.peer.fail)
        self.peer.start()
        context.flow_control.add(transport.link)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._transport.pid

    @property
    def sandbox(self) -> RunningSandbox | None:
        """The sandbox of the child's process, if it has one."""
        return getattr(self._transport, "sandbox", None)

    def stderr_tail(self) -> list[str]:
        """Return the first and the last lines of stderr, redacted."""
        return self._transport.stderr_tail()

    def stderr_since(self, count: int) -> tuple[int, list[str]]:
        """Return the number of all lines of stderr, and those after the first `count` that are kept, redacted."""
        return self._transport.stderr_since(count)

    async def open(
        self,
        limit_s: float,
        capabilities: bytes = b"{}",
        *,
        stateless_first: bool = False,
        version: str = versions.LATEST_LEGACY,
    ) -> ServerSnapshot | Failure | UnsupportedVersion:
        """Perform the handshake within the limit. `version` is the one to request with `initialize`."""
        self._capabilities = capabilities
        snapshot = await shake_hands(
            self.peer,
            self._spec.name,
            limit_s,
            capabilities,
            stateless_first=stateless_first,
            version=version,
        )
        if snapshot is None:
            return await self.find_framing_problem() or self._start_timeout(limit_s)
        if isinstance(snapshot, Failure):
            return self._with_stderr(snapshot)
        if isinstance(snapshot, UnsupportedVersion):
            return replace(snapshot, problem=self._with_stderr(snapshot.problem))
        self._opened = True
        self._protocol = snapshot.protocol
        snapshot.tools = self._callable_entries(snapshot.tools)
        return snapshot

    async def fetch(self, method: str, limit_s: float) -> Listed | Failure | None:
        """Fetch one of the child's lists again."""
        stateless = versions.is_stateless(self._protocol)
        listed = await fetch_list(
            self.peer, self._spec.name, method, limit_s, self._capabilities, stateless=stateless
        )
        if isinstance(listed, Listed) and method == "tools/list":
            listed.entries = self._callable_entries(listed.entries)
        return listed

    async def read_page(self, uri: str, limit_s: float) -> Raw | None:
        """Return the result of reading a page of an app, or None if the child does not answer with one."""
        stateless = versions.is_stateless(self._protocol)
        return await read_page(self.peer, uri, limit_s, self._capabilities, stateless=stateless)

    def _callable_entries(self, entries: list[Raw]) -> list[Raw]:
        """Return the tools that can be called over the transport."""
        tools = self._transport.callable_tools(read_tools(entries), self._protocol)
        return [tool.raw for tool in tools if tool.raw is not UNSET]

    async def stop(self, problem: Failure) -> None:
        """Stop the child. Pending requests fail with the problem at once."""
        self._stopping = True
        self.peer.fail_all(problem)
        await self._transport.stop()
        self._context.flow_control.discard(self._transport.link)

    def request_received(self, message: RpcMessage) -> None:
        """Answer a ping; pass other requests to the owner."""
        assert message.id is not UNSET
        if self.peer.transport.write_buffer_size >= MAX_UNREAD_ANSWERS:
            return
        if message.method == "ping":
            self.peer.transport.send(jsonrpc.result(message.id, b"{}"))
        else:
            self._owner.on_request(self, message)

    def notification_received(self, message: RpcMessage) -> None:
        """Pass a notification to the owner."""
        self._owner.on_notification(self, message)

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        """Log output that is not a message. The first lines are kept to explain a failed start."""
        if len(self._invalid_output) < SHOWN_OUTPUT_LINES and isinstance(noise, NonMessage):
            self._invalid_output.append(noise.line[: 4 * SHOWN_OUTPUT_CHARS])
        log = self._context.log
        if log.enabled("debug"):
            what = self._context.redactor.redact_and_clip(str(noise), SHOWN_OUTPUT_CHARS)
            log.debug("child.invalid_output", child=self._spec.name, what=what)

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        """Fail the call whose response exceeds the size limit."""
        call.failed(
            failure(
                "message_too_large",
                f"Child '{self._spec.name}' answered with {size:,} bytes, "
                f"more than the {MAX_MESSAGE_BYTES:,} that Switchboard accepts.",
                child=self._spec.name,
            )
        )

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        """Fail the call whose response cannot be decoded."""
        call.failed(
            failure(
                "child_protocol",
                f"Child '{self._spec.name}' sent a response that cannot be decoded: {reason}.",
                child=self._spec.name,
            )
        )

    def connection_lost(self) -> None:
        """Find out why the child ended, unless we stopped it."""
        if not self._stopping:
            self._stopping = True
            self._context.start_task(self._report_exit())

    def note_several_users(self) -> None:
        """Quote nothing to callers from now on that the child prints: it may be about another session's call."""
        self._has_several_users = True
        if self.sandbox is not None:
            self.sandbox.is_shared = True

    async def _report_exit(self) -> None:
        problem = await self._transport.exit_reason(self._opened)
        if self._opened and self._has_several_users and problem.stderr:
            self._context.log.info("child.stderr", child=self._spec.name, lines=problem.stderr)
            problem = replace(problem, stderr=[NOT_QUOTED])
        if not self.peer.response_count and self._demands_headers(problem.stderr or []):
            problem = self._framing_problem(problem.stderr or [])
        elif not self._opened:
            problem = explain_start(replace(problem, message=problem.message + self._describe_output()))
        self._context.flow_control.discard(self._transport.link)
        # A server that lost our session has processed nothing since.
        unsent = self.peer.reclaim(ReadyWaiter) if problem.code == "child_session_lost" else []
        self.peer.fail_all(problem)
        self._owner.on_exit(self, problem, unsent)

    async def find_framing_problem(self) -> Failure | None:
        """Return the failure of a silent child that expects `Content-Length` headers, or None.

        Such a child answers a message with headers, and none without. Only asked of a child whose start has timed out:
        a slow one that reads lines would be confused by headers.
        """
        if not isinstance(self.peer.transport, PipeTransport) or self.peer.response_count:
            return None
        loop = self._context.loop
        line = AwaitedRequest(loop, "ping", b"{}", FRAMING_PROBE_S, cancellable=False)
        framed = AwaitedRequest(
            loop, "initialize", initialize_params(b"{}"), FRAMING_PROBE_S, cancellable=False
        )
        framed.message = b"Content-Length: %d\r\n\r\n%b" % (len(framed.message), framed.message)
        self.peer.send(line)
        self.peer.send(framed)
        answer = await framed.future
        if isinstance(answer, Failure):  # it has exited, perhaps because of the headers
            return answer if answer.code == "child_protocol" else None
        stderr = self._transport.stderr_tail()
        is_answered = answer is not None and not line.future.done()
        return self._framing_problem(stderr) if is_answered or self._demands_headers(stderr) else None

    def _demands_headers(self, stderr: list[str]) -> bool:
        """Return True if a child that has not answered yet complains about missing headers."""
        output = [line.decode("utf-8", "replace") for line in self._invalid_output]
        return any(HEADER.search(text) and COMPLAINT.search(text) for text in (*stderr, *output))

    def _framing_problem(self, stderr: list[str]) -> Failure:
        return failure(
            "child_protocol",
            f"Child '{self._spec.name}' seems to expect Content-Length headers, as language servers do. "
            "It did not answer a message without them.",
            child=self._spec.name,
            hint="MCP over stdio has one JSON message per line. Update the server, or select that in its options.",
            stderr=stderr,
        )

    def _start_timeout(self, limit_s: float) -> Failure:
        problem = failure(
            "child_start_timeout",
            f"Child '{self._spec.name}' did not complete its handshake within {limit_s:g} s.{self._describe_output()}",
            child=self._spec.name,
            stderr=self._transport.stderr_tail(),
        )
        return explain_start(problem)

    def _describe_output(self) -> str:
        """Return a sentence about output that is not a message, with its first lines, or an empty string."""
        clip = self._context.redactor.redact_and_clip
        lines = [clip(line.decode("utf-8", "replace"), SHOWN_OUTPUT_CHARS) for line in self._invalid_output]
        if not lines:
            return ""
        quoted = ", ".join(map(repr, lines))
        return f" It wrote something other than MCP messages to stdout, first: {quoted}."

    def _with_stderr(self, problem: Failure) -> Failure:
        """Return a failure of the handshake with what the child wrote to stderr."""
        return problem if problem.stderr else replace(problem, stderr=self._transport.stderr_tail() or UNSET)


def explain_start(problem: Failure) -> Failure:
    """Return the failure of a start with the hint for the network, if the child's own lines are about it."""
    if problem.code not in EXPLAINED or not is_network_failure("\n".join(problem.stderr or [])):
        return problem
    return replace(problem, hint=f"{KINDS['child_network_error'].hint} {problem.hint or ''}".rstrip())
