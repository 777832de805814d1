"""A gateway in memory: hosts that are the test itself, children that do what it says, a clock that it moves.

Nothing here waits: `settle` runs what is due, `advance` lets time pass.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from switchboard_mcp.children.catalog import Catalog, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.connection import ChildTransport
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.per_session import PerSessionChild
from switchboard_mcp.config.models import ChildSpec, Config, SuiteSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import Session, http_host
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport import memory
from switchboard_mcp.transport.base import OnClosed, OnResponseLost
from switchboard_mcp.transport.stdio import Cork

Json = dict[str, Any]
Script = Callable[[Json], Json | None]
PREFIX = "io.modelcontextprotocol/"
OLD, NEW = "2025-11-25", "2026-07-28"
EVERYTHING: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
ECHO: Json = {"name": "echo", "inputSchema": {"type": "object"}}
FOLDER = "/work space"


class ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self.now


class Server:
    """One run of a child. It introduces itself and lists what it has; everything else is up to the test."""

    def __init__(self, child: FakeChild, link: memory.MemoryTransport) -> None:
        self.child = child
        self.link = link
        self.heard: list[Json] = []
        self.stopped = False
        link.start(self._receive, self._stop, lambda odd: None)

    def _stop(self) -> None:
        self.stopped = True

    def _receive(self, data: bytes) -> None:
        message = json.loads(data)
        self.heard.append(message)
        if "method" in message and "id" in message:
            answer = self.child.script(message)
            if answer is not None:
                self.send({"id": message["id"], **answer})

    def send(self, message: Json | bytes) -> None:
        body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.link.send(body)
        self.child.board.settle_later()

    def ask(self, method: str, params: Json | None = None, *, id: int | str = "q") -> None:
        """Ask the client something."""
        self.send({"id": id, "method": method, **({} if params is None else {"params": params})})

    def notify(self, method: str, params: Json | None = None) -> None:
        self.send({"method": method, **({} if params is None else {"params": params})})

    def give(self, call: Json, result: object) -> None:
        """Answer a call with a result."""
        self.send({"id": call["id"], "result": result})

    def refuse(self, call: Json, code: int, message: str = "no", data: object = None) -> None:
        """Answer a call with an error."""
        self.send({"id": call["id"], "error": {"code": code, "message": message, "data": data}})

    def requests(self, method: str) -> list[Json]:
        """Every such request or notification so far."""
        return [message for message in self.heard if message.get("method") == method]

    def last(self, method: str = "tools/call") -> Json:
        """The latest such request."""
        return self.requests(method)[-1]

    def reply(self, id: int | str = "q") -> Json | None:
        """Return the client's answer to a question."""
        found = [message for message in self.heard if "method" not in message and message["id"] == id]
        assert len(found) <= 1, found
        return found[0] if found else None

    def die(self) -> None:
        """End without having been asked to."""
        self.link.close_sending()
        self.child.board.settle_later()


class MemoryCarrier:
    """A `ChildTransport` over memory."""

    pid = 0
    lost: OnResponseLost

    def __init__(self, name: str, link: memory.MemoryTransport) -> None:
        self.name = name
        self.link = link

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        self.lost = lost

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        return tools

    async def stop(self) -> None:
        self.link.close()

    async def exit_reason(self, opened: bool) -> Failure:
        code = "child_crashed" if opened else "child_start_failed"
        return failure(code, f"Child '{self.name}' died.", child=self.name)

    def stderr_tail(self) -> list[str]:
        return []

    def stderr_since(self, count: int) -> tuple[int, list[str]]:
        return 0, []


class FakeChild(Child):
    """A child in memory, of the era that is asked for."""

    board: Board
    era: str
    capabilities: Json
    lists: dict[str, list[Json]]
    extra: Script
    runs: list[Server]
    carriers: list[MemoryCarrier]

    async def open_transport(self, spec: ChildSpec, limit_s: float) -> ChildTransport:
        near, far = memory.pair(self._context.loop)
        self.runs.append(Server(self, far))
        carrier = MemoryCarrier(self.name, near)
        self.carriers.append(carrier)
        return carrier

    @property
    def server(self) -> Server:
        """The run of the moment."""
        return self.runs[-1]

    def script(self, message: Json) -> Json | None:
        """The answers of every child; for the rest the test says."""
        method = message["method"]
        modern = PREFIX + "protocolVersion" in message.get("params", {}).get("_meta", {})
        answer = self.extra(message)
        if answer is not None:
            return answer or None
        if method == "initialize" and self.era != "modern":
            hello = {"protocolVersion": OLD, "capabilities": self.capabilities, "serverInfo": {"name": "s"}}
            return {"result": hello}
        if method == "server/discover" and self.era != "legacy":
            found = {"supportedVersions": [NEW], "capabilities": self.capabilities, "resultType": "complete"}
            return {"result": found}
        if method in ("initialize", "server/discover"):
            return {"error": {"code": -32601, "message": "what?"}}
        if method in self.lists:
            member = {"resources/templates/list": "resourceTemplates"}.get(method, method.split("/")[0])
            return {"result": {member: self.lists[method], **({"resultType": "complete"} if modern else {})}}
        if method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            return {"result": {}}
        return None


