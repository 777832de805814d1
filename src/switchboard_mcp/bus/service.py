"""Runs the publisher of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

from switchboard_mcp.bus.connection_url import hide
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.inprocess.server_app import ServerApp
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.observability.log import Log


def prepare_relay(
    workspace: str,
    app: ServerApp | None,
    settings: BusSettings,
    log: Log,
    register: Callable[[str], None],
    audit: str = "",
) -> Coroutine[Any, Any, None]:
    """Return the publisher, to be run as a task. `register` is called with the secrets of the connection to redact."""
    hide(settings.url, register)
    return _run_relay(workspace, app, settings, log, audit)


async def _run_relay(
    workspace: str, app: ServerApp | None, settings: BusSettings, log: Log, audit: str
) -> None:
    """Publish the events of a workspace, with those of its mail server if there is one, until cancelled."""
    try:
        store = await app.store() if isinstance(app, MailServer) else None
        await BusRelay(os.path.join(workspace, FOLDER), BusClient(settings), log, audit, store).run()
    except SwitchboardError as problem:
        log.error("bus.off", problem=str(problem), note="no events are published")
