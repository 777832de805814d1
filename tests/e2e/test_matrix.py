"""Every front with every kind of child, in both eras: all that flows between a host and a child, and to no other host.

The official SDK is at both ends. Fronts and children are in `matrix`, by transport and era. For one host all works in
each row: what one era cannot say is said in the other's way. What cannot be for two hosts at once is `IMPOSSIBLE`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import mcp_types as types
import pytest
import pytest_asyncio
from mcp import MCPError
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from tests.cases import each_case
from tests.e2e.matrix import BROKER, CHILDREN, FRONTS, Grid, Pair, running
from tests.e2e.sdk import Sdk
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # What the SDK calls deprecated is what hosts of the handshake era do.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

Row = tuple[str, str, str]  # front, child, exposure
PIPES = ("stdio-legacy", "stdio-modern")
SUITES: list[Row] = [(front, child, "suite") for front in FRONTS for child in CHILDREN]
DIRECT: list[Row] = [(front, child, "direct") for front in PIPES for child in PIPES]
WATCHED = "test://watched-resource"
CHANGES: dict[str, tuple[str, ServerEvent, type[Any]]] = {
    "tool": ("tools_list_changed", ToolsListChanged(), types.ToolListChangedNotification),
    "prompt": ("prompts_list_changed", PromptsListChanged(), types.PromptListChangedNotification),
    "resource": ("resources_list_changed", ResourcesListChanged(), types.ResourceListChangedNotification),
}
# Two hosts at once: one front twice, and both eras over HTTP and in a broker. Two hosts with a Switchboard and a child
# of their own each, over pipes, have nothing in common, and so are not here. Nor are two hosts of a broker with a child
# that asks during calls over one channel: from its first question on, each has a process of its own (`test_broker`).
COUPLES: list[Row] = [
    (first, second, child)
    for first, second in (
        *zip(FRONTS, FRONTS, strict=True),
        ("http-legacy", "http-modern"),
        ("broker-legacy", "broker-legacy"),
        ("broker-legacy", "broker-modern"),
    )
    for child in CHILDREN
    if (first not in PIPES or child not in PIPES) and (first not in BROKER or child != "stdio-legacy")
]
# A tool that asks, what its host is asked, and what the tool says then.
QUESTIONS = [
    ("test_sampling", ["sampling"], "LLM response: said the model"),
    ("test_elicitation", ["form"], "User response: action=accept, content={'name': 'Al'}"),
    ("ask_url", ["url"], "action=accept, content={}"),
    ("test_input_required_result_list_roots", ["roots"], "file:///from/host"),
    ("ask_twice", ["form", "form"], "action=accept, content={'name': 'Al'}"),
    (
        "ask_all",
        ["form", "roots", "sampling"],
        "action=accept, content={'name': 'Al'}; said the model; file:///from/host",
    ),
]
# Each front and each kind of child at least once; all others are in `make soak`.
QUICK: list[Row] = [
    ("stdio-legacy", "stdio-modern", "suite"),
    ("stdio-modern", "sse-legacy", "suite"),
    ("http-legacy", "http-modern", "suite"),
    ("http-modern", "stdio-legacy", "suite"),
    ("http-modern", "ws-modern", "suite"),
    ("sse-legacy", "ws-legacy", "suite"),
    ("sse-legacy", "http-legacy", "suite"),
    ("stdio-modern", "stdio-legacy", "direct"),
]
QUICK_COUPLES: list[Row] = [
    ("stdio-legacy", "stdio-legacy", "http-modern"),
    ("sse-legacy", "sse-legacy", "ws-legacy"),
    ("http-legacy", "http-modern", "stdio-legacy"),
    ("broker-legacy", "broker-modern", "ws-modern"),
]
# What a child says of itself during a call is for the host whose call it is. Where one channel carries everything,
# nothing in a question or a log message says which call that is; so with several hosts at work it is nobody's. (The way
# out is a process for each, `isolation: session`.) Over HTTP each call has a way back of its own, and questions of the
# modern era are in results. A host over pipes has a Switchboard of its own, and is never one of several.
ONE_CHANNEL = "No host can answer"
IMPOSSIBLE: dict[tuple[str, str], str] = {
    ("stdio-legacy", "question"): ONE_CHANNEL,
    ("stdio-legacy", "log"): ONE_CHANNEL,
    ("stdio-modern", "log"): ONE_CHANNEL,
    ("sse-legacy", "question"): ONE_CHANNEL,
    ("sse-legacy", "log"): ONE_CHANNEL,
    ("ws-legacy", "question"): ONE_CHANNEL,
    ("ws-legacy", "log"): ONE_CHANNEL,
    ("ws-modern", "log"): ONE_CHANNEL,
}


def rows(all_rows: list[Row], quick: list[Row]) -> list[Any]:
    """Return the parameters for these rows: those that are not `quick` are part of `make soak`."""
    assert set(quick) <= set(all_rows)
    soak = pytest.mark.soak("servers")
    return [pytest.param(row, marks=() if row in quick else soak) for row in all_rows]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    async with running(tmp_path_factory.mktemp("matrix")) as grid:
        yield grid


class Kept:
    """The hosts that are connected; others are let go when these are not enough, since the rows come in order."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._hosts: dict[tuple[str, str], Sdk] = {}
        self._stack = AsyncExitStack()

    async def connected(self, *wanted: tuple[str, str]) -> list[Sdk]:
        """Hosts by front and name."""
        if any(one not in self._hosts for one in wanted):
            await self.let_go()
            for front, name in wanted:
                host = await self._stack.enter_async_context(self._grid.host(front, name))
                self._hosts[front, name] = host
        return [self._hosts[one] for one in wanted]

    async def let_go(self) -> None:
        self._hosts.clear()
        await self._stack.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(grid: Grid) -> AsyncIterator[Kept]:
    kept = Kept(grid)
    yield kept
    await kept.let_go()


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=rows(SUITES + DIRECT, QUICK), ids="-".join
)
async def pair(request: pytest.FixtureRequest, grid: Grid, kept: Kept) -> AsyncIterator[Pair]:
    front, child, exposure = request.param
    async with AsyncExitStack() as stack:
        if exposure == "direct":
            sdk = await stack.enter_async_context(grid.direct(front, child))
        else:
            (sdk,) = await kept.connected((front, "Al"))
        pair = Pair(sdk, front, child, exposure)
        await pair.text("test_simple_text")  # so that what it offers is known
        yield pair


