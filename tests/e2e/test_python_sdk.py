"""The official Python SDK's client as host, with published servers as children."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import (
    AudioContent,
    CallToolResult,
    ImageContent,
    LoggingMessageNotificationParams,
    TextContent,
)

from tests.e2e.host import LATEST, SWITCHBOARD
from tests.e2e.servers import Servers
from tests.e2e.workspaces import (
    MOCK_CHILD,
    add_child,
    configure,
    faulty,
    read_record,
    recorded,
)

Mode = Literal["auto", "legacy"]
# The SDK's own default probes with `server/discover` and must find its way back to `initialize`.
MODES: tuple[Mode, ...] = ("auto", "legacy")


@asynccontextmanager
async def client(
    command: list[str], *, cwd: Path, mode: Mode = "auto", env: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Client]:
    # The SDK passes on almost nothing of the environment by itself.
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env={**os.environ, **(env or {})}, cwd=cwd
    )
    with (cwd / "stderr.log").open("w") as log:
        async with Client(stdio_client(parameters, errlog=log), mode=mode, **options) as connected:
            yield connected


async def introspect(host: Client, suite: str, **more: str) -> Any:
    result = await host.call_tool(suite, {"action": "introspect", **more})
    (block,) = result.content
    assert isinstance(block, TextContent)
    return json.loads(block.text)


async def call(host: Client, suite: str, subtool: str, **args: Any) -> CallToolResult:
    return await host.call_tool(suite, {"action": "call", "subtool": subtool, "args": args})


@pytest.mark.parametrize("mode", MODES)
async def test_it_reads_every_page_of_a_long_list(workspace: Path, mode: Mode) -> None:
    configure(
        workspace, {"mcpServers": {f"child-{number:04d}": {"command": "true"} for number in range(1000)}}
    )
    async with client(SWITCHBOARD, cwd=workspace, mode=mode) as host:
        page = await host.list_tools()
        names = [tool.name for tool in page.tools]
        while page.next_cursor is not None:
            page = await host.list_tools(cursor=page.next_cursor)
            names += [tool.name for tool in page.tools]
        assert names == [f"child-{number:04d}_suite" for number in range(1000)]


@pytest.mark.parametrize("mode", MODES)
async def test_it_connects_lists_introspects_and_calls(workspace: Path, mode: Mode) -> None:
    add_child(workspace, "mock", MOCK_CHILD, description="A pretend browser.")
    async with client(SWITCHBOARD, cwd=workspace, mode=mode) as host:
        assert host.protocol_version == ("2026-07-28" if mode == "auto" else LATEST)
        assert host.server_info is not None
        assert host.server_info.name == "switchboard"
        assert host.server_capabilities.tools is not None
        assert "introspect" in (host.instructions or "")
        (tool,) = (await host.list_tools()).tools
        assert tool.name == "mock_suite"
        assert (tool.description or "").startswith("A pretend browser.")
        told = await introspect(host, "mock_suite")
        assert "click" in [entry["name"] for entry in told["tools"]]
        result = await call(host, "mock_suite", "click", selector="#a")
        assert result.structured_content == {"ok": True, "name": "click", "args": {"selector": "#a"}}


async def test_six_servers_are_six_tools_and_work_side_by_side(servers: Servers, workspace: Path) -> None:
    for name in Servers.names:
        add_child(workspace, name, servers.command(name), env=servers.env(name, "child"))
    async with client(SWITCHBOARD, cwd=workspace) as host:
        tools = (await host.list_tools()).tools
        assert [tool.name for tool in tools] == [f"{name}_suite" for name in Servers.names]
        told = await asyncio.gather(*(introspect(host, tool.name) for tool in tools))
        for name, answer in zip(Servers.names, told, strict=True):
            first = servers.calls(name)[0]
            assert first.subtool in [tool["name"] for tool in answer["tools"]]
            result = await call(host, f"{name}_suite", first.subtool, **first.args)
            assert not result.is_error


async def test_an_image_and_a_sound_arrive_as_such(servers: Servers, workspace: Path) -> None:
    for name in ("filesystem", "mock"):
        add_child(workspace, name, servers.command(name))
    sound = next(asked for asked in servers.calls("filesystem") if asked.blocks == ("audio",))
    async with client(SWITCHBOARD, cwd=workspace) as host:
        (image,) = (await call(host, "mock_suite", "screenshot")).content
        assert isinstance(image, ImageContent)
        assert image.mime_type == "image/png"
        (audio,) = (await call(host, "filesystem_suite", sound.subtool, **sound.args)).content
        assert isinstance(audio, AudioContent)
        assert audio.mime_type == "audio/wav"


async def test_what_one_call_stores_the_next_one_reads(servers: Servers, workspace: Path) -> None:
    for name in ("memory", "filesystem"):
        add_child(workspace, name, servers.command(name), env=servers.env(name, "child"))
    note = servers.folder / "stored.txt"
    async with client(SWITCHBOARD, cwd=workspace) as host:
        entity = {"name": "Grace", "entityType": "person", "observations": ["found a moth"]}
        await call(host, "memory_suite", "create_entities", entities=[entity])
        graph = (await call(host, "memory_suite", "read_graph")).structured_content
        assert graph is not None
        assert graph["entities"][0]["observations"] == ["found a moth"]
        await call(host, "filesystem_suite", "write_file", path=str(note), content="kept\n")
        read = await call(host, "filesystem_suite", "read_text_file", path=str(note))
        assert read.structured_content == {"content": "kept\n"}
    assert note.read_text() == "kept\n"


async def test_a_failing_child_is_told_of_in_its_result_and_spares_the_others(workspace: Path) -> None:
    add_child(workspace, "broken", faulty("exits-at-once"))
    add_child(workspace, "mock", MOCK_CHILD)
    async with client(SWITCHBOARD, cwd=workspace) as host:
        assert [tool.name for tool in (await host.list_tools()).tools] == ["broken_suite", "mock_suite"]
        refused = await host.call_tool("broken_suite", {"action": "introspect"})
        assert refused.is_error
        assert refused.structured_content is not None
        error = refused.structured_content["error"]
        assert error["code"] == "child_start_failed"
        assert error["stderr"] == ["faulty: no licence found", "faulty: giving up"]
        assert not (await call(host, "mock_suite", "echo", message="hello")).is_error


async def test_an_unknown_tool_is_a_protocol_error(workspace: Path) -> None:
    async with client(SWITCHBOARD, cwd=workspace) as host:
        with pytest.raises(MCPError) as raised:
            await host.call_tool("nothing_suite", {"action": "introspect"})
    assert raised.value.error.code == -32602


async def test_progress_reaches_the_callback_of_the_call(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if progress >= 1:  # beneath that is the wait for the child's start
            steps.append((progress, total, message))

    async with client(SWITCHBOARD, cwd=workspace) as host:
        arguments = {"action": "call", "subtool": "slow", "args": {"seconds": 0.01, "steps": 3}}
        await host.call_tool("mock_suite", arguments, progress_callback=note)
    assert steps == [(step, 3, f"step {step} of 3") for step in (1, 2, 3)]


async def test_log_messages_of_a_child_reach_the_callback(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    heard: asyncio.Queue[LoggingMessageNotificationParams] = asyncio.Queue()
    async with client(SWITCHBOARD, cwd=workspace, mode="legacy", logging_callback=heard.put) as host:
        await call(host, "mock_suite", "log", message="hello", level="warning")
        entry = await heard.get()
    assert (entry.level, entry.logger, entry.data) == ("warning", "mock/mock-child", "hello")


async def test_giving_up_on_a_call_cancels_it_in_the_child(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded(MOCK_CHILD, record))
    begun = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if progress >= 1:
            begun.set()

    async with client(SWITCHBOARD, cwd=workspace) as host:
        arguments = {"action": "call", "subtool": "slow", "args": {"seconds": 3600, "steps": 360_000}}
        calling = asyncio.ensure_future(host.call_tool("mock_suite", arguments, progress_callback=note))
        await begun.wait()
        calling.cancel()
        await asyncio.wait([calling])
        assert not (await call(host, "mock_suite", "echo", message="next")).is_error
    slow, cancelled, _ = read_record(record)[-3:]
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == slow["id"]
