"""One connected host: its reply channel, what it negotiated, and its requests in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.waiter import EphemeralOwner
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.protocol.versions import LATEST_LEGACY
from switchboard_mcp.transport.base import MessageTransport

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.gateway.client_requests.client_request import ClientRequests, PendingClientRequest
    from switchboard_mcp.gateway.suites.suite_tools import Suite


_NUMBERS = count(1)


class ReplyChannel(Protocol):
    """Carries messages to a host. On stdio there is one; over HTTP each request has its own."""

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

    def notify(self, method: str, members: dict[str, Raw]) -> None:
        """Send a notification of this subscription."""
        theirs = decode_members(members["_meta"]) if "_meta" in members else {}
        meta = {**theirs, message_meta.SUBSCRIPTION: Raw(self.id)}
        self.channel.send(jsonrpc.notification(method, jsonrpc.encode({**members, "_meta": meta})))


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


class Session:
    """A connected host. `channel` carries messages of no request; an `ephemeral` session lives for one request."""

    transport = "stdio"

    def __init__(
        self,
        channel: ReplyChannel,
        broker: ClientRequests,
        tools: dict[str, Suite],
        principal: str = "",
        *,
        viewer: str = "",
        ephemeral: bool = False,
    ) -> None:
        self.channel = channel
        self.broker = broker
        self.tools = tools  # the suite tools of its view: the gateway looks them up for every call
        self.principal = principal
        # The principal that gets its tasks and results when it has ended; None if they end with it.
        self.leaves_to: str | None = principal
        self.viewer = viewer or principal  # the key of its view
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
        self.opened_at = time.time()
        self.pid = 0  # the process that its host has started, if it is known
        self.host_process: Mapping[str, object] | None = None  # for the mail of a host of the broker
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