class FakeIsolated(PerSessionChild):
    """An isolated child whose processes are in memory."""

    make: Callable[[], FakeChild]
    made: list[FakeChild]

    def create_child(self) -> Child:
        child = self.make()
        self.made.append(child)
        return child


class Road:
    """A road to a host: what came on it, in order."""

    backlog = 0

    def __init__(self) -> None:
        self.heard: list[Json] = []
        self.raw: list[bytes] = []
        self.answers = 0

    def send(self, message: bytes) -> None:
        self.heard.append(json.loads(message))

    def answer(self, message: bytes) -> None:
        self.answers += 1
        self.raw.append(message)
        self.heard.append(json.loads(message))


class Host:
    """A host: sends messages, and keeps what it hears."""

    def __init__(self, board: Board, session: Session, road: Road, capabilities: Json, modern: bool) -> None:
        self.board = board
        self.session = session
        self.road = road
        self.capabilities = capabilities
        self.modern = modern

    def send(self, message: Json | bytes, road: Road | None = None) -> None:
        body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.board.gateway.receive(self.session, road or self.road, body)
        self.board.settle()

    def ask(
        self,
        method: str,
        params: Json | None = None,
        *,
        id: int | str | None = None,
        road: Road | None = None,
        meta: Json | None = None,
    ) -> int | str:
        """Send a request in the host's era; `meta` goes beside the envelope."""
        id = self.board.next_id() if id is None else id
        params = dict(params or {})
        if self.modern:
            envelope = {PREFIX + "protocolVersion": NEW, PREFIX + "clientCapabilities": self.capabilities}
            params["_meta"] = {**envelope, **(meta or {})}
        elif meta:
            params["_meta"] = meta
        self.send({"id": id, "method": method, "params": params}, road)
        return id

    def notify(self, method: str, params: Json | None = None) -> None:
        self.send({"method": method, **({} if params is None else {"params": params})})

    def answer(self, id: int | str) -> Json | None:
        """The answer to a request, where there is one."""
        found = [one for one in self.road.heard if one.get("id") == id and "method" not in one]
        assert len(found) <= 1, found
        return found[0] if found else None

    def result(self, id: int | str) -> Json:
        answer = self.answer(id)
        assert answer is not None, self.road.heard
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def error(self, id: int | str) -> Json:
        answer = self.answer(id)
        assert answer is not None, self.road.heard
        assert "error" in answer, answer
        error: Json = answer["error"]
        return error

    def get(self, method: str, params: Json | None = None, **more: Any) -> Json:
        """Ask, and the result."""
        return self.result(self.ask(method, params, **more))

    def call(self, subtool: str = "echo", suite: str = "kid_suite", **more: Any) -> int | str:
        """Begin a suite call."""
        arguments = {"action": "call", "subtool": subtool, "args": more.pop("args", {})}
        params = {"name": suite, "arguments": arguments, **more.pop("params", {})}
        return self.ask("tools/call", params, **more)

    def heard(self, method: str) -> list[Json]:
        """Every notification or request of this method so far: whole messages."""
        return [message for message in self.road.heard if message.get("method") == method]

    def notifications(self, method: str) -> list[Json]:
        """The params of them."""
        return [message.get("params", {}) for message in self.heard(method)]

    def reply(self, question: Json, result: object) -> None:
        self.send({"id": question["id"], "result": result})

    def refuse(self, question: Json, code: int = -1, message: str = "not now") -> None:
        self.send({"id": question["id"], "error": {"code": code, "message": message}})

    def cancel(self, id: int | str) -> None:
        self.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})

    def leave(self) -> None:
        self.board.gateway.close(self.session)
        self.board.settle()


