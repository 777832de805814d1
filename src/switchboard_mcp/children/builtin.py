"""A child that is part of Switchboard: an MCP server in this process, one instance per session.

Its inventory is known without a start, and its client's identity comes from the connection (the name of the token, if
there is one). An instance lives as long as its session, costs no process, and is never stopped for being idle.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    """The part of a session that an in-process server may know."""

    principal: str


class HostProcess(Protocol):
    """Describes the process of a host."""

    @property
    def process(self) -> Mapping[str, object] | None:
        """The process; None if the host is known by its token alone."""


@runtime_checkable
class LastingHost(Protocol):
    """A host with a session of its own."""

    remembered: dict[str, str]

    @property
    def identity(self) -> HostProcess:
        """Who it is."""


def tool_table(spec: ChildSpec, context: ChildContext) -> ToolTable:
    """Return the tool table of the app with this name, built on first use."""
    table = context.builtin_tools.get(spec.name)
    if table is None:
        table = context.builtin_tools[spec.name] = ToolTable(context.builtin_apps[spec.name], __version__)
    return table


class BuiltinInventory(MergedInventory):
    """The inventory of an in-process server, known without a start."""

    @property
    def snapshot(self) -> ServerSnapshot:
        """Everything about the server."""
        cached = self._context.catalog.get(self._spec)
        if cached is None:
            offered = tool_table(self._spec, self._context)
            cached = ServerSnapshot(
                server=ServerIdentity(offered.app.name, __version__),
                protocol=versions.LATEST_LEGACY,
                instructions=offered.app.instructions,
                capabilities=offered.capabilities,
                tools=offered.tool_definitions,
                lists=dict(offered.resource_lists),
            )
            self._context.catalog.store(self._spec, cached)
        return cached


class BuiltinChild(PerSessionChild):
    """Routes each session to its own in-process server."""

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        super().__init__(spec, config, context, max_sessions=sys.maxsize)
        self.inventory = BuiltinInventory(spec, config, context, self.call_timeout_s)

    def create_child(self) -> Child:
        """Create the server of one session."""
        return BuiltinInstance(self.spec, self._config, self._context)


class BuiltinInstance(Child):
    """The in-process server of one session."""

    def sweep(self, now: float) -> None:
        """Never stop for being idle: it holds no process, and would forget its client."""

    async def open_transport(self, spec: ChildSpec, limit_s: float) -> BuiltinTransport:
        """Create the server and connect to it in memory."""
        context = self._context
        client_end, server_end = memory.pair(context.loop)

        def on_error(where: str, problem: BaseException) -> None:
            context.log.error("internal", child=spec.name, tool=where, problem=repr(problem))

        server = mcp_server.InProcessServer(
            context.loop, server_end, tool_table(spec, context), context.start_task, on_error
        )
        await server.open(_client_identity(self.owner))
        return BuiltinTransport(spec, client_end, server)


def _client_identity(owner: object) -> ClientIdentity:
    # Without a session, several hosts may share one principal.
    principal = owner.principal if isinstance(owner, HostInfo) else ""
    viewer = getattr(owner, "viewer", principal)
    return ClientIdentity(
        principal,
        is_single_client=bool(principal) or not isinstance(owner, EphemeralOwner),
        viewer="" if viewer == principal else viewer,
        process=owner.identity.process if isinstance(owner, LastingHost) else None,
        remembered=owner.remembered if isinstance(owner, LastingHost) else {},
        owner=owner,
    )


class BuiltinTransport:
    """A `ChildTransport` over memory."""

    pid = 0

    def __init__(
        self, spec: ChildSpec, link: memory.MemoryTransport, server: mcp_server.InProcessServer
    ) -> None:
        self._spec = spec
        self._server = server
        self.link = link

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Watch nothing: an in-process server ends only when it is stopped."""

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """Return all tools."""
        return tools

    async def stop(self) -> None:
        """Disconnect from the server."""
        self.link.close()
        await self._server.close()

    async def exit_reason(self, opened: bool) -> Failure:
        """Return the failure of a server that closed the connection."""
        return failure("child_crashed", f"Child '{self._spec.name}' has ended.", child=self._spec.name)

    def stderr_tail(self) -> list[str]:
        """Return nothing: there is no stderr."""
        return []

    def stderr_since(self, count: int) -> tuple[int, list[str]]:
        """Return nothing: there is no stderr."""
        return 0, []
