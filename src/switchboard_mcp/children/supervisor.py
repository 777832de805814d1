"""All children of a workspace: finds one by name, sweeps for idle ones, exchanges those that are configured otherwise,
stops them all.
"""

from __future__ import annotations

import asyncio

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.models import ChildSpec, Config, Workspace, settings_of
from switchboard_mcp.errors import failure

# Often enough that an idle child goes soon after its time, seldom enough to cost nothing.
LONGEST_SWEEP_S = 30.0
SWEEPS_PER_IDLE_TIME = 4
# How often to look whether a child that is to go has done its work.
LOOK_S = 0.05


class Supervisor:
    """The children by name, in the order of their names."""

    def __init__(self, workspace: Workspace, context: ChildContext) -> None:
        if workspace.config.governance.mode == "governed" and context.launch_policy is None:
            raise ValueError("governed mode without a guard")
        self._context = context
        self._config = workspace.config
        self._retiring: set[Child] = set()
        specs = sorted(workspace.children, key=lambda spec: spec.name)
        self.children = {spec.name: _child(spec, workspace.config, context) for spec in specs}
        self._loop = context.loop

    async def sweep_forever(self) -> None:
        """Look after idle children until cancelled."""
        while True:
            idle_s = self._config.timeouts.idle_ms / 1000
            await asyncio.sleep(min(LONGEST_SWEEP_S, idle_s / SWEEPS_PER_IDLE_TIME))
            now = self._loop.time()
            for child in self.children.values():
                child.sweep(now)

    def adopt(self, workspace: Workspace) -> frozenset[str]:
        """Have the children of another workspace: those that are as they were stay, and their processes with them.

        The others go when their work is done; meanwhile those in their place serve already. Gives the names of all that
        are new, changed or gone.
        """
        before, config = self.children, workspace.config
        self.children = {}
        for spec in sorted(workspace.children, key=lambda spec: spec.name):
            child = before.get(spec.name)
            before_settings = settings_of(spec.name, self._config, "child")
            same = before_settings == settings_of(spec.name, config, "child")
            if child is None or child.spec != spec or not same:
                child = _child(spec, config, self._context)
            self.children[spec.name] = child
        self._config = config
        for name, child in before.items():
            if self.children.get(name) is not child:
                child.retire(self.children.get(name))
                self._retiring.add(child)
                self._context.start_task(self._let_go(child))
        names = {*before, *self.children}
        return frozenset(name for name in names if before.get(name) is not self.children.get(name))

    async def _let_go(self, child: Child) -> None:
        while child.busy:  # noqa: ASYNC110 - nobody tells, and calls are not to pay for it
            await asyncio.sleep(LOOK_S)
        told = f"Child '{child.name}' is not in the config any more."
        await child.close(failure("child_removed", told, child=child.name))
        self._retiring.discard(child)
        self._context.catalog.discard(child.spec)

    async def close(self) -> None:
        """Stop all children at once."""
        await asyncio.gather(*(child.close() for child in (*self.children.values(), *self._retiring)))


def _child(spec: ChildSpec, config: Config, context: ChildContext) -> Child:
    if spec.kind == "builtin":
        from switchboard_mcp.children.builtin import BuiltinChild  # As below.

        return BuiltinChild(spec, config, context)
    suite = config.suites.get(spec.name)
    if suite is None or suite.isolation == "shared":
        return Child(spec, config, context)
    from switchboard_mcp.children.per_session import PerSessionChild  # Only where there is such a child.

    return PerSessionChild(spec, config, context, suite.isolation_max)
