"""The one-time link to the dashboard, and its lazy creation.

Until the dashboard is first requested, only the modules that collect its figures are loaded. The code is in the URL's
fragment, which neither proxies nor other pages get to see.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.savings_history import SavingsHistory
from switchboard_mcp.server.http.auth import TOKEN_BYTES
from switchboard_mcp.server.http.sockets import format_address

if TYPE_CHECKING:
    from switchboard_mcp.gateway.factory import Runtime
    from switchboard_mcp.server.dashboard.dashboard import Dashboard
    from switchboard_mcp.server.http.bind import BindAddress
    from switchboard_mcp.server.http.front import HttpServer


def enable_dashboard(front: HttpServer, address: BindAddress, runtime: Runtime) -> str:
    """Let the HTTP server create the dashboard on first use. Return the link that logs one browser in."""
    code = secrets.token_urlsafe(TOKEN_BYTES)
    call_log = runtime.context.recorder
    assert isinstance(call_log, CallLog)
    front.timelines = call_log.timelines
    front.savings = savings = SavingsHistory(front.started_ms)

    def open_dashboard() -> Dashboard:
        from switchboard_mcp.server.dashboard.access import DashboardAccess, rights
        from switchboard_mcp.server.dashboard.dashboard import Dashboard
        from switchboard_mcp.server.dashboard.state import DashboardState

        state = DashboardState(
            runtime,
            call_log,
            savings,
            hosts_served=lambda: front.hosts_served,
            sessions=lambda: front.sessions,
        )
        now = asyncio.get_running_loop().time
        allowed = rights(runtime.workspace.config.http.tokens)
        access = DashboardAccess(address.tokens, allowed, code, address.info.port, now)
        return Dashboard(state, access, runtime.context.log, lambda: front.stopping)

    front.open_dashboard = open_dashboard
    return f"http://{format_address(address.info.host, address.info.port)}/#{code}"
