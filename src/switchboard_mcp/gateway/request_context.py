"""The host behind a request, as far as a child may know it."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import message_meta
from switchboard_mcp.protocol.message_meta import Meta


class HostContext:
    """The protocol version, capabilities and session of the host behind a request."""

    __slots__ = ()

    session: Session
    meta: Meta | UnsetType

    @property
    def is_stateless(self) -> bool:
        """True if the host speaks a protocol version without a handshake."""
        return message_meta.is_stateless(self.meta)

    @property
    def capabilities(self) -> bytes:
        """The host's client capabilities."""
        meta = self.meta
        if meta is UNSET:
            return self.session.capabilities
        return message_meta.client_capabilities(meta, self.session.capabilities)

    @property
    def client(self) -> str:
        """The name of the client program; empty if it is unknown."""
        meta = self.meta
        info = meta.get(message_meta.CLIENT) if meta is not UNSET else None
        return message_meta.client_name(info) if info is not None else self.session.client

    @property
    def client_version(self) -> str:
        """The version of the client program; empty if it is unknown."""
        meta = self.meta
        info = meta.get(message_meta.CLIENT) if meta is not UNSET else None
        return message_meta.client_version(info) if info is not None else self.session.client_version

    @property
    def owner(self) -> object:
        """The owner of child processes that are not shared."""
        return self.session.process_owner


class DelegatedWaiter(ReadyWaiter):
    """Waits for a child on behalf of a request. Subclasses define what to do once it is ready."""

    __slots__ = ("_context",)

    def __init__(self, context: HostContext) -> None:
        self._context = context

    @property
    def is_stateless(self) -> bool:
        """The host's protocol version."""
        return self._context.is_stateless

    @property
    def capabilities(self) -> bytes:
        """The host's client capabilities."""
        return self._context.capabilities

    @property
    def owner(self) -> object:
        """The owner of child processes that are not shared."""
        return self._context.owner
