"""All children of a workspace: creates them, stops idle ones, replaces changed ones on reload, stops them all.

Restarts nothing: a failed child restarts itself (`child`), by the rules in `restart_rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from switchboard_mcp.children.catalog import read_tools
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.per_session import PerSessionChild, SharedChild
from switchboard_mcp.config.isolation import decide_isolation
from switchboard_mcp.config.models import ChildSpec, Config, SuiteSettings, Workspace, settings_of
from switchboard_mcp.errors import failure

MAX_AUTO_PROCESSES = 10_000
# Often enough to stop an idle child soon after its time, seldom enough to cost nothing.
LONGEST_SWEEP_S = 30.0
SWEEPS_PER_IDLE_TIME = 4
# How often to check if a retiring child has finished its calls.
RETIRE_POLL_S = 0.05


class ChildRegistry:
    """The children by name, in the order of their names."""

    def __init__(self, workspace: Workspace, context: ChildContext) -> None:
        if workspace.config.governance.mode == "governed" and context.launch_policy is None:
            raise ValueError("governed mode without a launch policy")
        self._context = context
        self._config = workspace.config
        self._retiring: set[Child] = set()
        specs = sorted(workspace.children, key=lambda spec: spec.name)
        self.children = {spec.name: _create_child(spec, workspace.config, context) for spec in specs}
        self._loop = context.loop

    async def sweep_forever(self) -> None:
        """Stop idle children until cancelled."""
        while True:
            idle_s = self._config.timeouts.idle_ms / 1000
            await asyncio.sleep(min(LONGEST_SWEEP_S, idle_s / SWEEPS_PER_IDLE_TIME))
            now = self._loop.time()
            for child in self.children.values():
                child.sweep(now)

    def apply(self, workspace: Workspace) -> frozenset[str]:
        """Replace the children by those of a reloaded workspace. Unchanged children keep their processes.

        Changed and removed children stop once their calls have finished; their successors serve meanwhile. Returns the
        names of all children that are new, changed or removed.
        """
        before, config = self.children, workspace.config
        self.children = {}
        for spec in sorted(workspace.children, key=lambda spec: spec.name):
            child = before.get(spec.name)
            before_settings = settings_of(spec.name, self._config, "child")
            same = before_settings == settings_of(spec.name, config, "child")
            if child is None or child.spec != spec or not same:
                child = _create_child(spec, config, self._context)
            self.children[spec.name] = child
        self._config = config
        for name, child in before.items():
            if self.children.get(name) is not child:
                child.retire(self.children.get(name))
                self._retiring.add(child)
                self._context.start_task(self._retire(child))
        names = {*before, *self.children}
        return frozenset(name for name in names if before.get(name) is not self.children.get(name))

    def isolate(self, name: str, sole_user: object = None) -> bool:
        """Give each session its own process of a child that was shared, if its `isolation` is `auto`.

        The process that runs stays that of `sole_user`, if there is one. Else it ends once its calls have finished.
        Returns False if there is nothing to do.
        """
        child = self.children.get(name)
        suite = self._config.suites.get(name) or SuiteSettings()
        is_auto = self._context.several_hosts and suite.isolation == "auto"
        if child is None or child.per_session or not is_auto or child.spec.kind != "stdio":
            return False
        self._context.catalog.remember_asking(child.spec)
        apart = PerSessionChild(child.spec, self._config, self._context, MAX_AUTO_PROCESSES)
        self.children[name] = apart
        if sole_user is not None and child.processes() == [child]:
            apart.adopt(sole_user, child)
        else:
            child.retire(apart)
            self._retiring.add(child)
            self._context.start_task(self._retire(child))
        return True

    async def _retire(self, child: Child) -> None:
        while child.busy:  # noqa: ASYNC110 - an event would slow down every call
            await asyncio.sleep(RETIRE_POLL_S)
        message = f"Child '{child.name}' is no longer in the config."
        await child.close(failure("child_removed", message, child=child.name))
        self._retiring.discard(child)
        successor = self.children.get(child.name)
        if successor is None or successor.spec != child.spec:
            self._context.catalog.discard(child.spec)

    async def stop_processes(self) -> None:
        """Stop all processes, because no host is connected. The next call of a child starts it again."""
        problem = failure("child_crashed", "The last host has disconnected.")
        ends: list[Awaitable[object]] = []
        for child in self.children.values():
            if isinstance(child, PerSessionChild):
                ends += child.closing_processes
            else:
                ends += (process.abort_start(problem) for process in child.processes())
                ends.append(child.stop_now("the end of the last session"))
        await asyncio.gather(*ends, return_exceptions=True)

    async def close(self) -> None:
        """Stop all children at once."""
        await asyncio.gather(*(child.close() for child in (*self.children.values(), *self._retiring)))


def _create_child(spec: ChildSpec, config: Config, context: ChildContext) -> Child:
    if spec.kind == "builtin":
        from switchboard_mcp.children.builtin import BuiltinChild  # Loaded only if used.

        return BuiltinChild(spec, config, context)
    suite = config.suites.get(spec.name) or SuiteSettings()
    if suite.isolation == "shared" or (suite.isolation == "auto" and not _holds_state(spec, context)):
        # With full capabilities, the same ones are declared to every process.
        differ = context.several_hosts and not context.full_capabilities
        return (SharedChild if differ else Child)(spec, config, context)
    # With `auto`, the user has chosen no limit: without the broker, each host would have its own process too.
    limit = suite.isolation_max if suite.isolation == "session" else MAX_AUTO_PROCESSES
    return PerSessionChild(spec, config, context, limit)


def _holds_state(spec: ChildSpec, context: ChildContext) -> bool:
    """Return True if several hosts are served and the child seems to hold the state of one of them."""
    if not context.several_hosts:
        return False
    if spec.kind == "stdio" and context.catalog.asks_on_its_own(spec):
        return True
    snapshot = context.catalog.get(spec)
    tools = [] if snapshot is None else [tool.name for tool in read_tools(snapshot.tools)]
    return decide_isolation(spec, tools) == "session"
