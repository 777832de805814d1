"""A mail server in memory on a real workspace, and clients that speak MCP with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.database.machine_clocks import MachineClocks, machine_clocks
from switchboard_mcp.inprocess.mcp_server import InProcessServer
from switchboard_mcp.inprocess.server_app import ClientIdentity, ToolTable
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.surface import dropped
from switchboard_mcp.mail.store.surface.surface import FileSurface
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.transport import memory
from tests.patience import PATIENCE_S

Json = dict[str, Any]


class KnownState:
    """A state for delivery rules."""

    def __init__(self, state: Json) -> None:
        self.state = state

    def section(self, kind: str) -> dict[str, bytes]:
        return {name: json.dumps(entry).encode() for name, entry in self.state.get(kind, {}).items()}

    def update(self, change: Callable[[Json], object]) -> None:
        change(self.state)


class Hours:
    """Clocks that a test sets forward."""

    def __init__(self) -> None:
        self.passed = 0

    def clocks(self) -> MachineClocks:
        real = machine_clocks()
        return MachineClocks(
            real.boot,
            lambda: real.wall_us() + self.passed * 3_600_000_000,
            lambda: real.uptime_ms() + self.passed * 3_600_000,
        )


async def import_files(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import what was dropped, without the second in which a file may still be completed."""
    with monkeypatch.context() as patch:
        patch.setattr(dropped, "SETTLE_S", 0.0)
        surface = FileSurface(store)
        await surface.sync()
        await surface.close()


class Client:
    """One host's connection to the mail server."""

    def __init__(self, link: memory.MemoryTransport, server: InProcessServer) -> None:
        self.server = server
        self._link = link
        self._ids = iter(range(1, 1_000_000))
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self.told: asyncio.Queue[Json] = asyncio.Queue()
        link.start(self._receive, lambda: None, lambda odd: None)

    def _receive(self, data: bytes) -> None:
        message = json.loads(data)
        if "method" in message:
            self.told.put_nowait(message)
        else:
            self._waiting.pop(message["id"]).set_result(message)

    def begin(self, method: str, params: Json) -> tuple[int, asyncio.Future[Json]]:
        """Ask, and do not wait."""
        id = next(self._ids)
        answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        self._link.send(jsonrpc.request(b"%d" % id, method, json.dumps(params).encode()))
        return id, answer

    def cancel(self, id: int) -> None:
        """The answer is not wanted any more."""
        self._waiting.pop(id).cancel()
        self._link.send(jsonrpc.notification("notifications/cancelled", b'{"requestId":%d}' % id))

    async def ask(self, method: str, **params: Any) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            return await self.begin(method, params)[1]

    async def result(self, tool: str, **arguments: Any) -> Json:
        answer = await self.ask("tools/call", name=tool, arguments=arguments)
        result: Json = answer["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> Json:
        result = await self.result(tool, **arguments)
        assert not result.get("isError"), result["content"][0]["text"]
        text: Json = result["structuredContent"]
        return text

    async def failure(self, tool: str, **arguments: Any) -> Json:
        result = await self.result(tool, **arguments)
        assert result.get("isError"), result
        error: Json = result["structuredContent"]["error"]
        return error

    async def read(self, uri: str) -> Json:
        answer = await self.ask("resources/read", uri=uri)
        result: Json = json.loads(answer["result"]["contents"][0]["text"])
        return result

    async def next(self, method: str) -> Json:
        """The params of the next notification of this method; others before it are gone."""
        async with asyncio.timeout(PATIENCE_S):
            while (message := await self.told.get())["method"] != method:
                pass
        params: Json = message["params"]
        return params

    async def leave(self) -> None:
        await self.server.close()


class Lines:
    """Return the log."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._more = asyncio.Event()

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        self._more.set()

    def count(self, event: bytes) -> int:
        return sum(event in line for line in self.lines)

    async def until(self, event: bytes) -> None:
        """Wait until it is logged."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.count(event):
                self._more.clear()
                await self._more.wait()


class Office:
    """A mail server, and how clients connect to it."""

    def __init__(self, server: MailServer, menu: ToolTable, tasks: asyncio.TaskGroup, log: Lines) -> None:
        self.server = server
        self.log = log
        self._menu = menu
        self._tasks = tasks
        self.clients: list[Client] = []

    async def client(self, principal: str = "", *, one: bool = True) -> Client:
        loop = asyncio.get_running_loop()
        ours, theirs = memory.pair(loop)
        server = InProcessServer(loop, theirs, self._menu, self._tasks.create_task, self._wrong)
        await server.open(ClientIdentity(principal, is_single_client=one))
        self.clients.append(Client(ours, server))
        return self.clients[-1]

    async def agent(self, name: str, **more: Any) -> Client:
        client = await self.client()
        await client.call("register_chat_agent", name=name, **more)
        return client

    @staticmethod
    def _wrong(where: str, problem: BaseException) -> None:
        raise AssertionError(f"{where} went wrong") from problem


@asynccontextmanager
async def office(
    workspace: Path, settings: MailSettings | None = None, reserved: tuple[str, ...] = ()
) -> AsyncIterator[Office]:
    """Open a mail server as a separate process would."""
    log = Lines()
    async with asyncio.TaskGroup() as tasks:

        def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(work)

        server = MailServer(
            str(workspace), settings or MailSettings(enabled=True), Log(write=log.add), start, reserved
        )
        opened = Office(server, ToolTable(server, "1"), tasks, log)
        try:
            yield opened
        finally:
            for client in opened.clients:
                await client.leave()
            await server.close()
