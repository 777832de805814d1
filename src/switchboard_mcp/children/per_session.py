"""Children of several hosts: those that run once per session, and those that sessions share.

`SharedChild` runs once for all hosts that can do the same. `PerSessionChild` represents the processes of all sessions
where a child is named, and never runs itself. Its inventory is what any of them reported last. A caller is sent to the
child of its session, which is created on first use and removed when the session ends or the child has been idle.
"""

from __future__ import annotations

import asyncio

from msgspec import Raw

from switchboard_mcp.children.catalog import Tool, read_tools
from switchboard_mcp.children.child import HAS_PROCESS, READY, Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.inventory import Inventory
from switchboard_mcp.children.waiter import HostGroup, ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.errors import Failure, failure


class MergedInventory(Inventory):
    """The inventory of several processes of one child: the latest report of any of them."""

    _decoded: tuple[list[Raw], list[Tool]] = ([], [])

    def known_tools(self) -> list[Tool]:
        """Return the tools that were reported last."""
        snapshot = self.snapshot
        if snapshot is None:
            return []
        if self._decoded[0] is not snapshot.tools:
            self._decoded = (snapshot.tools, read_tools(snapshot.tools))
        return self._decoded[1]


class PerSessionChild(Child):
    """Routes each session to its own `Child`, at most `max_sessions` of them."""

    per_session = True

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext, max_sessions: int) -> None:
        super().__init__(spec, config, context)
        self.inventory = MergedInventory(spec, config, context, self.call_timeout_s)
        self._config = config
        self._max_sessions = max_sessions
        self._children: dict[object, Child] = {}
        self.closing_processes: set[asyncio.Task[None]] = set()

    def acquire(self, waiter: ReadyWaiter) -> None:
        """Acquire the child of the waiter's session, creating it if needed."""
        if self.closing is not None and self.successor is not None:
            self._redirect(waiter, self.closing)
            return
        child = self._children.get(waiter.owner)
        if (
            waiter.catalog_is_enough
            and self.inventory.blocked_reason() is None
            and self._is_known(child, waiter)
        ):
            waiter.on_ready(self)
            return
        if child is None:
            if len(self._children) >= self._max_sessions:
                message = (
                    f"Child '{self.name}' already runs for {self._max_sessions} hosts, one process each."
                )
                waiter.on_failed(failure("child_isolation_full", message, child=self.name))
                return
            child = self._children[waiter.owner] = self.create_child()
            child.owner = waiter.owner
            child.inventory.on_first_snapshot = self.inventory.on_first_snapshot
            if self._log_level:
                child.set_log_level(self._log_level)
        waiter.rebind(child)
        child.acquire(waiter)

    def _is_known(self, child: Child | None, waiter: ReadyWaiter) -> bool:
        """Return True if no process need be asked. A running one knows better than the catalog."""
        return self.inventory.locked or (
            child is None and self.closing is None and self._catalog_is_enough(waiter)
        )

    def adopt(self, owner: object, child: Child) -> None:
        """Keep a running child, which only this session has used, as the child of the session."""
        child.owner = owner
        self._children[owner] = child

    def create_child(self) -> Child:
        """Create the child of one session."""
        return Child(self.spec, self._config, self._context)

    def processes(self, owner: object = None) -> list[Child]:
        """Return the child of one session, or those of all."""
        if owner is None:
            return list(self._children.values())
        return [self._children[owner]] if owner in self._children else []

    def release_session(self, owner: object) -> None:
        """Stop the child of a session that has ended."""
        super().release_session(owner)
        child = self._children.pop(owner, None)
        if child is not None:
            task = self._context.start_task(child.close())
            self.closing_processes.add(task)
            task.add_done_callback(self.closing_processes.discard)

    def sweep(self, now: float) -> None:
        """Stop idle children and remove those that have stopped."""
        for owner, child in list(self._children.items()):
            child.sweep(now)
            if child.is_disposable(now):
                del self._children[owner]

    @property
    def busy(self) -> bool:
        """True if any of the children is busy."""
        return any(child.busy for child in self._children.values())

    def retire(self, successor: Child | None) -> None:
        """Redirect callers of all children to the successor."""
        super().retire(successor)
        for child in self._children.values():
            child.retire(successor)

    async def close(self, problem: Failure | None = None) -> None:
        """Stop all children."""
        children = self._children.values()
        await asyncio.gather(super().close(problem), *(child.close(problem) for child in children))

    def set_log_level(self, level: str) -> None:
        """Set the log level of all children, and of those created later."""
        self._log_level = level
        for child in self._children.values():
            child.set_log_level(level)


