#!/usr/bin/env python3
"""The client that the conformance suite starts: `client.py [--direct] URL`.

It does what the scenario in MCP_CONFORMANCE_SCENARIO needs, as the host of a Switchboard whose one child is the server
at the URL; with `--direct` the official SDK's client connects to that server itself, which gives the list to compare
with.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

# It runs as a program, from any folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client import session
from mcp.client.stdio import stdio_client

from tests.conformance.processes import SWITCHBOARD, configure
from tests.patience import PATIENCE_S

# After ten seconds without an answer the SDK takes a server for one of the handshake era, also if it is only slow.
session.DISCOVER_TIMEOUT_SECONDS = PATIENCE_S

VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


# --- what the scenarios want ---------------------------------------------------------------------------------------


async def lists(host: Client) -> None:
    await host.list_tools()


async def adds(host: Client) -> None:
    await host.list_tools()
    await host.call_tool("add_numbers", {"a": 5, "b": 3})


async def calls_listed(host: Client) -> None:
    """Every tool that is listed, with something for each argument."""
    for tool in (await host.list_tools()).tools:
        wanted = tool.input_schema.get("properties", {})
        await host.call_tool(tool.name, {name: _something(schema) for name, schema in wanted.items()})


async def calls_given(host: Client) -> None:
    """The calls that the scenario itself names."""
    await host.list_tools()
    for call in CONTEXT["toolCalls"]:
        await host.call_tool(call["name"], call["arguments"])


async def uses_everything(host: Client) -> None:
    """Every method that has a header of its own."""
    await calls_listed(host)
    for resource in (await host.list_resources()).resources:
        await host.read_resource(resource.uri)
    for prompt in (await host.list_prompts()).prompts:
        await host.get_prompt(prompt.name)


async def calls_between_rounds(host: Client) -> None:
    """The unrelated call must not carry what belongs to the others, also while they run."""
    await host.list_tools()
    names = ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type")
    await asyncio.gather(*(host.call_tool(name, {}) for name in names))


async def echoes_schema(host: Client) -> None:
    tools = {tool.name: tool for tool in (await host.list_tools()).tools}
    await host.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": lists,
    "tools_call": adds,
    "elicitation-sep1034-client-defaults": calls_listed,
    "sse-retry": calls_listed,
    "request-metadata": lists,
    "http-standard-headers": uses_everything,
    "http-custom-headers": calls_given,
    "http-invalid-tool-headers": calls_listed,
    "sep-2322-client-request-state": calls_between_rounds,
    "json-schema-ref-no-deref": lists,
    "json-schema-2020-12-preservation": echoes_schema,
}


def _something(schema: dict[str, Any]) -> Any:
    kinds = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return kinds.get(schema.get("type", ""))


# --- the host ------------------------------------------------------------------------------------------------------


async def accept_defaults(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The user takes the form as it is."""
    properties = getattr(params, "requested_schema", {}).get("properties", {})
    content = {name: field.get("default", _something(field)) for name, field in properties.items()}
    return types.ElicitResult(action="accept", content=content)


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Hello"), model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


async def perform(target: Any) -> None:
    host = Client(
        target,
        # A host of the era that the run is about.
        mode="auto" if VERSION >= "2026-07-28" else "legacy",
        elicitation_callback=accept_defaults,
        sampling_callback=sample,
        list_roots_callback=roots,
    )
    async with host:
        await SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]](host)


def main() -> None:
    *options, url = sys.argv[1:]
    if "--direct" in options:
        asyncio.run(perform(url))
        return
    with ExitStack() as stack:
        workspace = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))
        configure(workspace, {"type": "http", "url": url})
        environment = {**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}
        switchboard = StdioServerParameters(
            command=SWITCHBOARD, args=["--workspace", str(workspace)], env=environment
        )
        asyncio.run(perform(stdio_client(switchboard)))


if __name__ == "__main__":
    main()
