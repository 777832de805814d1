"""A wrapped child's server, and what passes between it and its client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from switchboard_mcp.ask.conversation import CannotAskError
from switchboard_mcp.ask.plan import Offered, PlanStep
from switchboard_mcp.ask.wrapper_app import Wrapper
from switchboard_mcp.ask.wrapper_server import AskingServer
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.inprocess.server_app import ClientIdentity, ToolTable
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.transport import memory
from tests.cases import each_case
from tests.patience import PATIENCE_S

Json = dict[str, Any]
RESULT = b'{"content":[{"type":"text","text":"hi"}],"x":[ 1 ]}'


class Box:
    """A child, and what it is without a plan."""

    child = "notes"

    async def offered(self) -> list[Offered]:
        return [Offered("read", schema={}, read_only=True)]

    async def call(self, step: PlanStep) -> bytes:
        return RESULT

    async def list_tools(self) -> list[Raw]:
        return [Raw(b'{"name":"read","inputSchema":{}}')]

    async def call_tool(self, params: Raw) -> bytes:
        return msgspec.json.encode({"content": [], "passed": params})


class Client:
    """The other end of the link."""

    def __init__(self, link: memory.MemoryTransport) -> None:
        self._link = link
        self._heard: asyncio.Queue[Json] = asyncio.Queue()
        link.start(lambda data: self._heard.put_nowait(json.loads(data)), lambda: None, lambda piece: None)

    def send(self, **message: Any) -> None:
        self._link.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def leave(self) -> None:
        self._link.close_sending()

    async def hear(self) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            return await self._heard.get()


@asynccontextmanager
async def serving(
    capabilities: Json | None = None, *, through: bool = False
) -> AsyncIterator[tuple[AskingServer, Client, asyncio.Event]]:
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    ours, theirs = memory.pair(loop)
    box = Box()
    program = Wrapper(box, AskSettings())

    def wrong(where: str, problem: BaseException) -> None:
        raise AssertionError(where) from problem

    async with asyncio.TaskGroup() as tasks:
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = tasks.create_task
        menu = ToolTable(program, "1")
        server = AskingServer(loop, theirs, menu, start, wrong, gone.set, box if through else None)
        await server.open(ClientIdentity())
        client = Client(ours)
        client.send(id=0, method="initialize", params={"capabilities": capabilities or {}})
        assert (await client.hear())["result"]["serverInfo"]["name"] == "notes"
        yield server, client, gone
        await server.close()


def ask(client: Client, query: str = "read it") -> None:
    request = {"name": "natural_language", "arguments": {"query": query}}
    client.send(id=1, method="tools/call", params=request)


async def test_a_request_asks_the_clients_model_and_gives_the_result_as_it_came() -> None:
    async with serving({"sampling": {}}) as (_, client, _gone):
        ask(client)
        question = await client.hear()
        assert question["method"] == "sampling/createMessage"
        plan = '{"steps":[{"subtool":"read","args":{}}],"done":true}'
        client.send(id=question["id"], result={"content": {"type": "text", "text": plan}, "model": "m"})
        used, answer = await client.hear(), await client.hear()
        assert used["method"] == "notifications/switchboard/used"
        assert (used["params"]["outcome"], used["params"]["subtools"]) == ("ok", ["read"])
        assert "read it" not in json.dumps(used)
        result = answer["result"]
        assert {name: result[name] for name in ("content", "x")} == json.loads(RESULT)
        assert result["_meta"]["switchboard/plan"][0]["subtool"] == "read"


async def test_without_a_model_the_answer_says_what_to_set_and_it_counts() -> None:
    async with serving() as (_, client, _gone):
        ask(client)
        assert (await client.hear())["params"]["outcome"] == "ask_no_model"
        assert (await client.hear())["result"]["isError"] is True


async def test_a_request_without_words_is_refused() -> None:
    async with serving() as (_, client, _gone):
        ask(client, "")
        error = (await client.hear())["result"]["structuredContent"]["error"]
        assert error["code"] == "arguments_invalid"


async def test_the_originals_tools_stand_beside_where_that_is_wanted() -> None:
    async with serving(through=True) as (_, client, _gone):
        client.send(id=1, method="tools/list")
        tools = (await client.hear())["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["natural_language", "read"]
        client.send(id=2, method="tools/call", params={"name": "read", "arguments": {"a": 1}})
        assert (await client.hear())["result"]["passed"] == {"name": "read", "arguments": {"a": 1}}


@each_case(
    ("answer", "kind"),
    [
        ({"error": {"code": -32601, "message": "Method not found"}}, CannotAskError),
        ({"error": {"code": -1, "message": "User rejected"}}, SwitchboardError),
        ({}, SwitchboardError),
    ],
)
async def test_refusals_of_the_client_are_told_apart(answer: Json, kind: type[SwitchboardError]) -> None:
    async with serving() as (server, client, _gone), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(_refused(server))
        client.send(id=(await client.hear())["id"], **answer)
        assert type(await asking) is kind


async def test_an_answer_that_cannot_be_taken_ends_its_question() -> None:
    async with serving() as (server, client, _gone), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(_refused(server))
        id = (await client.hear())["id"]
        server._peer._receive_invalid(Oversized(10**9, b'{"jsonrpc":"2.0","id":%d,"result":{' % id, b"}}"))
        assert (await asking).failure.code == "message_too_large"


async def test_questions_end_and_the_server_is_notified_when_the_client_leaves() -> None:
    async with serving() as (server, client, gone), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(_refused(server))
        await client.hear()
        client.leave()
        assert "has disconnected" in (await asking).failure.message
        await gone.wait()


async def _refused(server: AskingServer) -> SwitchboardError:
    with pytest.raises(SwitchboardError) as problem:
        await server.request("sampling/createMessage", b"{}")
    return problem.value
