"""The one-time link to the dashboard, and its lazy creation.

Until the dashboard is first requested, only the modules that collect its figures are loaded. The code is in the URL's
fragment, which neither proxies nor other pages get to see.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.dashboard_access import LoginLink
from switchboard_mcp.server.dashboard.history import HistoryFile, HistoryRecorder
from switchboard_mcp.server.dashboard.savings_history import SavingsHistory
from switchboard_mcp.server.http.auth import TOKEN_BYTES
from switchboard_mcp.server.http.sockets import format_address
from switchboard_mcp.system.user_folders import workspace_state_folder

if TYPE_CHECKING:
    from switchboard_mcp.gateway.factory import Runtime
    from switchboard_mcp.server.dashboard.state import SwitchChild
    from switchboard_mcp.server.http.bind import BindAddress
    from switchboard_mcp.server.http.front import HttpServer


def enable_dashboard(
    front: HttpServer, address: BindAddress, runtime: Runtime, switch_child: SwitchChild | None = None
) -> str:
    """Let the HTTP server create the dashboard on first use. Return the link that logs one browser in.

    `switch_child` enables or disables a child in its file.
    """
    # Created here and not with the dashboard: the link expires although nobody opens it.
    link = LoginLink(secrets.token_urlsafe(TOKEN_BYTES), asyncio.get_running_loop().time())
    call_log = runtime.context.recorder
    assert isinstance(call_log, CallLog)
    front.timelines = call_log.timelines
    savings = SavingsHistory(front.started_ms)
    history = _open_history(runtime, call_log, savings)
    front.sample_savings = partial(_sample, runtime, call_log, savings, history)

    front.open_dashboard = lambda: _dashboard_factory().create_dashboard(
        front, address, runtime, call_log, savings, link, switch_child, history
    )
    if runtime.workspace.config.dashboard.call_details == "always":
        front.dashboard().state.open_details()
    return f"http://{format_address(address.info.host, address.info.port)}/#{link.code}"


async def _sample(
    runtime: Runtime, call_log: CallLog, savings: SavingsHistory, history: HistoryRecorder | None
) -> None:
    """Collect the savings, and write the history, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(savings.sample_forever(runtime.gateway, call_log))
        if history is not None:
            tasks.create_task(history.run())


def _open_history(runtime: Runtime, call_log: CallLog, savings: SavingsHistory) -> HistoryRecorder | None:
    """Return what keeps the history; None if it is off, or there is no state folder."""
    settings, context = runtime.workspace.config.dashboard, runtime.context
    folder = (
        workspace_state_folder(context.environ, "dashboard", context.workspace) if settings.history else ""
    )
    if not folder:
        return None
    file = HistoryFile(os.path.join(folder, "history.db"), settings.history_bytes, secrets.token_hex(8))
    return HistoryRecorder(file, call_log, savings, context.log)


def _dashboard_factory() -> ModuleType:
    """Load the code of the dashboard, and with it the web framework."""
    from switchboard_mcp.server.dashboard import dashboard_factory

    return dashboard_factory