async def speaks_its_own_era(pair: Pair) -> None:
    client = pair.sdk.client
    assert client.protocol_version == ("2026-07-28" if pair.modern else "2025-11-25")
    child = await pair.text("version")
    assert child == ("2026-07-28" if pair.child.endswith("-modern") else "2025-11-25")
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == sorted(f"{child}_suite" for child in CHILDREN) or pair.exposure == "direct"


async def calls(pair: Pair) -> None:
    result = await pair.call("test_multiple_content_types")
    assert [block.type for block in result.content] == ["text", "image", "resource"]
    failed = await pair.call("test_error_handling")
    assert failed.is_error
    names = [f"né {number}" for number in range(10)]
    answers = await asyncio.gather(*(pair.text("greet", {"name": name}) for name in names))
    assert answers == [f"Hello, {name}!" for name in names]


async def reports_progress(pair: Pair) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if progress >= 1:  # below that, the child is still starting
            steps.append((progress, total, message))

    assert await pair.text("report", progress_callback=note) == "reported"
    assert steps == [(step, 3, f"step {step}") for step in (1, 2, 3)]


async def cancels(pair: Pair) -> None:
    name = {"name": f"cancel-{uuid4()}"}
    waiting = asyncio.create_task(pair.call("wait", name))
    await pair.text("begun", name)
    waiting.cancel()
    assert await pair.text("cancelled", name) == "cancelled"
    await asyncio.wait([waiting])


async def answers_what_a_child_asks(pair: Pair) -> None:
    for tool, asked, told in QUESTIONS:
        pair.sdk.asked.clear()
        assert await pair.text(tool, {"prompt": "p", "message": "m"}) == told
        assert sorted(pair.sdk.asked) == asked


async def reads_resources(pair: Pair) -> None:
    client = pair.sdk.client
    uris = await pair.offered("resource")
    assert uris[:3] == [
        pair.uri(f"test://{name}") for name in ("static-text", "static-binary", "watched-resource")
    ]
    templates = (await client.list_resource_templates()).resource_templates
    (template,) = (one for one in templates if pair.owns(one.uri_template))
    assert template.uri_template == pair.uri("test://template/{id}/data")
    uri = pair.uri("test://template/123/data")
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert (str(content.uri), content.text) == (uri, '{"id": "123"}')
    with pytest.raises(MCPError) as raised:
        await client.read_resource(pair.uri("test://nothing"))
    # Not listed, so it does not reach the child; each protocol family has its own code for that.
    assert raised.value.error.code == (-32602 if pair.modern else -32002)


