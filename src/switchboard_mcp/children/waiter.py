"""Whoever needs a child to be ready, as the child sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.errors import Failure

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child


class EphemeralOwner(Struct, frozen=True):
    """Whoever comes anew with each request: those of one principal share what is kept for them."""

    principal: str


class ReadyWaiter:
    """Somebody who needs the child ready."""

    __slots__ = ()

    @property
    def is_stateless(self) -> bool:
        """Whether it comes from a host of the era without handshakes."""
        return False

    @property
    def capabilities(self) -> bytes:
        """What its host can do for a child that asks."""
        return b"{}"

    @property
    def owner(self) -> object:
        """For whom a child is kept that is not shared; None where it does not matter."""
        return None

    @property
    def catalog_is_enough(self) -> bool:
        """Whether it is content with what is known for sure of the child, whether that runs or not."""
        return False

    def rebind(self, child: Child) -> None:
        """It is this child that is meant, and no other of its name."""

    def on_ready(self, child: Child) -> None:
        """The child is ready."""
        raise NotImplementedError

    def on_failed(self, problem: Failure) -> None:
        """The child will not become ready."""
        raise NotImplementedError

    def on_progress(self, step: int, message: str) -> None:
        """It still takes a while; `step` grows from time to time."""
