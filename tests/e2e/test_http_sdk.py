"""The official SDK's clients as hosts over HTTP: Streamable HTTP in both eras, and HTTP+SSE."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.test_http_front import GATE
from tests.e2e.web import Web, call, serving
from tests.e2e.workspaces import add_child, scripted

Road = Literal["stateless", "session", "sse"]
ROADS: tuple[Road, ...] = ("stateless", "session", "sse")
# Asks its client for a name in the middle of a call, and tells what it was told.
ASKER = """
class Asker(Child):
    tools = ("greet",)

    def call(self, request_id, params, line):
        self.open = request_id
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = {"mode": "form", "message": "Who?", "requestedSchema": schema}
        send({"id": "q1", "method": "elicitation/create", "params": asked})

    def hear(self, message):
        result = message.get("result", {"content": {"name": "nobody"}})
        self.answer(self.open, text("Hello " + result["content"]["name"]))

Asker().serve()
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    workspace = tmp_path_factory.mktemp("sdk")
    add_child(workspace, "gate", GATE)
    add_child(workspace, "asker", scripted(ASKER))
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        yield running


@asynccontextmanager
async def connected(web: Web, road: Road, **options: Any) -> AsyncIterator[Client]:
    if road == "sse":
        async with Client(
            sse_client(f"{web.url}/sse", headers=web.bearer), mode="legacy", **options
        ) as client:
            yield client
        return
    mode = "auto" if road == "stateless" else "legacy"
    async with httpx2.AsyncClient(headers=web.bearer, timeout=20) as http:
        transport = streamable_http_client(f"{web.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


async def use(client: Client, subtool: str, message: str = "", **options: Any) -> str:
    arguments = call(subtool, message)["arguments"]
    result = await client.call_tool("gate_suite", arguments, **options)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize("road", ROADS)
async def test_it_connects_lists_and_calls(web: Web, road: Road) -> None:
    async with connected(web, road) as client:
        assert client.protocol_version == ("2026-07-28" if road == "stateless" else "2025-11-25")
        listed = await client.list_tools()
        assert sorted(tool.name for tool in listed.tools) == ["asker_suite", "gate_suite"]
        answers = await asyncio.gather(*(use(client, "echo", f"é{number}") for number in range(20)))
        assert answers == [f"é{number}" for number in range(20)]


@pytest.mark.parametrize("road", ROADS)
async def test_progress_reaches_the_one_who_asked(web: Web, road: Road) -> None:
    told: list[str | None] = []
    begun = asyncio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)
        begun.set()

    async with connected(web, road) as client, connected(web, "session") as other:
        held = asyncio.create_task(use(client, "hold", road, progress_callback=progressed))
        await begun.wait()
        await use(other, "release", road)
        assert await held == f"released {road}"
    assert told == [f"holding {road}"]


@pytest.mark.parametrize("road", ROADS)
async def test_a_call_that_is_given_up_is_cancelled_in_the_child(web: Web, road: Road) -> None:
    name = f"given-up-{road}"
    async with connected(web, road) as client, connected(web, "session") as other:
        held = asyncio.create_task(use(client, "hold", name))
        assert await use(other, "held", name) == "held"
        held.cancel()
        assert await use(other, "dropped", name) == "dropped"


@pytest.mark.parametrize("road", ROADS)
async def test_a_child_can_ask_the_host_whose_call_it_works_on(web: Web, road: Road) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        assert params.message == "Who?"
        return types.ElicitResult(action="accept", content={"name": road})

    async with (
        connected(web, "session") as bystander,
        connected(web, road, elicitation_callback=answer) as client,
    ):
        arguments = {"action": "call", "subtool": "greet", "args": {}}
        result = await client.call_tool("asker_suite", arguments)
        assert result.content == [types.TextContent(text=f"Hello {road}")]
        assert (await bystander.list_tools()).tools


async def test_many_hosts_of_all_kinds_at_once(web: Web) -> None:
    async def one(number: int) -> list[str]:
        async with connected(web, ROADS[number % 3]) as client:
            return [await use(client, "echo", f"{number}/{turn}") for turn in range(5)]

    answers = await asyncio.gather(*(one(number) for number in range(15)))
    assert answers == [[f"{number}/{turn}" for turn in range(5)] for number in range(15)]
