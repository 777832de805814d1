"""A server on the official SDK that uses everything a server can: `everything.py --era legacy|modern|both`, over pipes.

Its tools ask their client, report, log, wait, and change what there is. What one call has seen another one tells, so
that a test can wait for it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

# It runs as a program, from any folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import anyio
import mcp_types as types
from mcp import MCPDeprecationWarning
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler, ResourceUpdated

from tests.conformance.fixture import content
from tests.conformance.fixture.asking import Ask, Context, Said, form, is_modern, roots, sample, told
from tests.conformance.fixture.asking_tools import add_asking_tools
from tests.conformance.fixture.blocks import result, text
from tests.conformance.fixture.changes import Changes
from tests.conformance.fixture.eras import refuses_handshake
from tests.conformance.fixture.plain_tools import add_plain_tools
from tests.conformance.fixture.toolbox import Toolbox

WATCHED = "test://watched-resource"
Arguments = Mapping[str, Any]


class Waiting:
    """Calls that wait until they are cancelled, by name."""

    def __init__(self) -> None:
        self._begun: dict[str, anyio.Event] = {}
        self._cancelled: dict[str, anyio.Event] = {}

    async def wait(self, ctx: Context, arguments: Arguments) -> types.CallToolResult:
        name = arguments["name"]
        self._begun.setdefault(name, anyio.Event()).set()
        try:
            await anyio.sleep_forever()
        finally:
            self._cancelled.setdefault(name, anyio.Event()).set()
        return result(text("never"))

    async def begun(self, ctx: Context, arguments: Arguments) -> types.CallToolResult:
        await self._begun.setdefault(arguments["name"], anyio.Event()).wait()
        return result(text("begun"))

    async def cancelled(self, ctx: Context, arguments: Arguments) -> types.CallToolResult:
        await self._cancelled.setdefault(arguments["name"], anyio.Event()).wait()
        return result(text("cancelled"))


def add_tools(toolbox: Toolbox, changes: Changes) -> None:
    waiting = Waiting()
    toolbox.add("wait", "Waits until it is cancelled", waiting.wait)
    toolbox.add("begun", "Answers when `wait` has begun", waiting.begun)
    toolbox.add("cancelled", "Answers when `wait` was cancelled", waiting.cancelled)
    toolbox.add("log", "Logs at every level", _log)
    toolbox.add("touch", "Changes the watched resource", _touch(changes))
    toolbox.add_asking("ask_url", "Sends the user to a page", _ask_url)
    toolbox.add_asking("ask_all", "Asks three things at once", _ask_all)
    toolbox.add_asking("ask_twice", "Asks, and asks again", _ask_twice)


async def _log(ctx: Context, arguments: Arguments) -> types.CallToolResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        for level in ("debug", "info", "warning", "error"):
            await ctx.session.send_log_message(
                level, {"level": level}, logger="kid", related_request_id=ctx.request_id
            )
    return result(text("logged"))


def _touch(changes: Changes) -> Any:
    async def touch(ctx: Context, arguments: Arguments) -> types.CallToolResult:
        await changes.bus.publish(ResourceUpdated(uri=WATCHED))
        if not is_modern(ctx):
            await ctx.session.send_resource_updated(WATCHED)
        return result(text("touched"))

    return touch


def _ask_url(said: Said) -> Any:
    if "page" not in said.answers:
        id = None if said.modern else "visit-1"
        params = types.ElicitRequestURLParams(
            message="Please visit", url="https://example.com/", elicitation_id=id
        )
        return Ask({"page": types.ElicitRequest(params=params)}, "visiting")
    return result(text(told(said.answers["page"])))


def _ask_all(said: Said) -> Any:
    wanted: dict[str, types.InputRequest] = {
        "name": form("Name?", {"name": {"type": "string"}}),
        "model": sample("Hi"),
        "folders": roots(),
    }
    if any(key not in said.answers for key in wanted):
        return Ask(wanted)
    return result(text("; ".join(told(said.answers[key]) for key in wanted)))


def _ask_twice(said: Said) -> Any:
    if said.state is None and "one" not in said.answers:
        return Ask({"one": form("One?", {"name": {"type": "string"}})}, "one")
    if "two" not in said.answers:
        return Ask({"two": form("Two?", {"name": {"type": "string"}})}, "two")
    return result(text(told(said.answers["two"])))


def build() -> Server[Any]:
    changes = Changes()
    toolbox = Toolbox()
    add_plain_tools(toolbox, changes)
    add_asking_tools(toolbox)
    add_tools(toolbox, changes)
    prompts = content.Prompts(changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        return Server[Any](
            "everything",
            version="1.0.0",
            instructions="Use everything.",
            on_list_tools=toolbox.list,
            on_call_tool=toolbox.call,
            on_list_resources=content.list_resources,
            on_list_resource_templates=content.list_templates,
            on_read_resource=content.read_resource,
            on_subscribe_resource=content.accept,
            on_unsubscribe_resource=content.accept,
            on_subscriptions_listen=ListenHandler(changes.bus),
            on_list_prompts=prompts.list,
            on_get_prompt=prompts.get,
            on_completion=content.complete,
            on_set_logging_level=content.accept,
        )


async def serve(era: str) -> None:
    server = build()
    options = server.create_initialization_options(
        NotificationOptions(prompts_changed=True, tools_changed=True, resources_changed=True)
    )
    async with stdio_server() as (read, write):
        if era == "legacy":
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
            return
        if era == "modern":
            server.middleware.append(refuses_handshake)
        await server.run(read, write, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both")
    logging.basicConfig(level=logging.ERROR)
    anyio.run(serve, parser.parse_args().era)


if __name__ == "__main__":
    main()
