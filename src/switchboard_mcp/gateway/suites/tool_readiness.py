"""Delays a list until the tools of all direct children are known, or the children have failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import INVALID_REQUEST, Failure
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.request_context import DelegatedWaiter

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway

# Hosts do not wait long for `initialize`; later tools are announced with list_changed.
INITIALIZE_WAIT_S = 3.0


class ToolListBarrier(DelegatedWaiter):
    """Waits until each of several children is ready or has failed. Meanwhile the request is in flight."""

    __slots__ = ("_inbound", "_method", "_remaining", "_then")

    def __init__(self, inbound: IncomingRequest, method: str, count: int, then: Callable[[], None]) -> None:
        super().__init__(inbound)
        self._inbound = inbound
        self._method = method
        self._remaining = count
        self._then = then

    def on_ready(self, child: Child) -> None:
        """Count a ready child. Its tools are known; other lists may still have to be fetched."""
        if self._method == "tools/list":
            self._count_down()
        else:
            child.inventory.when_fetched(self._method, self._count_down)

    def on_failed(self, problem: Failure) -> None:
        """Count a failed child: its tools will be missing from the list."""
        self._count_down()

    def _count_down(self) -> None:
        self._remaining -= 1
        if self._remaining == 0:
            self.release()

    def release(self) -> None:
        """Stop waiting and continue, unless that has happened already."""
        under_way = self._inbound.session.in_flight
        if under_way.get(self._inbound.id) is self:
            del under_way[self._inbound.id]
            self._then()

    def cancel(self, reason: str) -> None:
        """Do nothing: the children that are being started may continue."""


def when_tools_known(
    gateway: Gateway, inbound: IncomingRequest, method: str, then: Callable[[], None], *, soon: bool = False
) -> None:
    """Call `then` once every direct child is listed or has failed; if `soon`, after a short time in any case."""
    suites = gateway.view_of(inbound.session.viewer).suites.values()
    unlisted = [
        suite
        for suite in suites
        if suite.lists_own_entries(method) and not suite.child.inventory.has_list(method)
    ]
    if not unlisted:
        then()
        return
    if inbound.is_duplicate:
        inbound.refuse(INVALID_REQUEST, "A request with this id is still in progress.")
        return
    barrier = inbound.session.in_flight[inbound.id] = ToolListBarrier(
        inbound, method, len(unlisted), partial(gateway.attempt, inbound, then)
    )
    if soon:
        gateway.loop.call_later(INITIALIZE_WAIT_S, barrier.release)
    for suite in unlisted:
        suite.child.acquire(barrier)
