"""A visit to a child on behalf of a host's request: as the child sees it, it is that host who comes."""

from __future__ import annotations

from typing import Protocol

from switchboard_mcp.children.visitor import Visitor


class Sender(Protocol):
    """A request of a host, in whichever form it is under way."""

    @property
    def modern(self) -> bool:
        """Whether the host speaks the era without handshakes."""

    @property
    def capabilities(self) -> bytes:
        """What the host can do for a child that asks."""

    @property
    def home(self) -> object:
        """For whom a child is kept that is not shared."""


class Errand(Visitor):
    """See the module. Subclasses say what is done there, and call the request by its own type."""

    __slots__ = ("_sender",)

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    @property
    def modern(self) -> bool:
        """The era of the host."""
        return self._sender.modern

    @property
    def capabilities(self) -> bytes:
        """Those of the host."""
        return self._sender.capabilities

    @property
    def home(self) -> object:
        """The host's own."""
        return self._sender.home
