"""Who stands behind a visit to a child: a host, as far as the child may know it."""

from __future__ import annotations

from msgspec import UnsetType

from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import message_meta
from switchboard_mcp.protocol.message_meta import Meta


class HostContext:
    """A request of a host, in whichever form it is under way."""

    __slots__ = ()

    session: Session
    meta: Meta | UnsetType

    @property
    def is_stateless(self) -> bool:
        """Whether the host speaks the era without handshakes."""
        return message_meta.is_stateless(self.meta)

    @property
    def capabilities(self) -> bytes:
        """What the host can do for a child that asks."""
        return message_meta.client_capabilities(self.meta, self.session.capabilities)

    @property
    def owner(self) -> object:
        """For whom a child is kept that is not shared."""
        return self.session.home


class DelegatedWaiter(ReadyWaiter):
    """A visit on behalf of a request. Subclasses say what is done there, and call the request by its own type."""

    __slots__ = ("_sender",)

    def __init__(self, sender: HostContext) -> None:
        self._sender = sender

    @property
    def is_stateless(self) -> bool:
        """The era of the host."""
        return self._sender.is_stateless

    @property
    def capabilities(self) -> bytes:
        """Those of the host."""
        return self._sender.capabilities

    @property
    def owner(self) -> object:
        """The host's own."""
        return self._sender.owner
