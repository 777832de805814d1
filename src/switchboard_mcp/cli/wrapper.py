"""`switchboard wrapper`: what the file of a wrapped child runs. An MCP server over stdio, the original behind it."""

from __future__ import annotations

import asyncio
import os
import signal

from switchboard_mcp import __version__
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.app import running
from switchboard_mcp.ask.hosts import api_model, find_key
from switchboard_mcp.ask.program import Wrapper
from switchboard_mcp.ask.server import AskingServer
from switchboard_mcp.cli.host import connected
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.toolbox import SuiteToolbox, originals
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.wrapped import read_role
from switchboard_mcp.core.redaction import Redactor
from switchboard_mcp.edge.stdio import take_over_stdio
from switchboard_mcp.observe.log import Log
from switchboard_mcp.transport.pipes import PipeLink
from switchboard_mcp.transport.program import Caller, Menu


def run(asked: Invocation) -> int:
    """Serve until the host goes."""
    redactor = Redactor()
    if key := find_key(os.environ):
        redactor.register(key)
    log = Log(level=asked.options.log_level, style=asked.options.log_style, redactor=redactor)
    workspace = originals(asked.options, asked.given.child)
    return run_loop(lambda: serve(workspace, os.getcwd(), log, redactor))


async def serve(workspace: Workspace, folder: str, log: Log, redactor: Redactor) -> int:
    """Serve the one child of the workspace. `folder` is where its wrapper stands."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, done.set)
    settings = workspace.config.ask
    api = api_model(settings, os.environ)
    # What was locked is the wrapper; the switch of governed mode has been looked at.
    async with running(workspace, log, redactor, pinned=False) as switchboard:
        services = switchboard.services
        (suite,) = switchboard.gateway.suites.values()
        async with connected(switchboard.gateway) as host:
            toolbox = SuiteToolbox(suite, host)
            program = Wrapper(toolbox, settings, log, role=read_role(folder), api=api)

            def wrong(where: str, problem: BaseException) -> None:
                log.error("internal", tool=where, problem=repr(problem))

            read_fd, write_fd = take_over_stdio()
            link = PipeLink(
                loop,
                read_fd,
                write_fd,
                services.cork,
                mirror=True,
                on_error=lambda problem: wrong("", problem),
            )
            server = AskingServer(
                loop,
                link,
                Menu(program, __version__),
                services.start_task,
                wrong,
                done.set,
                toolbox if settings.passthrough else None,
            )
            await server.open(Caller())
            warming = services.start_task(program.warm())
            await done.wait()
            warming.cancel()
            await server.close()
            if api is not None:
                await api.close()
    return 0
