"""One connected host: its reply channel, what it negotiated, and its requests in flight."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.waiter import EphemeralOwner
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.protocol.versions import LATEST_LEGACY
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.flow_control import DROPPING_PAUSE_S, SLOW_PAUSE_S, FlowControl

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.gateway.client_requests.client_request import ClientRequests, PendingClientRequest
    from switchboard_mcp.gateway.suites.suite_tools import Suite


_NUMBERS = count(1)


class ReplyChannel(Protocol):
    """Carries messages to a host. On stdio there is one; over HTTP each request has its own."""

    @property
    def backlog(self) -> int:
        """Bytes that the host leaves unread: of notifications that may be lost, none should be added."""

    def send(self, message: bytes) -> None:
        """Send a notification, or a request of ours."""

    def answer(self, message: bytes) -> None:
        """Send the response to the request this channel belongs to."""


class HostTransport(MessageTransport, ReplyChannel, Protocol):
    """A transport that carries all messages of one host."""


class Cancellable(Protocol):
    """A request in flight that the host may cancel."""

    def cancel(self, reason: str) -> None:
        """Stop; no answer is sent."""


class SubscribedResource(Struct, frozen=True):
    """A resource a host has subscribed to: its child, and the child's own URI."""

    child: Child
    uri: str

    def covers(self, updated: str) -> bool:
        """Return True if the updated resource is this one or a part of it."""
        return updated == self.uri or updated.startswith(self.uri.rstrip("/") + "/")


class ListenSubscription(Struct, kw_only=True):
    """A stateless host's `subscriptions/listen`. `subscribed` is keyed by the host's URIs."""

    id: bytes
    channel: ReplyChannel
    kinds: frozenset[str]
    subscribed: dict[str, SubscribedResource] = {}

    def notification(self, method: str, members: dict[str, Raw]) -> bytes:
        """Return a notification of this subscription."""
        theirs = decode_members(members["_meta"]) if "_meta" in members else {}
        meta = {**theirs, message_meta.SUBSCRIPTION: Raw(self.id)}
        return jsonrpc.notification(method, jsonrpc.encode({**members, "_meta": meta}))

    def notify(self, method: str, members: dict[str, Raw]) -> None:
        """Send a notification of this subscription."""
        self.channel.send(self.notification(method, members))


class ProgramMark(Protocol):
    """The program run that a call belongs to."""

    @property
    def run_id(self) -> str:
        """The id of the run."""

    def is_approved(self, child: str, subtool: str) -> bool:
        """Return True if the user has allowed the program to call the subtool."""

    @property
    def request(self) -> Cancellable:
        """The request of the host that runs the program."""

    def move_call(self, id: bytes, session: Session) -> None:
        """Take note that a call of the program belongs to another session now."""


class Approver(Protocol):
    """Asks the person at the terminal of a command, whose host is this process."""

    @property
    def is_available(self) -> bool:
        """True if a person can answer."""

    def ask(self, question: str, on_answer: Callable[[bool | None], None]) -> None:
        """Ask, and call back with the answer; with None if there is none."""


class HostIdentity(Struct, frozen=True, kw_only=True):
    """Who a host is: what its session has from the beginning, whichever process serves it.

    `principal` is that of its token, and `viewer` the key of its view. `process` describes its host to the mail server,
    which finds the agent of the same host by it; `pid` is the process that the host has started.
    """

    transport: str
    principal: str
    viewer: str
    process: Mapping[str, object] | None
    pid: int
    opened_at: float
    may_come_back: bool
    """Its tasks and results are kept for its principal when the session has ended."""


def http_host(transport: str, principal: str) -> HostIdentity:
    """Return the identity of a host that is known by its token alone."""
    return HostIdentity(
        transport=transport,
        principal=principal,
        viewer=principal,
        process=None,
        pid=0,
        opened_at=time.time(),
        may_come_back=True,
    )


def local_host(
    viewer: str, process: Mapping[str, object] | None = None, pid: int = 0, opened_at: float = 0.0
) -> HostIdentity:
    """Return the identity of a host that has started a process of this user. The next one may be another."""
    return HostIdentity(
        transport="stdio",
        principal="",
        viewer=viewer,
        process=process,
        pid=pid,
        opened_at=opened_at or time.time(),
        may_come_back=False,
    )


