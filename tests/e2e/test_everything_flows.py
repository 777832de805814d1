"""Everything that flows between hosts and children of both eras, as suites and directly; the SDK is at both ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import mcp_types as types
import pytest
import pytest_asyncio
from mcp import MCPError
from mcp.client.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

from tests.e2e.host import SWITCHBOARD
from tests.e2e.sdk import PATIENCE_S, Mode, Sdk, sdk_host, text_of
from tests.e2e.workspaces import REPO, add_child, configure

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # What the SDK calls deprecated is what hosts of the handshake era do.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

EVERYTHING = [sys.executable, str(REPO / "tests" / "children" / "everything.py")]
MODES: tuple[Mode, ...] = ("legacy", "auto")
PAIRS = [
    pytest.param((mode, era, exposure), id=f"{'modern' if mode == 'auto' else 'handshake'}-{era}-{exposure}")
    for mode in MODES
    for era in ("legacy", "modern")
    for exposure in ("suite", "direct")
]
WATCHED = "test://watched-resource"


class Pair(NamedTuple):
    """A host connected through Switchboard to a child: what each calls things."""

    sdk: Sdk
    mode: Mode
    era: str
    exposure: str

    @property
    def modern(self) -> bool:
        return self.mode == "auto"

    async def call(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> types.CallToolResult:
        if self.exposure == "direct":
            return await self.sdk.client.call_tool(tool, args or {}, **more)
        arguments = {"action": "call", "subtool": tool, "args": args or {}}
        return await self.sdk.client.call_tool("kid_suite", arguments, **more)

    async def text(self, tool: str, args: dict[str, Any] | None = None, **more: Any) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return text_of(await self.call(tool, args, **more))

    def prompt(self, name: str) -> str:
        return name if self.exposure == "direct" else f"kid__{name}"

    def uri(self, uri: str) -> str:
        return uri if self.exposure == "direct" else f"switchboard://kid/{uri}"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PAIRS)
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    mode, era, exposure = request.param
    workspace = tmp_path_factory.mktemp("flows")
    add_child(workspace, "kid", [*EVERYTHING, "--era", era])
    configure(workspace, {"suites": {"kid": {"exposure": exposure}}})
    env = {**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode, env=env) as sdk:
        pair = Pair(sdk, mode, era, exposure)
        await pair.text("test_simple_text")  # so that what it offers is known
        yield pair


async def test_each_speaks_its_own_era(pair: Pair) -> None:
    client = pair.sdk.client
    assert client.protocol_version == ("2026-07-28" if pair.modern else "2025-11-25")
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["kid_suite"] if pair.exposure == "suite" else "ask_url" in names


async def test_calls_and_their_results(pair: Pair) -> None:
    result = await pair.call("test_multiple_content_types")
    assert [block.type for block in result.content] == ["text", "image", "resource"]
    assert "intentionally" in await pair.text("test_error_handling")
    assert await pair.text("greet", {"name": "Al"}) == "Hello, Al!"


async def test_progress(pair: Pair) -> None:
    steps: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    await pair.text("test_tool_with_progress", progress_callback=note)
    assert steps == [(0, 100), (50, 100), (100, 100)]


async def test_cancellation(pair: Pair) -> None:
    name = {"name": "cancelled"}
    waiting = asyncio.create_task(pair.call("wait", name))
    await pair.text("begun", name)
    waiting.cancel()
    assert await pair.text("cancelled", name) == "cancelled"
    await asyncio.wait([waiting])


async def test_logging(pair: Pair) -> None:
    sdk = pair.sdk
    sdk.logs.clear()
    meta: Any = {"io.modelcontextprotocol/logLevel": "warning"} if pair.modern else None
    if not pair.modern:
        await sdk.client.set_logging_level("warning")
    await pair.text("log", meta=meta)
    logger = "kid" if pair.exposure == "direct" else "kid/kid"
    assert sdk.logs == [
        {"level": level, "logger": logger, "data": {"level": level}} for level in ("warning", "error")
    ]
    if pair.modern:
        await pair.text("log")
        assert len(sdk.logs) == 2


@pytest.mark.parametrize(
    ("tool", "asked", "told"),
    [
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
    ],
)
async def test_what_a_child_asks_its_host_answers(pair: Pair, tool: str, asked: list[str], told: str) -> None:
    pair.sdk.asked.clear()
    assert await pair.text(tool, {"prompt": "p", "message": "m"}) == told
    assert sorted(pair.sdk.asked) == asked


async def test_prompts(pair: Pair) -> None:
    client = pair.sdk.client
    names = [prompt.name for prompt in (await client.list_prompts()).prompts]
    assert pair.prompt("test_simple_prompt") in names
    arguments = {"arg1": "one", "arg2": "two"}
    got = await client.get_prompt(pair.prompt("test_prompt_with_arguments"), arguments)
    (message,) = got.messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text == "arg1='one', arg2='two'"
    with pytest.raises(MCPError):
        await client.get_prompt(pair.prompt("no_such_prompt"))


async def test_a_prompt_that_asks_first(pair: Pair) -> None:
    pair.sdk.asked.clear()
    got = await pair.sdk.client.get_prompt(pair.prompt("test_input_required_result_prompt"))
    assert "'name': 'Al'" in str(got.messages[0].content)
    assert pair.sdk.asked == ["form"]


async def test_resources(pair: Pair) -> None:
    client = pair.sdk.client
    uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
    assert uris == [
        pair.uri(f"test://{name}") for name in ("static-text", "static-binary", "watched-resource")
    ]
    (template,) = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == pair.uri("test://template/{id}/data")
    uri = pair.uri("test://template/123/data")
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    assert (str(content.uri), content.text) == (uri, '{"id": "123"}')
    with pytest.raises(MCPError) as raised:
        await client.read_resource(pair.uri("test://nothing"))
    assert raised.value.error.code == -32602  # as this child says in both eras


async def test_completion(pair: Pair) -> None:
    reference = types.PromptReference(name=pair.prompt("test_prompt_with_arguments"))
    done = await pair.sdk.client.complete(reference, {"name": "arg1", "value": "par"})
    assert done.completion.values == ["paris", "park", "party"]
    template = types.ResourceTemplateReference(uri=pair.uri("test://template/{id}/data"))
    done = await pair.sdk.client.complete(template, {"name": "id", "value": "park"})
    assert done.completion.values == ["park"]


async def test_updates_of_a_followed_resource(pair: Pair) -> None:
    client, uri = pair.sdk.client, pair.uri(WATCHED)
    if pair.modern:
        async with asyncio.timeout(PATIENCE_S), client.listen(resource_subscriptions=[uri]) as listening:
            await pair.text("touch")
            assert await anext(aiter(listening)) == ResourceUpdated(uri=uri)
    else:
        await client.subscribe_resource(uri)
        await pair.text("touch")
        notice = await pair.sdk.next_notice(types.ResourceUpdatedNotification)
        assert str(notice.params.uri) == uri
        await client.unsubscribe_resource(uri)


@pytest.mark.parametrize("kind", ["tool", "prompt"])
async def test_changed_lists(pair: Pair, kind: str) -> None:
    client = pair.sdk.client
    before = await offered(pair, kind)
    if pair.modern:
        wanted: Any = {"tools_list_changed": True} if kind == "tool" else {"prompts_list_changed": True}
        async with asyncio.timeout(PATIENCE_S), client.listen(**wanted) as listening:
            await pair.text(f"test_trigger_{kind}_change")
            assert await anext(aiter(listening)) == (
                ToolsListChanged() if kind == "tool" else PromptsListChanged()
            )
    else:
        while not pair.sdk.notices.empty():
            pair.sdk.notices.get_nowait()
        await pair.text(f"test_trigger_{kind}_change")
        await pair.sdk.next_notice(
            types.ToolListChangedNotification if kind == "tool" else types.PromptListChangedNotification
        )
    after = await offered(pair, kind)
    assert {name.removeprefix("kid__") for name in before ^ after} == {f"test_appearing_{kind}"}


async def offered(pair: Pair, kind: str) -> set[str]:
    client = pair.sdk.client
    if kind == "prompt":
        return {prompt.name for prompt in (await client.list_prompts()).prompts}
    if pair.exposure == "direct":
        return {tool.name for tool in (await client.list_tools()).tools}
    told = text_of(await client.call_tool("kid_suite", {"action": "introspect", "verbosity": "names"}))
    return {name for name in ("test_appearing_tool", "test_simple_text") if name in told}
