"""All children of a workspace: finds one by name, sweeps for idle ones, stops them all."""

from __future__ import annotations

import asyncio

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.services import Services
from switchboard_mcp.config.models import ChildSpec, Config, Workspace

# Often enough that an idle child goes soon after its time, seldom enough to cost nothing.
LONGEST_SWEEP_S = 30.0
SWEEPS_PER_IDLE_TIME = 4


class Supervisor:
    """The children by name, in the order of their names."""

    def __init__(self, workspace: Workspace, services: Services) -> None:
        if workspace.config.governance.mode == "governed" and services.guard is None:
            raise ValueError("governed mode without a guard")
        specs = sorted(workspace.children, key=lambda spec: spec.name)
        self.children = {spec.name: _child(spec, workspace.config, services) for spec in specs}
        self._interval = min(LONGEST_SWEEP_S, workspace.config.timeouts.idle_ms / 1000 / SWEEPS_PER_IDLE_TIME)
        self._loop = services.loop

    async def sweep_forever(self) -> None:
        """Look after idle children until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            now = self._loop.time()
            for child in self.children.values():
                child.sweep(now)

    async def close(self) -> None:
        """Stop all children at once."""
        await asyncio.gather(*(child.close() for child in self.children.values()))


def _child(spec: ChildSpec, config: Config, services: Services) -> Child:
    if spec.kind == "builtin":
        from switchboard_mcp.children.builtin import BuiltinChild  # As below.

        return BuiltinChild(spec, config, services)
    suite = config.suites.get(spec.name)
    if suite is None or suite.isolation == "shared":
        return Child(spec, config, services)
    from switchboard_mcp.children.isolated import IsolatedChild  # Only where there is such a child.

    return IsolatedChild(spec, config, services, suite.isolation_max)
