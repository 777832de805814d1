"""Gives programs access to a child through its suite, as any host has, with all policies applied."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.app import CommandOptions, project_folder
from switchboard_mcp.ask.plan import Offered, PlanStep
from switchboard_mcp.children.catalog import Annotations, Tool
from switchboard_mcp.cli.local_client import LocalClient
from switchboard_mcp.cli.result_view import failure_of
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import FindSettings, Workspace
from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.errors import SwitchboardError, failure, refused
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.policy.governance import make_launch_policy
from switchboard_mcp.policy.launch.wrappers import governed


def load_originals(options: CommandOptions, child: str = "") -> Workspace:
    """Load the workspace with unwrapped children, or one of them alone, each exposed as a suite.

    In governed mode, only the children that may take requests in sentences.
    """
    workspace = load_workspace(project_folder(options), options.config, os.environ, originals=True)
    if workspace.config.governance.mode == "governed":
        workspace = _askable(workspace, child)
    config = workspace.config
    children = [
        spec for spec in workspace.children if spec.kind != "builtin" and (not child or spec.name == child)
    ]
    if child and not children:
        message = f"{workspace.folder}: there is no child '{child}'."
        problems = [str(warning) for warning in workspace.warnings if child in str(warning)]
        raise refused("config_invalid", "\n".join([message, *problems]))
    suites = {name: msgspec.structs.replace(suite, exposure="suite") for name, suite in config.suites.items()}
    config = msgspec.structs.replace(
        config, suites=suites, exposure="suite", mail=MailSettings(), find=FindSettings()
    )
    return msgspec.structs.replace(workspace, config=config, children=children)


def _askable(workspace: Workspace, child: str) -> Workspace:
    """Drop the children that may not take requests in sentences; raises if that is the named one."""
    guard = make_launch_policy(workspace, os.environ)
    local = [spec for spec in workspace.children if spec.kind != "builtin"]
    refused = {spec.name: problem for spec in local if (problem := guard.check_ask(spec)) is not None}
    if child in refused or (local and len(refused) == len(local)):
        raise SwitchboardError(refused.get(child) or next(iter(refused.values())))
    return msgspec.structs.replace(
        workspace,
        children=[spec for spec in local if spec.name not in refused],
        config=msgspec.structs.replace(workspace.config, ask=governed(workspace.config.ask)),
        absent={**workspace.absent, **refused},
    )


class _Call(Struct):
    name: str = ""
    arguments: Raw = Raw(b"{}")


class SuiteToolbox:
    """The subtools of one child. Connects on first use; looks the suite up each time, since settings change."""

    def __init__(self, gateway: Gateway, child: str, meet: Callable[[], Awaitable[LocalClient]]) -> None:
        self.child = child
        self._gateway = gateway
        self._connect = meet
        self._connecting = asyncio.Lock()
        self._client: LocalClient | None = None

    async def offered(self) -> list[Offered]:
        """Return the permitted subtools by name."""
        return sorted(map(_offered, await self._tools()), key=lambda tool: tool.name)

    async def call(self, step: PlanStep) -> bytes:
        """Run a step and return its raw result."""
        return await self._use(step.subtool, step.args)

    async def list_tools(self) -> list[Raw]:
        """Return the permitted tools as the child sent them."""
        return [tool.raw for tool in await self._tools() if tool.raw is not UNSET]

    async def call_tool(self, params: Raw) -> bytes:
        """Forward a call made by someone else and return its raw result."""
        call = msgspec.json.decode(params, type=_Call)
        return await self._use(call.name, call.arguments)

    async def _use(self, subtool: str, args: object) -> bytes:
        host = await self._connected_client()
        arguments = {"action": "call", "subtool": subtool, "args": args}
        return (await host.call(self._suite().name, arguments)).raw

    async def _tools(self) -> list[Tool]:
        await self._connected_client()
        suite = self._suite()
        return suite.permitted(suite.child.inventory.known_tools())

    async def _connected_client(self) -> LocalClient:
        """Return the client after the child has started, so its current tools are known."""
        async with self._connecting:
            if self._client is None:
                host = await self._connect()
                arguments = {"action": "introspect", "verbosity": "names"}
                problem = failure_of(await host.call(self._suite().name, arguments))
                if problem is not None:
                    raise SwitchboardError(problem)
                self._client = host
            return self._client

    def _suite(self) -> ChildSuite:
        for suite in self._gateway.suites.values():
            if suite.source == self.child:
                return suite
        message = f"Child '{self.child}' no longer exists."
        raise SwitchboardError(failure("unknown_tool", message, child=self.child))


def _offered(tool: Tool) -> Offered:
    tool.sanitized()
    hints = tool.annotations if isinstance(tool.annotations, Annotations) else Annotations()
    return Offered(
        name=tool.name,
        description=tool.description or "",
        schema=msgspec.json.decode(tool.input_schema) if tool.input_schema is not UNSET else {},
        read_only=bool(hints.read_only_hint),
        destructive=hints.destructive_hint is not False,
    )
