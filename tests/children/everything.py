"""A server on the official SDK that uses everything a server can: `everything.py --era legacy|modern|both`, over pipes.

Its tools ask their client, report, log, wait, and change what there is. What one call has seen another one tells, so
that a test can wait for it. Over every other transport it is `everything_web`.
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
from mcp.server.subscriptions import ListenHandler, ResourcesListChanged, ResourceUpdated

from tests.conformance.fixture import content
from tests.conformance.fixture.asking import (
    Ask,
    Context,
    Said,
    converse,
    form,
    is_modern,
    roots,
    sample,
    told,
)
from tests.conformance.fixture.asking_tools import add_asking_tools
from tests.conformance.fixture.blocks import result, text
from tests.conformance.fixture.changes import Changes
from tests.conformance.fixture.eras import refuses_handshake
from tests.conformance.fixture.plain_tools import add_plain_tools
from tests.conformance.fixture.toolbox import Toolbox

WATCHED = "test://watched-resource"
LEVELS: tuple[types.LoggingLevel, ...] = ("debug", "info", "warning", "error")
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


class Rooms:
    """Calls that wait for one another, so that several clients are at work at once."""

    def __init__(self) -> None:
        self._rooms: dict[str, tuple[set[str], anyio.Event]] = {}

    async def together(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        """With another one in the same room: report, log and ask, with one's own name in everything."""
        arguments = params.arguments or {}
        name = arguments["name"]
        names, both = self._rooms.setdefault(arguments["room"], (set(), anyio.Event()))
        names.add(name)
        if len(names) > 1:
            both.set()
        await both.wait()
        if not params.input_responses:
            await ctx.session.report_progress(1, 2, name)
            await _say(ctx, "warning", name)

        def ask(said: Said) -> Any:
            if "who" not in said.answers:
                return Ask({"who": form(name, {"name": {"type": "string"}})})
            return result(text(f"{name}: {told(said.answers['who'])}"))

        return await converse(ctx, params, ask)


class Growing:
    """Lists that become longer. Each change is told to those who listen, and to the connection it came from."""

    def __init__(self, toolbox: Toolbox, changes: Changes) -> None:
        self._toolbox = toolbox
        self._changes = changes
        self._prompts = content.Prompts(changes)
        self._grown: dict[str, list[str]] = {"prompt": [], "resource": []}

    async def grow(self, ctx: Context, arguments: Arguments) -> types.CallToolResult:
        kind, name = arguments["kind"], arguments["name"]
        if kind == "tool":
            self._toolbox.add(name, "Was not there before", _reports)
            await self._changes.tools(ctx)
            return result(text("grown"))
        self._grown[kind].append(name)
        if kind == "prompt":
            await self._changes.prompts(ctx)
            return result(text("grown"))
        await self._changes.bus.publish(ResourcesListChanged())
        if not is_modern(ctx):
            await ctx.session.send_resource_list_changed()
        return result(text("grown"))

    async def prompts(self, ctx: Context, params: Any) -> types.ListPromptsResult:
        listed = await self._prompts.list(ctx, params)
        listed.prompts += [types.Prompt(name=name) for name in self._grown["prompt"]]
        return listed

    async def resources(self, ctx: Context, params: Any) -> types.ListResourcesResult:
        listed = await content.list_resources(ctx, params)
        listed.resources += [
            types.Resource(uri=f"grown://{name}", name=name) for name in self._grown["resource"]
        ]
        return listed


def add_tools(toolbox: Toolbox, changes: Changes, growing: Growing) -> None:
    waiting = Waiting()
    toolbox.add("wait", "Waits until it is cancelled", waiting.wait)
    toolbox.add("begun", "Answers when `wait` has begun", waiting.begun)
    toolbox.add("cancelled", "Answers when `wait` was cancelled", waiting.cancelled)
    toolbox.add("version", "Tells the version that is spoken", _version)
    toolbox.add("report", "Reports progress three times", _reports)
    toolbox.add("log", "Logs at every level", _log)
    toolbox.add("mark", "Has a tool, with a mark for a header or without, and tells nobody", _mark(toolbox))
    toolbox.add("grow", "Makes a list longer", growing.grow)
    toolbox.add_whole("together", "Speaks when two are in a room", Rooms().together)
    toolbox.add("touch", "Changes the watched resource", _touch(changes))
    toolbox.add_asking("ask_url", "Sends the user to a page", _ask_url)
    toolbox.add_asking("ask_all", "Asks three things at once", _ask_all)
    toolbox.add_asking("ask_twice", "Asks, and asks again", _ask_twice)


async def _version(ctx: Context, arguments: Arguments) -> types.CallToolResult:
    return result(text(ctx.protocol_version))


async def _reports(ctx: Context, arguments: Arguments) -> types.CallToolResult:
    for step in (1, 2, 3):
        await ctx.session.report_progress(step, 3, f"step {step}")
    return result(text("reported"))


async def _log(ctx: Context, arguments: Arguments) -> types.CallToolResult:
    for level in LEVELS:
        await _say(ctx, level, {"level": level})
    return result(text("logged"))


async def _say(ctx: Context, level: types.LoggingLevel, data: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await ctx.session.send_log_message(level, data, logger="kid", related_request_id=ctx.request_id)


def _mark(toolbox: Toolbox) -> Any:
    async def mark(ctx: Context, arguments: Arguments) -> types.CallToolResult:
        region = {"type": "string", **({"x-mcp-header": "Region"} if arguments["marked"] else {})}
        schema = {"type": "object", "properties": {"region": region}}
        toolbox.add(arguments["name"], "May want a header", _tells_region, schema)
        return result(text("marked"))

    return mark


async def _tells_region(ctx: Context, arguments: Arguments) -> types.CallToolResult:
    return result(text(arguments["region"]))


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


def build(era: str) -> Server[Any]:
    """The server, for clients of one era or of both; over HTTP it is `eras.only` that narrows it."""
    changes = Changes()
    toolbox = Toolbox()
    growing = Growing(toolbox, changes)
    add_plain_tools(toolbox, changes)
    add_asking_tools(toolbox)
    add_tools(toolbox, changes, growing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server = Server[Any](
            "everything",
            version="1.0.0",
            instructions="Use everything.",
            on_list_tools=toolbox.list,
            on_call_tool=toolbox.call,
            on_list_resources=growing.resources,
            on_list_resource_templates=content.list_templates,
            on_read_resource=content.read_resource,
            on_subscribe_resource=content.accept,
            on_unsubscribe_resource=content.accept,
            on_subscriptions_listen=ListenHandler(changes.bus),
            on_list_prompts=growing.prompts,
            on_get_prompt=content.Prompts(changes).get,
            on_completion=content.complete,
            on_set_logging_level=content.accept,
        )
    if era == "modern":
        server.middleware.append(refuses_handshake)
    return server


async def converse_over(server: Server[Any], era: str, read: Any, write: Any) -> None:
    """One client, over streams that carry everything."""
    options = server.create_initialization_options(
        NotificationOptions(prompts_changed=True, tools_changed=True, resources_changed=True)
    )
    if era == "legacy":
        await serve_loop(server, read, write, lifespan_state={}, init_options=options)
    else:
        await server.run(read, write, options)


async def serve(era: str) -> None:
    async with stdio_server() as (read, write):
        await converse_over(build(era), era, read, write)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both")
    logging.basicConfig(level=logging.ERROR)
    anyio.run(serve, parser.parse_args().era)


if __name__ == "__main__":
    main()
