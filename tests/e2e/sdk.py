"""The official SDK's client as a host that answers what it is asked, held open in a task of its own.

Tests share a connection, since each starts three processes. What it was asked and told is kept, for tests to look at.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

Mode = Literal["auto", "legacy"]
Json = dict[str, Any]
PATIENCE_S = 30.0


class Sdk:
    """A host, and all that came to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked: list[str] = []
        self.logs: list[Json] = []
        self.notices: asyncio.Queue[Any] = asyncio.Queue()

    async def next_notice(self, kind: type[Any]) -> Any:
        """The next notification of a kind; others before it are gone."""
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(notice := await self.notices.get(), kind):
                pass
        return notice


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@asynccontextmanager
async def sdk_host(
    command: list[str], *, cwd: Path, mode: Mode, env: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Sdk]:
    """Connect; with `able=False` as a host that can answer nothing."""
    host: Sdk

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        host.asked.append("sampling")
        block = types.TextContent(text="said the model")
        return types.CreateMessageResult(role="assistant", content=block, model="m")

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        host.asked.append(params.mode)
        content: dict[str, Any] | None = {"name": "Al"} if params.mode == "form" else None
        return types.ElicitResult(action="accept", content=content)

    async def list_roots(context: Any) -> types.ListRootsResult:
        host.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///from/host")])  # type: ignore[arg-type]  # it is one

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        host.logs.append(json.loads(params.model_dump_json(by_alias=True, exclude_none=True)))

    async def handle(message: Any) -> None:
        host.notices.put_nowait(message)

    if options.pop("able", True):
        options |= {
            "sampling_callback": sample,
            "elicitation_callback": elicit,
            "list_roots_callback": list_roots,
        }
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env={**os.environ, **(env or {})}, cwd=cwd
    )
    with (cwd / "stderr.log").open("a") as errors:
        client = Client(
            stdio_client(parameters, errlog=errors),
            mode=mode,
            logging_callback=log,
            message_handler=handle,
            cache=None,
            **options,
        )
        host = Sdk(client)
        ready, done = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            # Task groups must be left by the task that entered them, which a fixture's two halves are not.
            try:
                async with client:
                    ready.set()
                    await done.wait()
            finally:
                ready.set()

        holding = asyncio.create_task(hold())
        await ready.wait()
        if holding.done():
            await holding
        try:
            yield host
        finally:
            done.set()
            await holding
