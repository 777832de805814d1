"""Every front and every kind of child, running: what the matrix of tests is played on.

One Switchboard over HTTP, and one over pipes for each host there, have all children at once; one process plays all
remote children. A host is connected once, and all that is tried over its front is tried with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mcp_types as types

from tests.e2e.host import SWITCHBOARD
from tests.e2e.sdk import HttpMode, Mode, Sdk, sdk_host, sdk_web_host, text_of
from tests.e2e.web import Web, serving
from tests.e2e.workspaces import REPO, configure
from tests.patience import PATIENCE_S

EVERYTHING = [sys.executable, str(REPO / "tests" / "children" / "everything.py")]
EVERYTHING_WEB = [sys.executable, str(REPO / "tests" / "children" / "everything_web.py")]

# Hosts by the front they come through. There is no `sse-modern`: HTTP+SSE is of the handshake era, 2026-07-28 has
# nothing but POST.
FRONTS: dict[str, Mode | HttpMode] = {
    "stdio-legacy": "legacy",
    "stdio-modern": "auto",
    "http-legacy": "session",
    "http-modern": "stateless",
    "sse-legacy": "sse",
}
# Hosts over pipes that share one Switchboard. For one host they are like the others over pipes.
BROKER: dict[str, Mode] = {"broker-legacy": "legacy", "broker-modern": "auto"}
# Children by the way they are reached; the name is that of the child too. There is no `sse-modern` for the same reason.
CHILDREN: dict[str, dict[str, Any]] = {
    "stdio-legacy": {"command": EVERYTHING[0], "args": [*EVERYTHING[1:], "--era", "legacy"]},
    "stdio-modern": {"command": EVERYTHING[0], "args": [*EVERYTHING[1:], "--era", "modern"]},
    "http-legacy": {"type": "http"},
    "http-modern": {"type": "http"},
    "sse-legacy": {"type": "sse"},
    "ws-legacy": {"type": "ws"},
    "ws-modern": {"type": "ws"},
}


class Pair(NamedTuple):
    """A host connected through Switchboard to a child: what each calls things."""

    sdk: Sdk
    front: str
    child: str
    exposure: str

    @property
    def modern(self) -> bool:
        """Return True if the host uses the stateless protocol."""
        return self.front.endswith("-modern")

    async def call(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> types.CallToolResult:
        if self.exposure == "direct":
            return await self.sdk.client.call_tool(tool, args or {}, **more)
        arguments = {"action": "call", "subtool": tool, "args": args or {}}
        return await self.sdk.client.call_tool(f"{self.child}_suite", arguments, **more)

    async def text(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return text_of(await self.call(tool, args, **more))

    def prompt(self, name: str) -> str:
        return name if self.exposure == "direct" else f"{self.child}__{name}"

    def uri(self, uri: str) -> str:
        return uri if self.exposure == "direct" else f"switchboard://{self.child}/{uri}"

    def owns(self, name: str) -> bool:
        """Return True if a prompt or resource belongs to the child, by the name in the host."""
        return self.exposure == "direct" or name.startswith((self.prompt(""), self.uri("")))

    async def offered(self, kind: str) -> list[str]:
        """Return what the child offers of a kind, as the host sees it."""
        client = self.sdk.client
        if kind == "prompt":
            names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        elif kind == "resource":
            names = [str(resource.uri) for resource in (await client.list_resources()).resources]
        elif self.exposure == "direct":
            names = [tool.name for tool in (await client.list_tools()).tools]
        else:
            asked = {"action": "introspect", "verbosity": "names"}
            told = json.loads(text_of(await client.call_tool(f"{self.child}_suite", asked)))
            return [tool["name"] for tool in told["tools"]]
        return [name for name in names if self.owns(name)]


class Grid:
    """The running servers. `remote` has the addresses of the remote children."""

    def __init__(self, folder: Path, remote: dict[str, str], web: Web) -> None:
        self._folder = folder
        self._remote = remote
        self._web = web

    def host(self, front: str, name: str = "Al") -> AbstractAsyncContextManager[Sdk]:
        """A host that sees all children as suites."""
        if front in BROKER:
            workspace = furnished(self._folder / "broker", self._remote)
            return _piped(workspace, BROKER[front], name, SWITCHBOARD_BROKER="on")
        mode = FRONTS[front]
        if mode == "legacy" or mode == "auto":
            return _piped(furnished(self._folder / f"{front}-{name}", self._remote), mode, name)
        return sdk_web_host(self._web, mode, name=name)

    def direct(self, front: str, child: str) -> AbstractAsyncContextManager[Sdk]:
        """A host over pipes that sees one child as it is."""
        workspace = furnished(self._folder / f"{front}-{child}", self._remote, only=child)
        mode = FRONTS[front]
        assert mode == "legacy" or mode == "auto"
        return _piped(workspace, mode, "Al")


def _piped(workspace: Path, mode: Mode, name: str, **more: str) -> AbstractAsyncContextManager[Sdk]:
    env = {**os.environ, "XDG_CACHE_HOME": str(workspace / "cache"), **more}
    return sdk_host(SWITCHBOARD, cwd=workspace, mode=mode, env=env, name=name)


def furnished(workspace: Path, remote: dict[str, str], only: str = "") -> Path:
    """A workspace with all children, or with one that is shown as it is."""
    workspace.mkdir(exist_ok=True)
    entries = {
        name: {**entry, "url": remote[name]} if name in remote else entry
        for name, entry in CHILDREN.items()
        if only in ("", name)
    }
    suites = {only: {"exposure": "direct"}} if only else {}
    configure(workspace, {"mcpServers": entries, "suites": suites})
    return workspace


@contextmanager
def remote_children() -> Iterator[dict[str, str]]:
    """Children that are reached over the web, by name: their addresses."""
    with subprocess.Popen(EVERYTHING_WEB, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            addresses: dict[str, str] = json.loads(process.stdout.readline())
            yield addresses
        finally:
            process.kill()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Grid]:
    """The grid, for as long as the tests last."""
    with remote_children() as remote:
        workspace = furnished(folder / "web", remote)
        with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as web:
            yield Grid(folder, remote, web)
