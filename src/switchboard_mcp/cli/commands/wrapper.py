"""`switchboard wrapper`: serve a wrapped child over stdio. This is what its file runs.

Connects three parts: a Switchboard with the original as its only child, a client in this process that uses its suite
and relays the original's requests, and the server that the Switchboard in front talks to. Config changes are applied
live, as they are there.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from msgspec import UNSET, Raw, structs

from switchboard_mcp import __version__
from switchboard_mcp.app import Switchboard, running
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.ask.host_access import api_model, find_key, preload
from switchboard_mcp.ask.wrapper_app import Wrapper
from switchboard_mcp.ask.wrapper_server import AskingServer
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.local_client import LocalClient
from switchboard_mcp.cli.parser import Command, flag, positional
from switchboard_mcp.cli.toolbox import SuiteToolbox, load_originals
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import ASK_SUBTOOL
from switchboard_mcp.config.wrapped_children import read_role, wrapper_folder
from switchboard_mcp.errors import KNOWN_FAILURE, SwitchboardError, refused
from switchboard_mcp.gateway.reload import Reloader
from switchboard_mcp.gateway.session import local_host
from switchboard_mcp.inprocess.server_app import ClientIdentity, ToolTable
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.stdio import take_over_stdio
from switchboard_mcp.transport.memory import MemoryTransport, pair
from switchboard_mcp.transport.stdio import PipeTransport

# Capabilities that only the host in front can provide.
PASSED_ON = ("sampling", "elicitation")
StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def run(invocation: Invocation) -> int:
    """Serve until the host disconnects."""
    redactor = Redactor()
    if key := find_key(os.environ):
        redactor.register(key)
    log = Log(level=invocation.options.log_level, style=invocation.options.log_style, redactor=redactor)
    workspace = load_originals(invocation.options, invocation.args.child)
    if invocation.args.governed and workspace.config.governance.mode != "governed":
        message = (
            f"{workspace.source}: governance.mode is no longer `governed`, as it was when this was started."
        )
        raise refused("config_invalid", message, hint="Restart Switchboard.")
    return run_loop(lambda: serve(invocation, workspace, log, redactor))


COMMAND = Command(
    "wrapper CHILD [OPTIONS]",
    "Serve a wrapped child over stdio. Its file runs this; there is no need to run it by hand.",
    run=run,
    arguments=[
        positional("child", "name of a child"),
        flag("--passthrough", "also expose the child's own subtools, as ask.passthrough does"),
        flag("--governed", "refuse to serve unless the config enables governed mode"),
    ],
)


async def serve(invocation: Invocation, workspace: Workspace, log: Log, redactor: Redactor) -> int:
    """Serve the one child of the workspace."""
    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    (spec,) = workspace.children
    settings = workspace.config.ask
    if invocation.args.passthrough:
        settings = structs.replace(settings, passthrough=True)
    api = api_model(settings, os.environ)
    role = read_role(wrapper_folder(workspace.folder, spec))
    async with running(workspace, log, redactor) as switchboard, attach_relay(switchboard) as relay:
        toolbox = SuiteToolbox(switchboard.gateway, spec.name, relay.connect)
        program = Wrapper(toolbox, settings, role=role, api=api)
        relay.server = open_server(program, toolbox, switchboard, done.set)
        await relay.server.open(ClientIdentity())
        reloader = Reloader(
            switchboard, lambda: load_originals(invocation.options, spec.name), invocation.options.config
        )
        aside = [switchboard.context.start_task(reloader.run())]
        if api is not None:
            aside.append(switchboard.context.start_task(preload(api)))
        await done.wait()
        for task in aside:
            task.cancel()
        await relay.server.close()
        if api is not None:
            await api.close()
    return 0


def open_server(
    program: Wrapper, toolbox: SuiteToolbox, switchboard: Switchboard, gone: Callable[[], None]
) -> AskingServer:
    """Open the server on our own stdin and stdout."""
    services = switchboard.context

    def wrong(where: str, problem: BaseException) -> None:
        services.log.error("internal", tool=where, problem=repr(problem))

    read_fd, write_fd = take_over_stdio()
    link = PipeTransport(
        services.loop,
        read_fd,
        write_fd,
        services.cork,
        mirror=True,
        on_error=lambda problem: wrong("", problem),
    )
    through = toolbox if program.settings.passthrough else None
    menu = ToolTable(program, __version__)
    return AskingServer(services.loop, link, menu, services.start_task, wrong, gone, through)


class ClientRequestRelay(LocalClient):
    """The client of the original, which relays its requests to the host in front."""

    server: AskingServer

    def __init__(self, link: MemoryTransport, start_task: StartTask) -> None:
        super().__init__(link, None)
        self._start_task = start_task
        self._introduced = False

    async def connect(self) -> ClientRequestRelay:
        """Initialize once, when the capabilities of the host in front are known."""
        if not self._introduced:
            able = self.server.capabilities
            self.capabilities = {name: able[name] for name in PASSED_ON if name in able}
            await self.initialize()
            self._introduced = True
        return self

    def request_received(self, message: RpcMessage) -> None:
        """Relay a request of the original."""
        self._start_task(self._relay(message))

    async def _relay(self, message: RpcMessage) -> None:
        assert message.id is not UNSET
        params = message.params if message.params is not UNSET else Raw(b"{}")
        try:
            answer = await self.server.request(str(message.method), bytes(params))
        except SwitchboardError as problem:
            self._link.send(jsonrpc.error(message.id, KNOWN_FAILURE, problem.failure.message))
        else:
            self._link.send(jsonrpc.result(message.id, answer))


@asynccontextmanager
async def attach_relay(switchboard: Switchboard) -> AsyncIterator[ClientRequestRelay]:
    """Attach a client to the Switchboard in this process, not yet initialized."""
    ours, theirs = pair(asyncio.get_running_loop())
    session = switchboard.gateway.attach(theirs, lambda _session: None, local_host(""))
    session.whole_results = True  # the host in front has its own limit
    session.principal = ASK_SUBTOOL  # the audit record distinguishes planned calls from those of a host
    try:
        yield ClientRequestRelay(ours, switchboard.context.start_task)
    finally:
        switchboard.gateway.close(session)
        ours.close()
