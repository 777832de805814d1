"""How a child is met: its command filled in, its process started or its address called, the handshake made.

Tries the ways there are, in the order that the host's era suggests. What a met child is used for, and what becomes of
one that cannot be met, is in `child`, which builds on this.
"""

from __future__ import annotations

from asyncio import Task, current_task, timeout
from typing import TYPE_CHECKING

from msgspec.structs import replace

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.connection import ChildTransport, Connection
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.handshake import UnsupportedVersion
from switchboard_mcp.children.health import HealthTracker
from switchboard_mcp.children.inventory import Inventory
from switchboard_mcp.children.launch import launch
from switchboard_mcp.children.lifecycle import start_limit_ms
from switchboard_mcp.children.process_transport import ProcessTransport
from switchboard_mcp.children.resource_subscriptions import ChildSubscriptions
from switchboard_mcp.children.waiter import EphemeralOwner, ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.config.variables import expand, secret_values
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol.jsonrpc import RpcMessage

if TYPE_CHECKING:
    from switchboard_mcp.policy.launch.rules import ApprovedLaunch


class Meeting(HealthTracker):
    """See the module. `home` is the host it is kept for, where it is not shared."""

    subscriptions: ChildSubscriptions

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        super().__init__(spec, config, context)
        self.owner: object = None
        suite = config.suites.get(spec.name)
        rpc_ms = (suite and suite.rpc_ms) or spec.rpc_timeout_ms or config.timeouts.rpc_ms
        self.timeout_s = rpc_ms / 1000
        self.inventory = Inventory(spec, context, self.timeout_s)
        self._timeouts = config.timeouts
        self._connection: Connection | None = None
        self._stateless_first, self._capabilities = False, b"{}"
        self._shy = False  # whether it ends when it is greeted in the modern way
        # While governed mode is switched off nobody is let in, as when it is closing.
        self._closing = context.disabled and replace(context.disabled, child=spec.name)
        self._launching: Task[object] | None = None
        self._approved: ApprovedLaunch | None = None

    def on_exit(self, connection: Connection, problem: Failure, unheard: list[ReadyWaiter]) -> None:
        """The running child crashed."""
        raise NotImplementedError

    def on_notification(self, connection: Connection, message: RpcMessage) -> None:
        """A notification from the child."""
        raise NotImplementedError

    def on_request(self, connection: Connection, message: RpcMessage) -> None:
        """The child asks its client something."""
        raise NotImplementedError

    async def _connect_in_time(self) -> ServerSnapshot | Failure:
        """Start it; where the gate has a limit, however many ways of meeting it there are to try."""
        limit_s = self._rules.spawn_fail_s
        if not limit_s:
            return await self._connect()
        try:
            async with timeout(limit_s):
                return await self._connect()
        except TimeoutError:
            told = f"Child '{self.name}' was not ready within {limit_s:g} s, the limit of the health gate."
            hint = "Run `switchboard doctor`, or raise health.spawnFailMs."
            words = self._connection.stderr_tail() if self._connection is not None else []
            return failure("child_start_timeout", told, child=self.name, hint=hint, stderr=words)

    async def _connect(self) -> ServerSnapshot | Failure:
        spec = expand(self.spec, self._context.environ)
        if isinstance(spec, Failure):
            return spec
        for secret in secret_values(self.spec, self._context.environ):
            self._context.redactor.register(secret)
        limit_s = (
            start_limit_ms(
                spec.command,
                self.inventory.has_run_before,
                self._timeouts.child_spawn_ms,
                int(self.timeout_s * 1000),
            )
            / 1000
        )
        stateless_first = self._stateless_first and not self._shy
        met = await self._meet(spec, limit_s, stateless_first)
        if isinstance(met, UnsupportedVersion):
            await self._drop_connection(met.problem)
            again = await self._meet(spec, limit_s, stateless_first=True)
            return met.problem if isinstance(again, UnsupportedVersion) else again
        if stateless_first and isinstance(met, Failure) and met.code == "child_start_failed":
            # Some end at any request that is no handshake. One that ends for another reason does so again.
            self._shy = True
            await self._drop_connection(met)
            again = await self._meet(spec, limit_s, stateless_first=False)
            return again.problem if isinstance(again, UnsupportedVersion) else again
        return met

    async def _meet(
        self, spec: ChildSpec, limit_s: float, stateless_first: bool
    ) -> ServerSnapshot | Failure | UnsupportedVersion:
        carrier = await self._carrier(spec, limit_s)
        if isinstance(carrier, Failure):
            return carrier
        self._connection = Connection(self._context, spec, carrier, self)
        if self._closing is not None:
            return self._closing
        shared = self.owner is None or isinstance(
            self.owner, EphemeralOwner
        )  # a principal's hosts may differ
        capabilities = (shared and self._context.shared_capabilities) or self._capabilities
        met = await self._connection.open(limit_s, capabilities, stateless_first=stateless_first)
        return (isinstance(met, ServerSnapshot) and self._tampered(spec)) or met

    def _tampered(self, spec: ChildSpec) -> Failure | None:
        """What it was started from may have been exchanged between the check and its reading; by now it was read."""
        guard, approved = self._context.launch_policy, self._approved
        return guard.changed(spec, approved) if guard is not None and approved is not None else None

    async def _carrier(self, spec: ChildSpec, limit_s: float) -> ChildTransport | Failure:
        if spec.kind != "stdio":
            from switchboard_mcp.children import remote_transport  # Only where there is such a child.

            return await remote_transport.connect(spec, self._context)
        self._launching = current_task()
        try:
            launched = await launch(spec, self._context, limit_s)
        finally:
            self._launching = None
        if isinstance(launched, Failure):
            return launched
        self._approved = launched.approved
        return ProcessTransport(self._context, spec, launched.process)

    async def _drop_connection(self, problem: Failure) -> None:
        connection, self._connection, self.peer = self._connection, None, None
        self.subscriptions.end()
        if connection is not None:
            await connection.stop(problem)