class SharedChild(Child):
    """A child that the sessions of a broker share if their hosts have the same capabilities.

    The client capabilities are declared to a server when it starts, and it may offer other tools to another client. So
    it gets those of the host that starts it, as if that were the only one. Hosts with other capabilities have further
    processes, one for each set of capabilities.
    """

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        super().__init__(spec, config, context)
        self._config = config
        self._announced = b""
        self._others: dict[bytes, Child] = {}

    def acquire(self, waiter: ReadyWaiter) -> None:
        """Acquire the process for the capabilities of the waiter's host."""
        capabilities = waiter.capabilities
        if self._health.state is READY and capabilities == self._announced and not self._others:
            if self.roots.has_fallback or self.roots.holds_calls:
                super().acquire(waiter)
                return
            self.requests += 1
            waiter.on_ready(self)  # what `Child.acquire` does: every call passes here
            return
        child = self._find(capabilities)
        if child is self:
            if self.state not in HAS_PROCESS:
                self._announced = capabilities
                self.inventory.use_client(capabilities)
            super().acquire(waiter)
            return
        if child is None:
            child = self._others[capabilities] = Child(self.spec, self._config, self._context)
            child.owner = HostGroup(capabilities)
            child.successor, child.closing = self.successor, self.closing
            child.inventory.on_first_snapshot = self.inventory.on_first_snapshot
            if self._log_level:
                child.set_log_level(self._log_level)
        waiter.rebind(child)
        child.acquire(waiter)

    def _find(self, capabilities: bytes) -> Child | None:
        """Return the process for hosts with these capabilities, or that which may be started for them."""
        other = self._others.get(capabilities)
        if other is not None and other.state in HAS_PROCESS:
            return other
        return self if capabilities == self._announced or self.state not in HAS_PROCESS else other

    def processes(self, owner: object = None) -> list[Child]:
        """Return the child with the process for one session, or all."""
        if owner is None or not self._others:
            return [self, *self._others.values()]
        return [self._find(getattr(owner, "capabilities", self._announced)) or self]

    def release_session(self, owner: object) -> None:
        """Forget a session that has ended."""
        super().release_session(owner)
        for child in self._others.values():
            child.release_session(owner)

    def sweep(self, now: float) -> None:
        """Stop idle processes and remove further ones that have stopped."""
        super().sweep(now)
        for capabilities, child in list(self._others.items()):
            child.sweep(now)
            if child.is_disposable(now):
                del self._others[capabilities]

    @property
    def busy(self) -> bool:
        """True if any of the processes is busy."""
        return super().busy or any(child.busy for child in self._others.values())

    def retire(self, successor: Child | None) -> None:
        """Redirect callers of all processes to the successor."""
        super().retire(successor)
        for child in self._others.values():
            child.retire(successor)

    async def stop_now(self, stopped_by: str) -> Failure | None:
        """Stop all processes on request. Return the first failure."""
        others = (child.stop_now(stopped_by) for child in self._others.values())
        problems = await asyncio.gather(super().stop_now(stopped_by), *others)
        return next((problem for problem in problems if problem is not None), None)

    async def close(self, problem: Failure | None = None) -> None:
        """Stop all processes for good."""
        others = (child.close(problem) for child in self._others.values())
        await asyncio.gather(super().close(problem), *others)

    def set_log_level(self, level: str) -> None:
        """Set the log level of all processes, and of those started later."""
        super().set_log_level(level)
        for child in self._others.values():
            child.set_log_level(level)
