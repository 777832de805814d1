"""The official SDK's client as a host that answers what it is asked, held open in a task of its own.

Tests share a connection, since each starts processes. What it was asked and told is kept, for tests to look at.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.web import Web
from tests.patience import PATIENCE_S

Mode = Literal["auto", "legacy"]
HttpMode = Literal["stateless", "session", "sse"]
Json = dict[str, Any]


class Sdk:
    """A host, and all that came to it. `heard` has every message as it came."""

    client: Client

    def __init__(self, name: str, mode: Mode) -> None:
        self.name = name
        self.mode = mode
        self.asked: list[str] = []
        self.logs: list[Json] = []
        self.notices: asyncio.Queue[Any] = asyncio.Queue()
        self.heard: list[str] = []

    async def next_notice(self, kind: type[Any]) -> Any:
        """The next notification of a kind; others before it are gone."""
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(notice := await self.notices.get(), kind):
                pass
        return notice

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.asked.append("sampling")
        block = types.TextContent(text="said the model")
        return types.CreateMessageResult(role="assistant", content=block, model="m")

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.mode)
        content: dict[str, Any] | None = {"name": self.name} if params.mode == "form" else None
        return types.ElicitResult(action="accept", content=content)

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///from/host")])  # type: ignore[arg-type]  # it is one

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(json.loads(params.model_dump_json(by_alias=True, exclude_none=True)))

    async def handle(self, message: Any) -> None:
        self.notices.put_nowait(message)


class _Tap:
    """A stream of messages that writes down what comes."""

    def __init__(self, stream: Any, heard: list[str]) -> None:
        self._stream = stream
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Tap:
        return self

    async def __anext__(self) -> Any:
        return self._note(await anext(self._stream))

    async def receive(self) -> Any:
        return self._note(await self._stream.receive())

    async def __aenter__(self) -> _Tap:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *how: Any) -> Any:
        return await self._stream.__aexit__(*how)

    def _note(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        self._heard.append(str(item) if message is None else message.model_dump_json(by_alias=True))
        return item


@asynccontextmanager
async def _tapped(transport: Any, heard: list[str]) -> AsyncIterator[tuple[Any, Any]]:
    async with transport as (read, write):
        yield _Tap(read, heard), write


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@asynccontextmanager
async def sdk_host(
    command: list[str],
    *,
    cwd: Path,
    mode: Mode,
    env: dict[str, str] | None = None,
    name: str = "Al",
) -> AsyncIterator[Sdk]:
    """A host that starts a command. `name` is what its user answers."""
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env={**os.environ, **(env or {})}, cwd=cwd
    )
    with (cwd / "stderr.log").open("a") as errors:
        async with _held(stdio_client(parameters, errlog=errors), mode, name) as host:
            yield host


@asynccontextmanager
async def sdk_web_host(web: Web, http_mode: HttpMode, *, name: str = "Al") -> AsyncIterator[Sdk]:
    """The same over HTTP: Streamable HTTP in either era, or HTTP+SSE."""
    async with httpx2.AsyncClient(headers=web.bearer, timeout=PATIENCE_S) as http:
        if http_mode == "sse":
            transport: Any = sse_client(f"{web.url}/sse", headers=web.bearer)
        else:
            transport = streamable_http_client(f"{web.url}/mcp", http_client=http)
        async with _held(transport, "auto" if http_mode == "stateless" else "legacy", name) as host:
            yield host


@asynccontextmanager
async def _held(transport: Any, mode: Mode, name: str) -> AsyncIterator[Sdk]:
    host = Sdk(name, mode)
    host.client = Client(
        _tapped(transport, host.heard),
        mode=mode,
        sampling_callback=host.sample,
        elicitation_callback=host.elicit,
        list_roots_callback=host.list_roots,
        logging_callback=host.log,
        message_handler=host.handle,
        cache=None,
    )
    async with entered(host.client):
        yield host


@asynccontextmanager
async def entered(client: Client) -> AsyncIterator[None]:
    """A client connected, by a task of its own: task groups must be left by the task that entered them, which a
    fixture's two halves are not.
    """
    ready, done = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        try:
            async with client:
                ready.set()
                await done.wait()
        except* anyio.BrokenResourceError:
            # The SDK's client over HTTP+SSE fails if a message comes while it closes.
            if not done.is_set():
                raise
        finally:
            ready.set()

    holding = asyncio.create_task(hold())
    await ready.wait()
    if holding.done():
        await holding
    try:
        yield
    finally:
        done.set()
        await holding
