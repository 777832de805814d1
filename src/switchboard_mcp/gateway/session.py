"""One connected host: where its messages go, what it negotiated, and what is under way with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.core import envelope, jsonrpc
from switchboard_mcp.core.envelope import LEVELS
from switchboard_mcp.core.eras import LATEST_HANDSHAKE
from switchboard_mcp.core.jsonrpc import Message
from switchboard_mcp.errors import Failure, rpc_error
from switchboard_mcp.transport.link import Link

if TYPE_CHECKING:
    from switchboard_mcp.gateway.asking import Desk


class Route(Protocol):
    """A road to a host. On stdio there is one; over HTTP each request has its own."""

    def send(self, message: bytes) -> None:
        """A notification, or a request of ours."""

    def answer(self, message: bytes) -> None:
        """The response to the request this road belongs to."""


class HostLink(Link, Route, Protocol):
    """A link that carries everything of one host."""


class Cancellable(Protocol):
    """A request under way that the host may cancel."""

    def cancel(self, reason: str) -> None:
        """Stop; no answer is sent."""


class Listen(Struct, kw_only=True):
    """A modern host's `subscriptions/listen`: what it wants to hear, and where."""

    id: bytes
    route: Route
    kinds: frozenset[str]
    uris: frozenset[str] = frozenset()

    def tell(self, method: str, members: dict[str, object]) -> None:
        """Send a notification of this subscription."""
        meta = {envelope.SUBSCRIPTION: Raw(self.id)}
        self.route.send(jsonrpc.notification(method, jsonrpc.encode({**members, "_meta": meta})))


class Session:
    """See the module. `route` carries what belongs to no request."""

    def __init__(self, route: Route, desk: Desk, principal: str = "") -> None:
        self.route = route
        self.desk = desk
        self.principal = principal
        self.version = LATEST_HANDSHAKE
        self.initialized = False
        self.capabilities = b"{}"
        self.log_level = ""
        self.under_way: dict[bytes, Cancellable] = {}
        self.asked: dict[bytes, Callable[[Message], None]] = {}  # requests of ours, by id
        self.listens: dict[bytes, Listen] = {}
        self.subscriptions: set[str] = set()  # resources, by the URI the host knows

    def refuse(
        self, route: Route, id: Raw | bytes, code: int, message: str, data: Raw | UnsetType = UNSET
    ) -> None:
        """Answer a request with a JSON-RPC error."""
        route.answer(jsonrpc.error(id, code, message, None if data is UNSET else bytes(data)))

    def fail(self, route: Route, id: Raw | bytes, problem: Failure) -> None:
        """Answer a request outside a suite call with a failure of ours."""
        route.answer(jsonrpc.error_body(id, rpc_error(problem)))

    def cancel(self, id: Raw | UnsetType, reason: str) -> None:
        """The host no longer wants the answer to one of its requests."""
        if id is UNSET:
            return
        self.listens.pop(bytes(id), None)
        request = self.under_way.pop(bytes(id), None)
        if request is not None:
            request.cancel(reason)


def loud_enough(level: str, wanted: str) -> bool:
    """Whether a log message may be sent to a host that asked for `wanted`; what is no level always may."""
    if level not in LEVELS or wanted not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(wanted)
