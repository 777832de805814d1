"""Callers that wait until a child is ready, as the child sees them."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.errors import Failure

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child


class EphemeralOwner(Struct, frozen=True):
    """Owner of per-session children for hosts without a session: all requests of one principal share it."""

    principal: str


class HostGroup(Struct, frozen=True):
    """Owner of a child process for hosts with the same client capabilities."""

    capabilities: bytes


class ReadyWaiter:
    """Base class of callers that need a child to be ready."""

    __slots__ = ()

    @property
    def is_stateless(self) -> bool:
        """True if the host speaks a protocol version without handshakes."""
        return False

    @property
    def capabilities(self) -> bytes:
        """Client capabilities of the host, as JSON."""
        return b"{}"

    @property
    def owner(self) -> object:
        """The session that a per-session child is kept for, or None."""
        return None

    @property
    def catalog_is_enough(self) -> bool:
        """True if a lock or a fresh catalog entry will do, so the child need not be started."""
        return False

    def rebind(self, child: Child) -> None:
        """Use this child in place of the one first acquired."""

    def on_ready(self, child: Child) -> None:
        """Continue: the child is ready."""
        raise NotImplementedError

    def on_failed(self, problem: Failure) -> None:
        """Give up: the child will not become ready."""
        raise NotImplementedError

    def on_progress(self, step: int, message: str) -> None:
        """Report that the start is still in progress; `step` grows from call to call."""


class FutureWaiter(ReadyWaiter):
    """Resolves a future with None once the child is ready, or with the failure."""

    __slots__ = ("outcome",)

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.outcome: Future[Failure | None] = loop.create_future()

    def on_ready(self, child: Child) -> None:
        """Resolve the future with None."""
        if not self.outcome.done():
            self.outcome.set_result(None)

    def on_failed(self, problem: Failure) -> None:
        """Resolve the future with the failure."""
        if not self.outcome.done():
            self.outcome.set_result(problem)
