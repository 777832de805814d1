"""One connected host: where its messages go, what it negotiated, and what is under way with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.waiter import EphemeralOwner
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.protocol.versions import LATEST_HANDSHAKE
from switchboard_mcp.transport.base import MessageTransport

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.gateway.client_request_broker import ClientRequestBroker, PendingClientRequest
    from switchboard_mcp.gateway.suites.views import View


_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class ReplyChannel(Protocol):
    """A road to a host. On stdio there is one; over HTTP each request has its own."""

    def send(self, message: bytes) -> None:
        """A notification, or a request of ours."""

    def answer(self, message: bytes) -> None:
        """The response to the request this road belongs to."""


class HostTransport(MessageTransport, ReplyChannel, Protocol):
    """A link that carries everything of one host."""


class Cancellable(Protocol):
    """A request under way that the host may cancel."""

    def cancel(self, reason: str) -> None:
        """Stop; no answer is sent."""


class FollowedResource(Struct, frozen=True):
    """A resource that a host follows: whose it is, and what the child itself calls it."""

    child: Child
    uri: str

    def covers(self, updated: str) -> bool:
        """Whether a change of this resource concerns it: its own, or that of a part of it."""
        return updated == self.uri or updated.startswith(self.uri.rstrip("/") + "/")


class ListenSubscription(Struct, kw_only=True):
    """A modern host's `subscriptions/listen`: what it wants to hear, and where. `followed` is by the host's URIs."""

    id: bytes
    route: ReplyChannel
    kinds: frozenset[str]
    followed: dict[str, FollowedResource] = {}

    def tell(self, method: str, members: dict[str, Raw]) -> None:
        """Send a notification of this subscription."""
        theirs = _decode_object(members["_meta"]) if "_meta" in members else {}
        meta = {**theirs, message_meta.SUBSCRIPTION: Raw(self.id)}
        self.route.send(jsonrpc.notification(method, jsonrpc.encode({**members, "_meta": meta})))


class Session:
    """See the module. `route` carries what belongs to no request; `passing` ones live for one request only."""

    def __init__(
        self,
        route: ReplyChannel,
        desk: ClientRequestBroker,
        view: View,
        principal: str = "",
        *,
        passing: bool = False,
    ) -> None:
        self.route = route
        self.desk = desk
        self.view = view
        self.principal = principal
        self.passing = passing
        self.version = LATEST_HANDSHAKE
        self.initialized = False
        self.capabilities = b"{}"
        self.log_level = ""
        self.under_way: dict[bytes, Cancellable] = {}
        self.asked: dict[bytes, PendingClientRequest] = {}  # questions of ours, by id
        self.listens: dict[bytes, ListenSubscription] = {}
        self.followed: dict[str, FollowedResource] = {}  # by the URI the host uses

    @property
    def home(self) -> object:
        """For whom a child is kept that is not shared: this host, or whoever comes anew with each request."""
        return EphemeralOwner(self.principal) if self.passing else self

    def refuse(self, route: ReplyChannel, id: Raw | bytes, code: int, message: str) -> None:
        """Answer a request with a JSON-RPC error."""
        route.answer(jsonrpc.error(id, code, message))

    def cancel(self, id: Raw | UnsetType, reason: str) -> None:
        """The host no longer wants the answer to one of its requests."""
        if id is UNSET:
            return
        listen = self.listens.pop(bytes(id), None)
        if listen is not None:
            unfollow(listen.followed)
        request = self.under_way.pop(bytes(id), None)
        if request is not None:
            request.cancel(reason)


def loud_enough(level: str, wanted: str) -> bool:
    """Whether a log message may be sent to a host that asked for `wanted`; what is no level always may."""
    if level not in LEVELS or wanted not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(wanted)


def unfollow(followed: dict[str, FollowedResource]) -> None:
    """Nobody wants to hear of these any more, as far as one subscription is concerned."""
    for resource in followed.values():
        resource.child.subscriptions.unfollow(resource.uri)
    followed.clear()
