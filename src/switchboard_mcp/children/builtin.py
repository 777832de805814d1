"""A child that is part of Switchboard: a server in this process, one instance for each host.

What it offers is known without a start. Who its host is comes from the connection: the name of the token, where there
is one. An instance stays as long as its host, costs no process, and is never stopped for being idle.
"""

from __future__ import annotations

import sys
from typing import Protocol, runtime_checkable

from switchboard_mcp import __version__
from switchboard_mcp.children.catalog import ServerIdentity, ServerSnapshot, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.per_session import MergedInventory, PerSessionChild
from switchboard_mcp.children.waiter import EphemeralOwner
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.inprocess import mcp_server
from switchboard_mcp.inprocess.server_app import ClientIdentity, ToolTable
from switchboard_mcp.protocol import versions
from switchboard_mcp.transport import memory
from switchboard_mcp.transport.base import OnClosed, OnResponseLost


@runtime_checkable
class HostInfo(Protocol):
    """A host, as far as a child of its own may know it."""

    principal: str


def menu(spec: ChildSpec, context: ChildContext) -> ToolTable:
    """What the program of this name offers."""
    found = context.builtin_tools.get(spec.name)
    if found is None:
        found = context.builtin_tools[spec.name] = ToolTable(context.builtin_apps[spec.name], __version__)
    return found


class BuiltinInventory(MergedInventory):
    """What is known of a program, since it is here."""

    @property
    def snapshot(self) -> ServerSnapshot:
        """All of it, from the beginning."""
        known = self._context.catalog.get(self._spec)
        if known is None:
            offered = menu(self._spec, self._context)
            known = ServerSnapshot(
                server=ServerIdentity(offered.app.name, __version__),
                protocol=versions.LATEST_LEGACY,
                instructions=offered.app.instructions,
                capabilities=offered.capabilities,
                tools=offered.tool_definitions,
                lists=dict(offered.resource_lists),
            )
            self._context.catalog.store(self._spec, known)
        return known


class BuiltinChild(PerSessionChild):
    """See the module. Stands for all instances."""

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        super().__init__(spec, config, context, most=sys.maxsize)
        self.inventory = BuiltinInventory(spec, context, self.timeout_s)

    def another(self) -> Child:
        """One more instance."""
        return Instance(self.spec, self._config, self._context)


class Instance(Child):
    """That of one host."""

    def sweep(self, now: float) -> None:
        """It holds nothing that would be worth stopping, and knows who its host is."""

    async def _carrier(self, spec: ChildSpec, limit_s: float) -> BuiltinTransport:
        context = self._context
        ours, theirs = memory.pair(context.loop)

        def wrong(where: str, problem: BaseException) -> None:
            context.log.error("internal", child=spec.name, tool=where, problem=repr(problem))

        server = mcp_server.InProcessServer(
            context.loop, theirs, menu(spec, context), context.start_task, wrong
        )
        await server.open(_caller(self.owner))
        return BuiltinTransport(spec, ours, server)


def _caller(home: object) -> ClientIdentity:
    # Behind one principal without a session there may be several hosts.
    principal = home.principal if isinstance(home, HostInfo) else ""
    return ClientIdentity(principal, is_single_client=bool(principal) or not isinstance(home, EphemeralOwner))


class BuiltinTransport:
    """See `connection.Carrier`."""

    pid = 0

    def __init__(
        self, spec: ChildSpec, link: memory.MemoryTransport, server: mcp_server.InProcessServer
    ) -> None:
        self._spec = spec
        self._server = server
        self.link = link

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """It goes when it is told to."""

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """All of them."""
        return tools

    async def stop(self) -> None:
        """Let go of the client."""
        self.link.close()
        await self._server.close()

    async def exit_reason(self, opened: bool) -> Failure:
        """The server has ended the conversation."""
        return failure("child_crashed", f"Child '{self._spec.name}' has ended.", child=self._spec.name)

    def stderr_tail(self) -> list[str]:
        """It has no stderr."""
        return []
