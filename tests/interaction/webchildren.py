"""Servers on the official SDK over every remote transport, and a child to meet them with."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

from switchboard_mcp.children.catalog import Catalog
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext, ChildHandle
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config, Timeouts
from switchboard_mcp.errors import Failure
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport.process.launcher import Launcher
from switchboard_mcp.transport.rpc import Peer, PendingRequest, next_id
from switchboard_mcp.transport.stdio import Cork
from tests.patience import PATIENCE_S

Kind = Literal["http", "sse", "ws"]
Json = dict[str, Any]
SHOP = Path(__file__).parent.parent / "children" / "shop.py"


Transport = Literal["streamable", "json", "modern", "sse", "websocket"]
KINDS: dict[Transport, Kind] = {
    "streamable": "http",
    "json": "http",
    "modern": "http",
    "sse": "sse",
    "websocket": "ws",
}


@contextmanager
def shop(transport: Transport, port: int = 0) -> Iterator[str]:
    """A server on the official SDK, in a process of its own; gives its address."""
    program = subprocess.Popen(
        [sys.executable, str(SHOP), transport, str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        yield program.stdout.readline().strip()
    finally:
        program.kill()
        program.communicate()


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0)


class Question(ReadyWaiter, PendingRequest):
    """A call of a tool by somebody who waits for it."""

    __slots__ = ("arguments", "child", "done", "progress", "tool")

    def __init__(self, child: Child, tool: str, arguments: Json) -> None:
        self.child = child
        self.tool = tool
        self.arguments = arguments
        self.progress: list[Json] = []
        self.done: asyncio.Future[Json | Failure | None] = asyncio.get_running_loop().create_future()
        id = next_id()
        params: Json = {"name": tool, "arguments": arguments, "_meta": {"progressToken": int(id)}}
        super().__init__(id, b"", 20)
        self.message = jsonrpc.request(id, "tools/call", json.dumps(params).encode())

    def on_ready(self, child: Child) -> None:
        assert child.peer is not None
        assert child.snapshot is not None
        if child.snapshot.protocol == "2026-07-28":
            message = json.loads(self.message)
            message["params"]["_meta"] |= {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            self.message = json.dumps(message).encode()
        child.peer.send(self)

    def on_failed(self, problem: Failure) -> None:
        self.settle(problem)

    def answered(self, answer: RpcMessage) -> None:
        body = answer.result or answer.error
        self.settle(json.loads(bytes(body)))  # type: ignore[arg-type]

    def failed(self, problem: Failure) -> None:
        self.settle(problem)

    def timed_out(self) -> None:
        self.settle(None)

    def progressed(self, params: Any) -> None:
        self.progress.append(json.loads(bytes(params)))

    def settle(self, value: Json | Failure | None) -> None:
        if not self.done.done():
            self.done.set_result(value)

    def ask(self) -> Question:
        self.child.acquire(self)
        return self

    async def answer(self) -> Json | Failure | None:
        return await asyncio.wait_for(self.done, PATIENCE_S)


async def ask(child: Child, tool: str, **arguments: object) -> Json | Failure | None:
    """Return the outcome of a call."""
    return await Question(child, tool, arguments).ask().answer()


class Audience:
    """Hears what children say."""

    def __init__(self) -> None:
        self.news = asyncio.Event()

    def on_child_notification(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None: ...

    def on_child_request(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None: ...

    def on_list_changed(self, child: str, notification: str, *, first: bool = False) -> None:
        if notification == "notifications/tools/list_changed":
            self.news.set()


Meet = Callable[..., Child]


@asynccontextmanager
async def meeting(log_lines: list[str] | None = None) -> AsyncIterator[tuple[Meet, ChildContext]]:
    """Makes children; on leaving they are stopped, and nothing of them is left."""
    loop = asyncio.get_running_loop()
    made: list[Child] = []
    redactor = Redactor()
    lines = [] if log_lines is None else log_lines

    async with asyncio.TaskGroup() as tasks:

        def start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(work)

        services = ChildContext(
            loop=loop,
            launcher=Launcher(loop),
            cork=Cork(),
            log=Log(level="debug", redactor=redactor, write=lambda line: lines.append(str(line))),
            redactor=redactor,
            catalog=Catalog(""),
            environ=os.environ,
            workspace="/",
            start_task=start_task,
            events=None,
        )

        def meet(kind: Kind, url: str, idle_ms: int = 600_000, **members: Any) -> Child:
            spec = ChildSpec(name="kid", source="test.json", kind=kind, url=url, **members)
            config = Config(timeouts=Timeouts(child_spawn_ms=5_000, rpc_ms=20_000, idle_ms=idle_ms))
            child = Child(spec, config, services)
            made.append(child)
            return child

        yield meet, services
        async with asyncio.timeout(PATIENCE_S):
            for child in made:
                await child.close()
