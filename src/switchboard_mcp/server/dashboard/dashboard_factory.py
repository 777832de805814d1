"""Creates the dashboard from the running components, when it is first requested."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.dashboard import Dashboard
from switchboard_mcp.server.dashboard.dashboard_access import DashboardAccess, LoginLink, rights
from switchboard_mcp.server.dashboard.history import HistoryRecorder
from switchboard_mcp.server.dashboard.savings_history import SavingsHistory
from switchboard_mcp.server.dashboard.state import DashboardState, SwitchChild

if TYPE_CHECKING:
    from switchboard_mcp.gateway.factory import Runtime
    from switchboard_mcp.server.http.bind import BindAddress
    from switchboard_mcp.server.http.front import HttpServer


def create_dashboard(
    front: HttpServer,
    address: BindAddress,
    runtime: Runtime,
    call_log: CallLog,
    savings: SavingsHistory,
    link: LoginLink,
    switch_child: SwitchChild | None = None,
    history: HistoryRecorder | None = None,
) -> Dashboard:
    """Return the dashboard of a server; `link` logs one browser in."""
    state = DashboardState(
        runtime,
        call_log,
        savings,
        hosts_served=lambda: front.hosts_served,
        sessions=lambda: front.sessions,
        switch_child=switch_child,
        history=history,
    )
    now = asyncio.get_running_loop().time
    access = DashboardAccess(
        address.tokens, lambda: rights(runtime.workspace.config.http.tokens), link, address.info.port, now
    )
    return Dashboard(state, access, runtime.context.log, lambda: front.stopping)