@asynccontextmanager
async def following(pair: Pair, uri: str) -> AsyncIterator[Any]:
    """Gives what waits for the next update of a resource, in the way of the host's era."""
    client = pair.sdk.client
    if pair.modern:
        async with asyncio.timeout(PATIENCE_S), client.listen(resource_subscriptions=[uri]) as listening:

            async def event() -> str:
                told = await anext(aiter(listening))
                assert isinstance(told, ResourceUpdated)
                return told.uri

            yield event
        return

    async def notice() -> str:
        return str((await pair.sdk.next_notice(types.ResourceUpdatedNotification)).params.uri)

    await client.subscribe_resource(uri)
    yield notice
    await client.unsubscribe_resource(uri)


async def follows_a_resource(pair: Pair) -> None:
    uri = pair.uri(WATCHED)
    async with following(pair, uri) as updated:
        await pair.text("touch")
        assert await updated() == uri


async def gets_prompts(pair: Pair) -> None:
    client = pair.sdk.client
    assert pair.prompt("test_simple_prompt") in await pair.offered("prompt")
    arguments = {"arg1": "one", "arg2": "two"}
    got = await client.get_prompt(pair.prompt("test_prompt_with_arguments"), arguments)
    (message,) = got.messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text == "arg1='one', arg2='two'"
    with pytest.raises(MCPError):
        await client.get_prompt(pair.prompt("no_such_prompt"))


async def answers_what_a_prompt_asks(pair: Pair) -> None:
    pair.sdk.asked.clear()
    got = await pair.sdk.client.get_prompt(pair.prompt("test_input_required_result_prompt"))
    assert "'name': 'Al'" in str(got.messages[0].content)
    assert pair.sdk.asked == ["form"]


async def completes(pair: Pair) -> None:
    reference = types.PromptReference(name=pair.prompt("test_prompt_with_arguments"))
    done = await pair.sdk.client.complete(reference, {"name": "arg1", "value": "par"})
    assert done.completion.values == ["paris", "park", "party"]
    template = types.ResourceTemplateReference(uri=pair.uri("test://template/{id}/data"))
    done = await pair.sdk.client.complete(template, {"name": "id", "value": "park"})
    assert done.completion.values == ["park"]


async def hears_of_changed_lists(pair: Pair) -> None:
    for kind in CHANGES:
        await hears_of_a_changed_list(pair, kind)


async def hears_of_a_changed_list(pair: Pair, kind: str) -> None:
    wish, event, notification = CHANGES[kind]
    name = f"n{uuid4().hex}"

    async def grown() -> bool:
        return any(offered.endswith(name) for offered in await pair.offered(kind))

    assert not await grown()
    # A change that was made before may be told late, so what counts is that it is there once it was told.
    if pair.modern:
        wanted: Any = {wish: True}
        async with asyncio.timeout(PATIENCE_S), pair.sdk.client.listen(**wanted) as listening:
            await pair.text("grow", {"kind": kind, "name": name})
            async for told in listening:
                assert told == event
                if await grown():
                    return
    await pair.text("grow", {"kind": kind, "name": name})
    async with asyncio.timeout(PATIENCE_S):
        await pair.sdk.next_notice(notification)
        while not await grown():
            await pair.sdk.next_notice(notification)


async def hears_logs(pair: Pair) -> None:
    sdk = pair.sdk
    sdk.logs.clear()
    meta: Any = {"io.modelcontextprotocol/logLevel": "warning"} if pair.modern else None
    if not pair.modern:
        await sdk.client.set_logging_level("warning")
    await pair.text("log", meta=meta)
    logger = "kid" if pair.exposure == "direct" else f"{pair.child}/kid"
    assert sdk.logs == [
        {"level": level, "logger": logger, "data": {"level": level}} for level in ("warning", "error")
    ]
    if pair.modern:
        await pair.text("log")
        assert len(sdk.logs) == 2


CHECKS = (
    speaks_its_own_era,
    calls,
    reports_progress,
    cancels,
    answers_what_a_child_asks,
    reads_resources,
    follows_a_resource,
    gets_prompts,
    answers_what_a_prompt_asks,
    completes,
    hears_of_changed_lists,
    hears_logs,
)


@each_case("check", CHECKS, ids=lambda check: str(check.__name__))
async def test_all_that_flows_between_a_host_and_a_child_arrives(
    pair: Pair, check: Callable[[Pair], Awaitable[None]]
) -> None:
    await check(pair)


