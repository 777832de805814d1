"""Children that are part of Switchboard: known without a start, one instance for each host, no process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from switchboard_mcp.children.builtin import BuiltinChild
from switchboard_mcp.children.catalog import Catalog
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.lifecycle import State
from switchboard_mcp.children.waiter import EphemeralOwner, ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.errors import Failure
from switchboard_mcp.inprocess.server_app import ClientIdentity, Notifier, Resource, ToolRequest, ToolSpec
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport.stdio import Cork
from tests.patience import PATIENCE_S


class Nothing(Struct):
    pass


class Guest:
    def __init__(self, client: ClientIdentity) -> None:
        self.caller = client
        self.left = asyncio.Event()

    async def read(self, uri: str) -> object:
        return None

    def subscriptions_changed(self, uris: frozenset[str]) -> None:
        pass

    async def close(self) -> None:
        self.left.set()


async def whoami(guest: Guest, args: Nothing, request: ToolRequest) -> object:
    return {"principal": guest.caller.principal}


class Parlour:
    name = "parlour"
    instructions = "Ask who you are."
    tools = (ToolSpec(name="whoami", description="Who you are.", args_type=Nothing, handler=whoami),)
    resources = (Resource(name="r", description="R.", uri_template="x://{r}"),)

    def __init__(self) -> None:
        self.guests: list[Guest] = []

    async def open_session(self, notifier: Notifier, client: ClientIdentity) -> Guest:
        self.guests.append(Guest(client))
        return self.guests[-1]


class Host:
    """A host with a connection of its own."""

    def __init__(self, principal: str = "") -> None:
        self.principal = principal


class Guestbook(ReadyWaiter):
    """A request of a host."""

    def __init__(self, home: object) -> None:
        self._home = home
        self.met: asyncio.Future[Child] = asyncio.get_running_loop().create_future()

    @property
    def owner(self) -> object:
        return self._home

    def on_ready(self, child: Child) -> None:
        self.met.set_result(child)

    def on_failed(self, problem: Failure) -> None:
        self.met.set_exception(AssertionError(problem.message))


class House:
    def __init__(self, child: BuiltinChild, program: Parlour) -> None:
        self.child = child
        self.program = program

    async def visit(self, home: object) -> Child:
        visitor = Guestbook(home)
        self.child.acquire(visitor)
        async with asyncio.timeout(PATIENCE_S):
            return await visitor.met


@asynccontextmanager
async def house() -> AsyncIterator[House]:
    program = Parlour()
    async with asyncio.TaskGroup() as tasks:

        def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(work)

        services = ChildContext(
            loop=asyncio.get_running_loop(),
            launcher=None,  # type: ignore[arg-type]  # no process is started
            cork=Cork(),
            log=Log(level="error"),
            redactor=Redactor(),
            catalog=Catalog(""),
            environ={},
            workspace="/",
            start_task=start,
            builtin_apps={"parlour": program},
        )
        spec = ChildSpec(name="parlour", source="here", kind="builtin")
        child = BuiltinChild(spec, Config(), services)
        yield House(child, program)
        await child.close()


async def test_its_tools_are_known_without_a_start() -> None:
    async with house() as built_in:
        offer = built_in.child.inventory
        assert [tool.name for tool in offer.known_tools()] == ["whoami"]
        assert offer.has_list("resources/list")
        assert offer.names("resources/templates/list") == {"x://{r}"}
        assert built_in.child.snapshot is not None
        assert built_in.child.snapshot.instructions == "Ask who you are."
        assert built_in.program.guests == []


async def test_each_host_has_its_own_and_is_known_by_its_connection() -> None:
    async with house() as built_in:
        ada, anybody = Host("ada"), Host()
        first = await built_in.visit(ada)
        assert await built_in.visit(ada) is first
        assert await built_in.visit(anybody) is not first
        assert [guest.caller for guest in built_in.program.guests] == [
            ClientIdentity("ada", owner=ada),
            ClientIdentity("", owner=anybody),
        ]
        assert first.peer is not None
        answer = await first.peer.request("tools/call", b'{"name":"whoami"}', 5)
        assert isinstance(answer, RpcMessage)
        assert b'"principal":"ada"' in bytes(answer.result)  # type: ignore[arg-type]  # there is one


async def test_requests_without_a_session_are_one_client_for_each_name_and_nobody_without() -> None:
    async with house() as built_in:
        first = await built_in.visit(EphemeralOwner("ada"))
        assert await built_in.visit(EphemeralOwner("ada")) is first
        await built_in.visit(EphemeralOwner(""))
        assert [guest.caller for guest in built_in.program.guests] == [
            ClientIdentity("ada", is_single_client=True, owner=EphemeralOwner("ada")),
            ClientIdentity("", is_single_client=False, owner=EphemeralOwner("")),
        ]


async def test_it_is_never_stopped_for_being_idle_and_goes_with_its_host() -> None:
    async with house() as built_in:
        host = Host()
        instance = await built_in.visit(host)
        for now in (0.0, 1e6, 1e9, 1e12):
            built_in.child.sweep(now)
        assert instance.state is State.READY
        assert instance.pid == 0
        built_in.child.release_session(host)
        async with asyncio.timeout(PATIENCE_S):
            await built_in.program.guests[0].left.wait()
        assert built_in.child.processes() == []
