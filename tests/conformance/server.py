#!/usr/bin/env python3
"""The server that the conformance suite is run against: every name the suite knows, on the official SDK.

    python server.py --stdio                  one client, over pipes
    python server.py --http PORT              Streamable HTTP at http://127.0.0.1:PORT/mcp; port 0 takes a free one

`--era legacy|modern|both` narrows it to the `initialize` handshake (up to 2025-11-25) or to 2026-07-28.
Once it listens over HTTP it says its address on stdout.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# It runs as a program, from any folder and in any environment.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import anyio
import uvicorn
from anyio.abc import TaskGroup
from mcp import MCPDeprecationWarning
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler

from tests.conformance.fixture import content
from tests.conformance.fixture.asking_tools import add_asking_tools
from tests.conformance.fixture.changes import Changes
from tests.conformance.fixture.eras import only, refuses_handshake
from tests.conformance.fixture.events import Events
from tests.conformance.fixture.plain_tools import add_plain_tools
from tests.conformance.fixture.tasks import Tasks
from tests.conformance.fixture.toolbox import Toolbox

NAME = "conformance-fixture"


@asynccontextmanager
async def workers(_: Server[TaskGroup]) -> AsyncIterator[TaskGroup]:
    """Yield the group that runs tasks behind calls."""
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


def build() -> Server[TaskGroup]:
    """The server with all its names, for both eras."""
    changes = Changes()
    toolbox = Toolbox()
    add_plain_tools(toolbox, changes)
    add_asking_tools(toolbox)
    tasks = Tasks()
    tasks.add_tools(toolbox)
    prompts = content.Prompts(changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server = Server[TaskGroup](
            NAME,
            version="1.0.0",
            instructions="A server for conformance tests.",
            lifespan=workers,
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
    tasks.serve(server)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


async def over_stdio(server: Server[TaskGroup], era: str) -> None:
    options = server.create_initialization_options(
        NotificationOptions(prompts_changed=True, tools_changed=True)
    )
    async with stdio_server() as (read, write):
        if era == "legacy":
            async with workers(server) as group:
                await serve_loop(server, read, write, lifespan_state=group, init_options=options)
            return
        if era == "modern":
            server.middleware.append(refuses_handshake)
        await server.run(read, write, options)


async def over_http(server: Server[TaskGroup], era: str, port: int) -> None:
    app = server.streamable_http_app(event_store=Events(), retry_interval=100)
    listener = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # h11, since httptools leaves white space around header values, which the suite wants trimmed.
    config = uvicorn.Config(only(app, era), log_level="warning", timeout_graceful_shutdown=1, http="h11")
    await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    road = parser.add_mutually_exclusive_group(required=True)
    road.add_argument("--stdio", action="store_true")
    road.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both")
    args = parser.parse_args()
    # What clients send wrongly on purpose is no news.
    logging.basicConfig(level=logging.ERROR)
    server = build()
    if args.stdio:
        anyio.run(over_stdio, server, args.era)
    else:
        anyio.run(over_http, server, args.era, args.http)


if __name__ == "__main__":
    main()
