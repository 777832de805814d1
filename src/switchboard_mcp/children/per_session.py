"""A child that is not shared: each host has a process of its own.

Stands for all of them where a child is named. It never runs itself: what it offers is what any of them has told, and
whoever comes is sent to the one that is kept for its host, which is made when it is first needed and goes with its
host, or when it has been idle.
"""

from __future__ import annotations

import asyncio

from msgspec import Raw

from switchboard_mcp.children.catalog import Tool, read_tools
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.inventory import Inventory
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.errors import Failure, failure


class MergedInventory(Inventory):
    """What any of several processes of a child has told."""

    _shown: tuple[list[Raw], list[Tool]] = ([], [])

    def known_tools(self) -> list[Tool]:
        """Its tools, as told last."""
        snapshot = self.snapshot
        if snapshot is None:
            return []
        if self._shown[0] is not snapshot.tools:
            self._shown = (snapshot.tools, read_tools(snapshot.tools))
        return self._shown[1]


class PerSessionChild(Child):
    """See the module."""

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext, most: int) -> None:
        super().__init__(spec, config, context)
        self.inventory = MergedInventory(spec, context, self.timeout_s)
        self._config = config
        self._most = most
        self._kept: dict[object, Child] = {}

    def acquire(self, visitor: ReadyWaiter) -> None:
        """Send the visitor to the child of its host."""
        if self._closing is not None and self.successor is not None:
            self._turn_away(visitor, self._closing)
            return
        child = self._kept.get(visitor.owner)
        if visitor.catalog_is_enough and self.inventory.blocked_reason() is None and self._is_shown_by(child):
            visitor.on_ready(self)
            return
        if child is None:
            if len(self._kept) >= self._most:
                told = f"Child '{self.name}' already runs for {self._most} hosts, each with its own."
                visitor.on_failed(failure("child_isolation_full", told, child=self.name))
                return
            child = self._kept[visitor.owner] = self.another()
            child.owner = visitor.owner
            child.inventory.on_first_snapshot = self.inventory.on_first_snapshot
            if self._log_level:
                child.set_log_level(self._log_level)
        visitor.rebind(child)
        child.acquire(visitor)

    def _is_shown_by(self, child: Child | None) -> bool:
        """Whether nobody need be asked; one that runs for the host knows better than what is remembered."""
        return self.inventory.locked or (child is None and self._closing is None and self._may_be_shown())

    def another(self) -> Child:
        """One more process."""
        return Child(self.spec, self._config, self._context)

    def processes(self, home: object = None) -> list[Child]:
        """Those that are kept: for one host, or all."""
        if home is None:
            return list(self._kept.values())
        return [self._kept[home]] if home in self._kept else []

    def release_session(self, home: object) -> None:
        """A host has gone, and its child with it."""
        child = self._kept.pop(home, None)
        if child is not None:
            self._context.start_task(child.close())

    def sweep(self, now: float) -> None:
        """Stop the idle ones; one that has stopped is made anew when it is needed."""
        for home, child in list(self._kept.items()):
            child.sweep(now)
            if child.is_disposable(now):
                del self._kept[home]

    @property
    def busy(self) -> bool:
        """Whether any of them is."""
        return any(child.busy for child in self._kept.values())

    def retire(self, successor: Child | None) -> None:
        """With all of them."""
        super().retire(successor)
        for child in self._kept.values():
            child.retire(successor)

    async def close(self, problem: Failure | None = None) -> None:
        """Stop them all."""
        await asyncio.gather(super().close(problem), *(child.close(problem) for child in self._kept.values()))

    def set_log_level(self, level: str) -> None:
        """For all of them, and those to come."""
        self._log_level = level
        for child in self._kept.values():
            child.set_log_level(level)
