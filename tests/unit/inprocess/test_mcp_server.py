"""Servers in this process: tools from a table, resources, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from switchboard_mcp.errors import SwitchboardError, failure
from switchboard_mcp.inprocess.mcp_server import InProcessServer
from switchboard_mcp.inprocess.server_app import (
    ClientIdentity,
    Notifier,
    Resource,
    ToolRequest,
    ToolSpec,
    ToolTable,
)
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.transport import memory
from tests.patience import PATIENCE_S

Json = dict[str, Any]


class Greet(Struct, forbid_unknown_fields=True, rename="camel"):
    who: Annotated[str, Meta(description="Whom to greet.", min_length=1)]
    how_often: Annotated[int, Meta(ge=1, le=3)] = 1
    mood: Literal["glad", "sad"] | None = None
    tags: list[str] = []


class Part(Struct):
    a: int


class Whole(Struct):
    parts: list[Part]


class Nothing(Struct, forbid_unknown_fields=True):
    pass


class Guest:
    """A client, as the program sees it."""

    def __init__(self, server: Notifier, principal: str) -> None:
        self.server = server
        self.principal = principal
        self.following: frozenset[str] = frozenset()
        self.begun = asyncio.Event()
        self.cancelled = False
        self.left = False

    async def read(self, uri: str) -> object:
        if uri == "x://broken":
            raise RuntimeError("inside")
        if uri == "x://closed":
            return failure("internal", "It is closed.")
        return {"of": uri} if uri.startswith("x://") else None

    def subscriptions_changed(self, uris: frozenset[str]) -> None:
        self.following = uris

    async def close(self) -> None:
        self.left = True


async def greet(guest: Guest, requested: Greet, request: ToolRequest) -> object:
    request.progress(1, 2, "half way")
    return {"hello": requested.who, "from": guest.principal, "times": requested.how_often}


async def refuse(guest: Guest, requested: Nothing, request: ToolRequest) -> object:
    return failure("usage", "Not today.", nearest=["tomorrow"])


async def give_up(guest: Guest, requested: Nothing, request: ToolRequest) -> object:
    raise SwitchboardError(failure("usage", "Not today."))


async def fall(guest: Guest, requested: Nothing, request: ToolRequest) -> object:
    raise RuntimeError("the inside of it")


async def dawdle(guest: Guest, requested: Nothing, request: ToolRequest) -> object:
    guest.begun.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        guest.cancelled = True
        raise
    return None


class Program:
    name = "parlour"
    instructions = "Greet people."
    tools = (
        ToolSpec(name="greet", description="Greets.", args_type=Greet, handler=greet, read_only=True),
        ToolSpec(name="refuse", description="Refuses.", args_type=Nothing, handler=refuse, destructive=True),
        ToolSpec(
            name="give_up", description="Gives up.", args_type=Nothing, handler=give_up, idempotent=True
        ),
        ToolSpec(name="fall", description="Falls.", args_type=Nothing, handler=fall),
        ToolSpec(name="dawdle", description="Dawdles.", args_type=Nothing, handler=dawdle),
    )
    resources = (
        Resource(name="one", description="One.", uri="x://one", mime_type="application/json"),
        Resource(name="many", description="Many.", uri_template="x://{which}"),
    )

    def __init__(self) -> None:
        self.guests: list[Guest] = []

    async def open_session(self, notifier: Notifier, client: ClientIdentity) -> Guest:
        self.guests.append(Guest(notifier, client.principal))
        return self.guests[-1]


class Client:
    """The other end of the link."""

    def __init__(self, link: memory.MemoryTransport, guest: Guest) -> None:
        self.link = link
        self.guest = guest
        self.heard: asyncio.Queue[Json] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.wrong: list[tuple[str, BaseException]] = []
        link.start(lambda data: self.heard.put_nowait(json.loads(data)), self.closed.set, lambda odd: None)

    async def ask(self, method: str, params: Json | None = None, *, id: int = 1) -> Json:
        self.link.send(jsonrpc.request(b"%d" % id, method, json.dumps(params or {}).encode()))
        return await self.next()

    async def next(self) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            return await self.heard.get()

    async def result(self, method: str, params: Json | None = None) -> Json:
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> Json:
        return await self.result("tools/call", {"name": tool, "arguments": arguments})


@asynccontextmanager
async def client(principal: str = "") -> AsyncIterator[Client]:
    program = Program()
    loop = asyncio.get_running_loop()
    ours, theirs = memory.pair(loop)
    wrong: list[tuple[str, BaseException]] = []
    async with asyncio.TaskGroup() as tasks:

        def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(work)

        server = InProcessServer(
            loop,
            theirs,
            ToolTable(program, "1"),
            start,
            lambda where, problem: wrong.append((where, problem)),
        )
        await server.open(ClientIdentity(principal))
        found = Client(ours, program.guests[0])
        found.wrong = wrong
        yield found
        await server.close()


async def test_it_introduces_itself_in_the_handshake_era() -> None:
    async with client() as host:
        output = await host.result("initialize", {"protocolVersion": "2025-11-25"})
        assert output["serverInfo"] == {"name": "parlour", "version": "1"}
        assert output["instructions"] == "Greet people."
        assert output["capabilities"]["resources"]["subscribe"] is True
        assert await host.result("ping") == {}
        assert (await host.ask("server/discover"))["error"]["code"] == -32601


async def test_tools_are_listed_with_schemas_made_from_their_arguments() -> None:
    async with client() as host:
        tools = {tool["name"]: tool for tool in (await host.result("tools/list"))["tools"]}
    assert list(tools) == ["greet", "refuse", "give_up", "fall", "dawdle"]
    schema = tools["greet"]["inputSchema"]
    assert schema["required"] == ["who"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["who"] == {
        "type": "string",
        "minLength": 1,
        "description": "Whom to greet.",
    }
    assert schema["properties"]["howOften"] == {"type": "integer", "minimum": 1, "maximum": 3, "default": 1}
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert schema["properties"]["mood"] == {"enum": ["glad", "sad"]}
    assert tools["greet"]["annotations"]["readOnlyHint"] is True
    assert tools["refuse"]["annotations"]["destructiveHint"] is True
    assert tools["give_up"]["annotations"]["idempotentHint"] is True


async def test_a_call_is_answered_with_text_and_structure_and_knows_who_asks() -> None:
    async with client("ada") as host:
        result = await host.call("greet", who="you", howOften=2)
    assert result["structuredContent"] == {"hello": "you", "from": "ada", "times": 2}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


async def test_progress_comes_before_the_answer_where_it_is_wanted() -> None:
    async with client() as host:
        params = {"name": "greet", "arguments": {"who": "you"}, "_meta": {"progressToken": "p"}}
        output = await host.ask("tools/call", params)
        assert output["method"] == "notifications/progress"
        assert output["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half way"}
        assert "result" in await host.next()


async def test_wrong_arguments_are_reported_with_the_schema() -> None:
    async with client() as host:
        for arguments in ({}, {"who": ""}, {"who": "x", "howOften": 9}, {"who": "x", "else": 1}):
            result = await host.call("greet", **arguments)
            error = result["structuredContent"]["error"]
            assert result["isError"] is True
            assert error["code"] == "arguments_invalid"
            assert error["message"].startswith("greet: ")
            assert error["schema"]["required"] == ["who"]


async def test_refusals_and_faults_of_a_tool_are_reported_and_hurt_nobody_else() -> None:
    async with client() as host:
        for tool in ("refuse", "give_up"):
            result = await host.call(tool)
            assert result["structuredContent"]["error"]["message"] == "Not today."
        result = await host.call("fall")
        assert result["structuredContent"]["error"]["code"] == "internal"
        assert "inside" not in json.dumps(result)
        assert [(where, str(problem)) for where, problem in host.wrong] == [("fall", "the inside of it")]
        assert "isError" not in await host.call("greet", who="you")


async def test_unknown_tools_methods_and_unreadable_params_are_refused() -> None:
    async with client() as host:
        assert (await host.ask("tools/call", {"name": "no"}))["error"]["code"] == -32602
        assert (await host.ask("no/such"))["error"]["code"] == -32601
        assert (await host.ask("tools/call", {"name": 1}))["error"]["code"] == -32602
        assert (await host.ask("resources/read", {}))["error"]["code"] == -32602


async def test_a_cancelled_call_stops_and_is_not_answered() -> None:
    async with client() as host:
        host.link.send(jsonrpc.request(b"7", "tools/call", b'{"name":"dawdle"}'))
        await host.guest.begun.wait()
        host.link.send(jsonrpc.notification("notifications/cancelled", b'{"requestId":7}'))
        assert (await host.ask("ping", id=8))["id"] == 8
        assert host.guest.cancelled


async def test_resources_are_listed_read_and_followed() -> None:
    async with client() as host:
        (listed,) = (await host.result("resources/list"))["resources"]
        assert listed == {
            "name": "one",
            "description": "One.",
            "uri": "x://one",
            "mimeType": "application/json",
        }
        (family,) = (await host.result("resources/templates/list"))["resourceTemplates"]
        assert family["uriTemplate"] == "x://{which}"
        (content,) = (await host.result("resources/read", {"uri": "x://one"}))["contents"]
        assert json.loads(content["text"]) == {"of": "x://one"}
        host.guest.server.resource_updated("x://one")
        assert await host.result("resources/subscribe", {"uri": "x://one"}) == {}
        assert host.guest.following == {"x://one"}
        host.guest.server.resource_updated("x://two")
        host.guest.server.resource_updated("x://one")
        assert (await host.next())["params"] == {"uri": "x://one"}
        await host.result("resources/unsubscribe", {"uri": "x://one"})
        host.guest.server.resource_updated("x://one")
        assert await host.result("ping") == {}


async def test_a_resource_that_cannot_be_read_says_why() -> None:
    async with client() as host:
        unknown = await host.ask("resources/read", {"uri": "y://"})
        assert unknown["error"]["code"] == -32002
        closed = await host.ask("resources/read", {"uri": "x://closed"})
        assert closed["error"]["message"] == "It is closed."
        broken = await host.ask("resources/read", {"uri": "x://broken"})
        assert broken["error"]["code"] == -32603
        assert "inside" not in json.dumps(broken)


async def test_log_messages_reach_the_client() -> None:
    async with client() as host:
        host.guest.server.log_message("warning", "Mind the step.")
        output = await host.next()
        assert output["params"] == {"level": "warning", "logger": "parlour", "data": "Mind the step."}


async def test_calls_end_and_the_program_is_notified_when_the_client_leaves() -> None:
    async with client() as host:
        host.link.send(jsonrpc.request(b"7", "tools/call", b'{"name":"dawdle"}'))
        await host.guest.begun.wait()
        host.link.close_sending()
        await host.closed.wait()
        assert host.guest.left
    assert host.guest.cancelled


def test_a_schema_with_parts_keeps_them() -> None:
    tool = ToolSpec(name="t", description="", args_type=Whole, handler=greet)
    schema = msgspec.json.decode(tool.schema)
    assert schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert "Part" in schema["$defs"]
