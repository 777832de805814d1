"""Runs Switchboard over HTTP, for any number of clients, with the dashboard.

Loaded only for `switchboard serve --http`, since it needs the packages of the extra `http`. `app` creates the parts
that do not depend on the transport.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from switchboard_mcp.app import (
    END_SIGNALS,
    RELOAD_AFTER_S,
    SHARED_CAPABILITIES,
    CommandOptions,
    log_warnings,
    prepare,
    run,
    running,
    start_reloader,
)
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.features import start_bridges
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.login_link import enable_dashboard
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.bind import BindAddress, bind
from switchboard_mcp.server.http.front import HttpServer
from switchboard_mcp.server.http.sessions import check_replica_name
from switchboard_mcp.setup.child_switch import switch_child

if TYPE_CHECKING:
    pass

# The server speaks plain HTTP.
EXPOSED_HINT = (
    "Other machines can connect, and tokens are not encrypted. Listen on 127.0.0.1, or use a proxy with TLS."
)


async def serve_http(
    address: BindAddress, workspace: Workspace, log: Log, redactor: Redactor, options: CommandOptions
) -> int:
    """Serve HTTP clients until a signal arrives."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in END_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, SIGHUP stays ignored
            loop.add_signal_handler(number, done.set)
    profile = options.profile
    async with running(workspace, log, redactor, profile=profile, recorder=CallLog) as switchboard:
        services = switchboard.context
        services.shared_capabilities = SHARED_CAPABILITIES
        services.default_principal = switchboard.gateway.default_principal = "http"
        front = HttpServer(
            switchboard.gateway,
            workspace.config.http,
            address.host,
            address.tokens,
            log,
            hide=redactor.register,
        )
        switchboard.tokens = front
        await front.listen(address.listener)
        link = enable_dashboard(front, address, switchboard, switch_child)
        sweeper = services.start_task(front.sweep())
        relay = start_bridges(switchboard, log, redactor)
        front.bus_folder = workspace.folder if relay is not None else ""
        server_info.write(address.folder, address.info)
        log.info("serving", url=address.url, auth=address.token_file, dashboard=link)
        if options.reload:  # not after the first host: the dashboard may be open before there is one
            loop.call_later(RELOAD_AFTER_S, start_reloader, switchboard, options)
        if address.is_exposed:
            log.warning("http.exposed", listening=address.listening, hint=EXPOSED_HINT)
        try:
            await done.wait()
            log.info("stopping")
        finally:
            server_info.remove(address.folder)
            auth.remove_token(address.folder, address.tokens)
            await front.stop()
            sweeper.cancel()
            if relay is not None:
                relay.cancel()
    return 0


def serve_over_http(options: CommandOptions, address: str) -> int:
    """Run `switchboard serve --http`. An empty address means the one in the config."""
    options = replace(options, include_user=False)
    check_replica_name(os.environ)
    redactor, log, workspace = prepare(options)
    log_warnings(log, workspace)
    bound = bind(workspace, address, os.environ, redactor.register, log)
    return run(lambda: serve_http(bound, workspace, log, redactor, options))