@each_case("front", FRONTS)
async def test_a_tool_that_wants_a_header_and_has_not_told_so_is_called_all_the_same(
    kept: Kept, front: str
) -> None:
    (sdk,) = await kept.connected((front, "Al"))
    pair = Pair(sdk, front, "http-modern", "suite")
    name = f"n{uuid4().hex}"
    for marked in (False, True):
        await pair.text("mark", {"name": name, "marked": marked})
        assert await pair.text(name, {"region": "é"}) == "é"


# --- two hosts at once -------------------------------------------------------------------------------------


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=rows(COUPLES, QUICK_COUPLES), ids="-".join
)
async def couple(request: pytest.FixtureRequest, kept: Kept) -> list[Pair]:
    """Two hosts with a child. On one front they do the same, so that their requests have the same ids."""
    *fronts, child = request.param
    hosts = await kept.connected(*zip(fronts, ("ann", "bob"), strict=True))
    couple = [Pair(host, front, child, "suite") for host, front in zip(hosts, fronts, strict=True)]
    for pair in couple:
        if not pair.modern:
            await pair.sdk.client.set_logging_level("warning")
    return couple


async def test_two_hosts_at_once_never_see_each_others_traffic(couple: list[Pair]) -> None:
    names = [f"{pair.sdk.name}-{uuid4()}" for pair in couple]
    for pair in couple:
        pair.sdk.heard.clear()
        pair.sdk.logs.clear()
    room = str(uuid4())
    told = await asyncio.gather(*map(together, couple, names, [room, room]))
    for pair, name, (answer, steps) in zip(couple, names, told, strict=True):
        assert steps == [name]
        if why_not(pair, "question"):
            assert why_not(pair, "question") in answer
        else:
            assert answer == f"{name}: action=accept, content={{'name': '{pair.sdk.name}'}}"
        assert [log["data"] for log in pair.sdk.logs] == ([] if why_not(pair, "log") else [name])
    await one_cancels(couple, names)
    await one_follows(couple)
    for pair, other in zip(couple, reversed(names), strict=True):
        assert pair.sdk.heard
        assert not [message for message in pair.sdk.heard if other in message]


def why_not(pair: Pair, word: str) -> str:
    return "" if pair.front in PIPES else IMPOSSIBLE.get((pair.child, word), "")


async def together(host: Pair, name: str, room: str) -> tuple[str, list[str | None]]:
    """A call that speaks only when the other host's is under way; its answer, and what it reported."""
    steps: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if progress >= 1:  # below that, the child is still starting
            steps.append(message)

    meta: Any = {"io.modelcontextprotocol/logLevel": "warning"} if host.modern else None
    args = {"name": name, "room": room}
    return await host.text("together", args, progress_callback=note, meta=meta), steps


async def one_cancels(hosts: list[Pair], names: list[str]) -> None:
    """Both wait, under the same id: the first gives up, the other goes on waiting."""
    waiting = []
    for host, name in zip(hosts, names, strict=True):
        waiting.append(asyncio.create_task(host.call("wait", {"name": name})))
        await host.text("begun", {"name": name})
    for host, name, task in zip(hosts, names, waiting, strict=True):
        assert not task.done()
        task.cancel()
        assert await host.text("cancelled", {"name": name}) == "cancelled"
        await asyncio.wait([task])


async def one_follows(hosts: list[Pair]) -> None:
    """A resource is followed by the first, and touched by the other."""
    first, second = hosts
    # Over pipes, where each has a connection of its own to the child, a change is told to the one it came from.
    toucher = first if first.front in PIPES else second
    uri = first.uri(WATCHED)
    async with following(first, uri) as updated:
        await toucher.text("touch")
        assert await updated() == uri
    await second.text("version")
    assert not [message for message in second.sdk.heard if "notifications/resources/updated" in message]


async def test_many_hosts_of_all_kinds_at_once(grid: Grid) -> None:
    async def one(number: int, front: str, child: str) -> list[str]:
        async with grid.host(front) as sdk:
            host = Pair(sdk, front, child, "suite")
            return [await host.text("greet", {"name": f"{number}/{turn}"}) for turn in range(5)]

    rows = [row for row in SUITES if row[0] not in PIPES]
    answers = await asyncio.gather(*(one(number, *row[:2]) for number, row in enumerate(rows)))
    assert answers == [[f"Hello, {number}/{turn}!" for turn in range(5)] for number in range(len(rows))]
