"""The HTTP side of a broker: the dashboard of its sessions, on a loopback port, from when it is first asked for.

It serves no MCP, and no file contains its address: a user who may use the broker's socket asks the broker for a link.
Loaded on demand, since it needs the packages of the extra `http`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct

from switchboard_mcp.gateway.factory import Runtime
from switchboard_mcp.server.call_watch import CallWatch
from switchboard_mcp.server.dashboard.dashboard_access import ADMIN, LINK_TTL_S, Viewer
from switchboard_mcp.server.dashboard.login_link import enable_dashboard
from switchboard_mcp.server.http import auth
from switchboard_mcp.server.http.auth import TokenTable
from switchboard_mcp.server.http.bind import BindAddress
from switchboard_mcp.server.http.front import HttpServer
from switchboard_mcp.server.http.server_info import ServerInfo
from switchboard_mcp.server.http.sockets import format_address, listen
from switchboard_mcp.setup.child_switch import switch_child

LOOPBACK = "127.0.0.1"
# A link that nobody has used by then is not valid any more, so the port can be closed.
CLOSE_AFTER_S = LINK_TTL_S
POLL_S = 30.0


class DashboardLink(Struct, frozen=True, rename="camel"):
    """A link that logs one browser in, once."""

    url: str
    expires_in_seconds: int


class BrokerHttp:
    """The HTTP server of a broker. Closes by itself when nobody has used it for an hour."""

    def __init__(self, runtime: Runtime, watch: CallWatch, joined: Callable[[], int]) -> None:
        self._runtime = runtime
        self._watch = watch
        self._joined = joined
        self._front: HttpServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._address = ""

    async def link(self) -> DashboardLink:
        """Return a new link to the dashboard. Starts the server if it does not run."""
        front = self._front or await self._start()
        dashboard = front.dashboard()
        code = dashboard.access.create_link(Viewer("", ADMIN))
        self._runtime.context.log.info("dashboard.link", who="a user of the broker")
        return DashboardLink(f"http://{self._address}/#{code}", int(LINK_TTL_S))

    async def stop(self) -> None:
        """Close all connections, and wait for that."""
        self._stopped.set()
        if self._serving is not None:
            await self._serving

    async def _start(self) -> HttpServer:
        runtime, log = self._runtime, self._runtime.context.log
        http = runtime.workspace.config.http
        tokens = auth.named_tokens(http.tokens, os.environ)
        token = secrets.token_urlsafe(auth.TOKEN_BYTES)
        for secret in (token, *tokens.values()):
            runtime.context.redactor.register(secret)
        listener = listen(LOOPBACK, 0)
        port: int = listener.getsockname()[1]
        started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        info = ServerInfo(
            port=port, host=LOOPBACK, bind_address=LOOPBACK, pid=os.getpid(), started_at=started
        )
        address = BindAddress(listener, LOOPBACK, "", TokenTable({"": token, **tokens}), info)
        self._watch.keep()
        hide = runtime.context.redactor.register
        front = HttpServer(
            runtime.gateway, http, LOOPBACK, address.tokens, log, joined=self._joined, hide=hide
        )
        runtime.tokens = front
        enable_dashboard(front, address, runtime, switch_child)
        await front.listen(listener)
        self._front, self._address = front, format_address(LOOPBACK, port)
        self._serving = runtime.context.start_task(self._serve(front))
        log.info("dashboard.serving", address=self._address)
        return front

    async def _serve(self, front: HttpServer) -> None:
        """Run until nobody has used the server for a while, or it is stopped."""
        sweeper = self._runtime.context.start_task(front.sweep())
        unused_s = 0.0
        while unused_s < CLOSE_AFTER_S and not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._stopped.wait()
            unused_s = 0.0 if front.is_in_use else unused_s + POLL_S
        self._front = self._runtime.tokens = None
        self._watch.release()
        sweeper.cancel()
        await front.stop()
