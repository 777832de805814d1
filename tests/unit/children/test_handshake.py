from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from switchboard_mcp.children.catalog import ServerSnapshot, read_tools
from switchboard_mcp.children.handshake import Listed, UnsupportedVersion, fetch_list, shake_hands
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport import memory
from switchboard_mcp.transport.rpc import Peer, PendingRequest
from tests.cases import each_case

Json = dict[str, Any]
Answer = Callable[[str, Json], Json | None]
VERSION = "io.modelcontextprotocol/protocolVersion"
ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {"logging": {}}, "serverInfo": {"name": "s"}}
DISCOVERY = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "logging": {}},
    "instructions": "Be kind.",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "3"}},
}


class Listener:
    """Hears nothing that matters here."""

    def request_received(self, message: RpcMessage) -> None: ...
    def notification_received(self, message: RpcMessage) -> None: ...
    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None: ...
    def connection_lost(self) -> None: ...
    def response_too_large(self, call: PendingRequest, size: int) -> None: ...
    def response_unreadable(self, call: PendingRequest, reason: str) -> None: ...


class Server:
    """A child in memory. What it is asked goes to `answer`, which gives a result, an error, or nothing."""

    def __init__(self, answer: Answer) -> None:
        near, self.link = memory.pair(asyncio.get_running_loop())
        self.peer = Peer(asyncio.get_running_loop(), near, Listener())
        self.heard: list[tuple[str, Json]] = []
        self.answer = answer
        self.peer.start()
        self.link.start(self.receive, lambda: None, lambda odd: None)

    def receive(self, data: bytes) -> None:
        message = json.loads(data)
        params = message.get("params", {})
        self.heard.append((message["method"], params))
        if "id" in message and (answer := self.answer(message["method"], params)) is not None:
            self.link.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.heard]

    async def meet(self, limit_s: float = 10) -> ServerSnapshot | Failure | UnsupportedVersion | None:
        return await shake_hands(self.peer, "kid", limit_s)


def error(code: int, message: str = "no", data: object = None) -> Json:
    return {"error": {"code": code, "message": message, "data": data}}


def of_both_eras(method: str, params: Json) -> Json | None:
    results: dict[str, Json] = {
        "initialize": GREETING,
        "tools/list": {"tools": [ECHO]},
        "server/discover": DISCOVERY,
    }
    return {"result": results[method]}


def modern_only(refusal: Json) -> Answer:
    def answer(method: str, params: Json) -> Json | None:
        if method == "initialize":
            return refusal
        if params.get("_meta", {}).get(VERSION) != "2026-07-28":
            return error(-32602, "no envelope")
        return of_both_eras(method, params)

    return answer


async def test_a_child_of_both_eras_is_greeted_in_the_handshake_era() -> None:
    server = Server(of_both_eras)
    knowledge = await server.meet()
    assert isinstance(knowledge, ServerSnapshot)
    assert server.methods == ["initialize", "notifications/initialized", "tools/list"]
    assert (knowledge.protocol, knowledge.server.name, "logging" in knowledge.capabilities) == (
        "2025-11-25",
        "s",
        True,
    )
    assert all("_meta" not in params for _, params in server.heard)


@each_case("code", [-32022, -32020, -32021, -32600, -32601, -32602])
async def test_a_child_that_knows_no_handshake_is_spoken_to_without_one(code: int) -> None:
    server = Server(modern_only(error(code, data={"supported": ["2026-07-28"], "requested": "2025-11-25"})))
    knowledge = await server.meet()
    assert isinstance(knowledge, ServerSnapshot)
    assert server.methods == ["initialize", "server/discover", "tools/list"]
    assert (
        knowledge.protocol,
        knowledge.server.name,
        knowledge.instructions,
        "logging" in knowledge.capabilities,
    ) == (
        "2026-07-28",
        "modern",
        "Be kind.",
        True,
    )
    assert [tool.name for tool in read_tools(knowledge.tools)] == ["echo"]
    envelope = server.heard[-1][1]["_meta"]
    assert envelope["io.modelcontextprotocol/clientInfo"]["name"] == "switchboard"
    assert envelope["io.modelcontextprotocol/clientCapabilities"] == {}


@each_case("code", [-32603, -32000, 1])
async def test_a_child_that_fails_to_greet_is_not_asked_again(code: int) -> None:
    server = Server(modern_only(error(code, "out of order")))
    problem = await server.meet()
    assert isinstance(problem, Failure)
    assert (problem.code, "out of order" in problem.message) == ("child_protocol", True)
    assert server.methods == ["initialize"]


@each_case(
    "discovery",
    [
        error(-32601),
        {"result": {**DISCOVERY, "supportedVersions": ["2031-01-01"]}},
        {"result": {**DISCOVERY, "supportedVersions": "all"}},
        {"result": []},
    ],
)
async def test_a_child_of_neither_era_fails_with_what_it_said_first(discovery: Json) -> None:
    refusal = error(-32601, "what is initialize?")
    server = Server(lambda method, params: refusal if method == "initialize" else discovery)
    problem = await server.meet()
    assert isinstance(problem, Failure)
    assert (problem.code, "what is initialize?" in problem.message) == ("child_protocol", True)


async def test_a_child_that_wants_another_era_and_cannot_go_back_is_to_be_met_anew() -> None:
    refusal = error(-32022, "not this version")
    server = Server(lambda method, params: refusal if method == "initialize" else error(-32600))
    outcome = await server.meet()
    assert isinstance(outcome, UnsupportedVersion)
    assert "not this version" in outcome.problem.message


@each_case("silent", ["initialize", "server/discover", "tools/list"])
async def test_silence_at_any_step_ends_with_the_limit(silent: str) -> None:
    answer = modern_only(error(-32022))
    server = Server(lambda method, params: None if method == silent else answer(method, params))
    assert await server.meet(0.05) is None


async def test_a_link_that_ends_under_way_is_reported_as_its_own_failure() -> None:
    gone = failure("child_crashed", "It is gone.")

    def die(method: str, params: Json) -> None:
        server.peer.fail_all(gone)

    server = Server(die)
    assert await server.meet() is gone


async def test_a_child_without_a_handshake_that_needs_a_login_says_so() -> None:
    login = failure("child_unauthorized", "It requires authorization.")

    def answer(method: str, params: Json) -> Json | None:
        if method == "initialize":
            return error(-32600, "a header is missing")
        server.peer.fail_all(login)
        return None

    server = Server(answer)
    assert await server.meet() is login


async def test_every_page_of_a_list_is_asked_for_in_the_era_of_the_child() -> None:
    def answer(method: str, params: Json) -> Json:
        if "cursor" in params:
            return {"result": {"tools": [{"name": "b"}]}}
        return {"result": {"tools": [{"name": "a"}], "nextCursor": "next"}}

    server = Server(answer)
    tools = await fetch_list(server.peer, "kid", "tools/list", 10, stateless=True)
    assert isinstance(tools, Listed)
    assert [tool.name for tool in read_tools(tools.entries)] == ["a", "b"]
    assert [params["_meta"][VERSION] for _, params in server.heard] == ["2026-07-28"] * 2
    assert [params.get("cursor") for _, params in server.heard] == [None, "next"]