class Session:
    """A connected host. `channel` carries messages of no request; an `ephemeral` session lives for one request."""

    def __init__(
        self,
        channel: ReplyChannel,
        broker: ClientRequests,
        notification_flow: NotificationFlow,
        tools: dict[str, Suite],
        identity: HostIdentity,
        *,
        ephemeral: bool,
    ) -> None:
        self.channel = channel
        self.broker = broker
        self.notification_flow = notification_flow
        self.tools = tools  # the suite tools of its view: the gateway looks them up for every call
        self.identity = identity
        self.transport = identity.transport
        self.principal = identity.principal
        # The principal that gets its tasks and results when it has ended; None if they end with it.
        self.leaves_to: str | None = identity.principal if identity.may_come_back else None
        self.viewer = identity.viewer  # the key of its view
        self.profile = ""  # the name of its profile, if it has one
        self.ephemeral = ephemeral
        self.whole_results = False  # a program in this process that needs every result whole
        self.approver: Approver | None = None  # of a command in this process
        self.closed = False
        self.version = LATEST_LEGACY
        self.initialized = False
        self.capabilities = b"{}"
        self.log_level = ""
        self.client = ""  # the name in its `clientInfo`
        self.client_version = ""
        self.number = next(_NUMBERS)  # names it on the dashboard
        # What in-process servers know of their client, which a reload that replaces them must not lose: by server.
        self.remembered: dict[str, str] = {}
        self.calls = 0  # calls of children that have ended, if they are recorded
        self.sent = 0  # requests that were sent to children
        # Bytes of answers: lists of tools, introspections, and all that children were called for, these included.
        self.listed_bytes = self.opened_bytes = self.answered_bytes = 0
        self.results_saved = (
            0  # tokens of results that were kept out of its context, less those of reading on
        )
        self.in_flight: dict[bytes, Cancellable] = {}
        self.program_calls: dict[
            bytes, ProgramMark
        ] = {}  # by the id of the call: those that programs have made
        self.pending_client_requests: dict[bytes, PendingClientRequest] = {}  # by id
        self.listens: dict[bytes, ListenSubscription] = {}
        self.subscribed: dict[str, SubscribedResource] = {}  # by the URI the host uses

    @property
    def is_lasting(self) -> bool:
        """True if it is open and more than one request long, so its end will be noticed."""
        return not (self.ephemeral or self.closed)

    @property
    def process_owner(self) -> object:
        """The owner of child processes that are not shared: this session, or the principal of ephemeral sessions."""
        return EphemeralOwner(self.principal) if self.ephemeral else self

    @property
    def work_queue(self) -> object:
        """The queue of what is computed for it."""
        return self.process_owner

    def may_use_of(self, owner: Session) -> bool:
        """Return True if results of a session are for this one too: it is the same, or has ended and left them."""
        return owner is self or is_left_to(owner, self.principal)

    def refuse(self, channel: ReplyChannel, id: Raw | bytes, code: int, message: str) -> None:
        """Answer a request with a JSON-RPC error."""
        channel.answer(jsonrpc.error(id, code, message))

    def cancel(self, id: Raw | UnsetType, reason: str) -> None:
        """Cancel one of the host's requests or subscriptions."""
        if id is UNSET:
            return
        listen = self.listens.pop(bytes(id), None)
        if listen is not None:
            unsubscribe_all(listen.subscribed)
        request = self.in_flight.pop(bytes(id), None)
        if request is not None:
            request.cancel(reason)


def is_left_to(owner: object, principal: str) -> bool:
    """Return True if what belongs to an owner of calls and processes is for every session of a principal."""
    if isinstance(owner, Session):
        return (owner.closed or owner.ephemeral) and owner.leaves_to == principal
    return isinstance(owner, EphemeralOwner) and owner.principal == principal


def meets_level(level: str, wanted: str) -> bool:
    """Return True if a log message may go to a host that asked for `wanted`; an unknown level always may."""
    if level not in LEVELS or wanted not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(wanted)


def unsubscribe_all(subscribed: dict[str, SubscribedResource]) -> None:
    """Release the resources of one subscription."""
    for resource in subscribed.values():
        resource.child.subscriptions.unsubscribe(resource.uri)
    subscribed.clear()


# Bytes that a host has not taken, beside the 64 KiB in its pipe. Above the first, the sender is slowed down; above the
# second, notifications are lost: a host that reads 2 MB/s gets an answer at most 0.1 s later.
SLOW_BYTES = 32 * 1024
FULL_BYTES = 128 * 1024
REPORT_S = 1.0
LOGGER = "switchboard"


# Different updates that wait for a host. It is told that they have changed, once, when it reads.
MAX_WAITING = 1_000


class Lost(Struct):
    """What a host has not been sent: the number of lost notifications, and updates that wait, each once."""

    channel: ReplyChannel
    count: int = 0
    updates: dict[bytes, ReplyChannel] = {}


class NotificationFlow:
    """Sends notifications that may be lost, for all sessions of a gateway."""

    def __init__(self, loop: AbstractEventLoop, flow_control: FlowControl, log: Log) -> None:
        self._loop = loop
        self._flow_control = flow_control
        self._log = log
        self._lost: dict[Session, Lost] = {}

    def offer(
        self,
        session: Session,
        channel: ReplyChannel,
        message: bytes,
        source: MessageTransport | None,
        *,
        is_update: bool = False,
    ) -> None:
        """Send a notification unless the host lags too far behind. `source` is the transport of its sender.

        An update is sent later then, and only once if it is repeated.
        """
        backlog = channel.backlog
        if backlog < SLOW_BYTES:
            channel.send(message)
            return
        is_full = backlog >= FULL_BYTES
        if source is not None:
            pause_s = DROPPING_PAUSE_S if is_full else SLOW_PAUSE_S
            self._flow_control.slow_down(source, self._loop, pause_s)
        if not is_full:
            channel.send(message)
            return
        lost = self._lost.get(session)
        if lost is None:
            lost = self._lost[session] = Lost(channel)
            self._loop.call_later(REPORT_S, self._report, session)
        lost.channel = channel
        if is_update and len(lost.updates) < MAX_WAITING:
            lost.updates[message] = channel
        else:
            lost.count += 1

    def _report(self, session: Session) -> None:
        """Tell a host what it has lost, once it reads."""
        lost = self._lost[session]
        if not session.closed and lost.channel.backlog >= FULL_BYTES:
            self._loop.call_later(REPORT_S, self._report, session)
            return
        del self._lost[session]
        for message, channel in lost.updates.items():
            channel.send(message)
        if not lost.count:
            return
        self._log.warning("host.slow", session=session.number, client=session.client, dropped=lost.count)
        if not session.closed and session.initialized:
            text = (
                f"{lost.count:,} notifications were dropped, because this host reads slower than they come."
            )
            params = jsonrpc.encode({"level": "warning", "logger": LOGGER, "data": text})
            lost.channel.send(jsonrpc.notification("notifications/message", params))