class Board:
    """A gateway with its hosts, children and clock."""

    def __init__(self) -> None:
        self.loop = ClockLoop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.errors: list[bytes] = []
        self.services = ChildContext(
            loop=self.loop,
            launcher=None,  # type: ignore[arg-type]  # no process is started
            cork=Cork(),
            log=Log(level="error", write=self.errors.append),
            redactor=Redactor(),
            catalog=Catalog(""),
            environ={},
            workspace=FOLDER,
            start_task=self._start_task,
        )
        self.children: dict[str, Child] = {}
        self.suites: dict[str, SuiteSettings] = {}
        self._gateway: Gateway | None = None
        self._settling = False
        self._ids = iter(range(1001, 100_000))

    def next_id(self) -> int:
        return next(self._ids)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def child(
        self,
        name: str = "kid",
        era: str = "legacy",
        *,
        tools: list[Json] | None = None,
        lists: dict[str, list[Json]] | None = None,
        capabilities: Json | None = None,
        script: Script | None = None,
        **suite: Any,
    ) -> FakeChild:
        """One more child; before the first host. `script` may answer first: an empty answer is silence."""
        self.suites[name] = SuiteSettings(**suite)
        return self._add(name, self._maker(name, era, tools, lists, capabilities, script))

    def isolated(
        self,
        name: str = "kid",
        era: str = "legacy",
        most: int = 16,
        lists: dict[str, list[Json]] | None = None,
        **suite: Any,
    ) -> FakeIsolated:
        """A child of which each host has its own."""
        self.suites[name] = SuiteSettings(isolation="session", isolation_max=most, **suite)
        child = FakeIsolated(_spec(name), self.config, self.services, most)
        child.make, child.made = self._maker(name, era, None, lists, None, None), []
        self.children[name] = child
        return child

    def _add(self, name: str, make: Callable[[], FakeChild]) -> FakeChild:
        child = self.children[name] = make()
        return child

    def _maker(
        self,
        name: str,
        era: str,
        tools: list[Json] | None,
        lists: dict[str, list[Json]] | None,
        capabilities: Json | None,
        script: Script | None,
    ) -> Callable[[], FakeChild]:
        listed = {"tools/list": [ECHO] if tools is None else tools, **(lists or {})}
        listed_capabilities: Json = {method.split("/")[0]: {"listChanged": True} for method in listed}
        if "resources" in listed_capabilities:
            listed_capabilities["resources"]["subscribe"] = True
        if listed_capabilities.pop("skills", None):
            listed_capabilities["extensions"] = {PREFIX + "skills": {}}

        def make() -> FakeChild:
            child = FakeChild(_spec(name), self.config, self.services)
            child.board = self
            child.era, child.runs, child.carriers = era, [], []
            child.capabilities = (
                {**listed_capabilities, "logging": {}} if capabilities is None else capabilities
            )
            child.lists = listed
            child.extra = script or (lambda message: None)
            return child

        return make

    @property
    def config(self) -> Config:
        return Config(suites=self.suites)

    @property
    def gateway(self) -> Gateway:
        if self._gateway is None:
            log = self.services.log
            self._gateway = Gateway(
                self.children.values(), self.config, log, self.loop, self.services.flow_control, FOLDER
            )
            self.services.events = self._gateway
        return self._gateway

    def host(self, capabilities: Json | None = None, *, modern: bool = False, principal: str = "") -> Host:
        """A host that stays; one of the handshake era has shaken hands."""
        road = Road()
        host = Host(
            self, self.gateway.open(road, http_host("http", principal)), road, capabilities or {}, modern
        )
        if not modern:
            host.get("initialize", {"protocolVersion": OLD, "capabilities": host.capabilities})
            host.notify("notifications/initialized")
        return host

    def passer(self, capabilities: Json | None = None, *, principal: str = "") -> Host:
        """A modern host over HTTP: there for one request."""
        road = Road()
        session = self.gateway.open(road, http_host("http", principal), ephemeral=True)
        return Host(self, session, road, capabilities or {}, modern=True)

    def settle(self) -> None:
        """Run whatever is due."""

        async def turn() -> None:
            for _ in range(40):
                await asyncio.sleep(0)

        self._settling = True
        try:
            self.loop.run_until_complete(turn())
        finally:
            self._settling = False

    def settle_later(self) -> None:
        """Run whatever is due, unless that is being done."""
        if not self._settling:
            self.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, and run what is due then."""
        self.loop.now += seconds
        self.settle()

    def close(self) -> None:
        for child in self.children.values():
            self.loop.run_until_complete(child.close())
        self.settle()
        for task in list(self.tasks):
            task.cancel()
        self.settle()
        self.loop.close()


def _spec(name: str) -> ChildSpec:
    return ChildSpec(name=name, source="test", command=name)


@contextmanager
def open_board() -> Iterator[Board]:
    """Open a gateway without children. An error inside it fails the test."""
    board = Board()
    yield board
    board.close()
    assert board.errors == []
