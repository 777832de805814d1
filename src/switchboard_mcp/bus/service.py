"""Runs the relay of a server. With mail, also claims agent names on the bus before they are registered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.connection_url import hide
from switchboard_mcp.bus.name_registry import NameRegistry
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.inprocess.server_app import ServerApp
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log

# Registering an agent waits for the claim, so an unreachable Redis must not delay it for long.
NAME_TIMEOUT_S = 2.0


def prepare_relay(
    workspace: str,
    app: ServerApp | None,
    settings: BusSettings,
    log: Log,
    register: Callable[[str], None],
    audit: str = "",
) -> Coroutine[Any, Any, None]:
    """Return the relay, to be run as a task. `register` is called with the secrets of the connection to redact."""
    hide(settings.url, register)
    return _run_relay(workspace, app, settings, log, audit)


async def _run_relay(
    workspace: str, app: ServerApp | None, settings: BusSettings, log: Log, audit: str
) -> None:
    """Publish the events of a workspace, and relay the mail of its mail server if there is one, until cancelled."""
    try:
        name_client, relay_client = BusClient(settings, answer_timeout_s=NAME_TIMEOUT_S), BusClient(settings)
        if isinstance(app, MailServer):
            await _relay_mail(app, name_client, relay_client, log, audit)
        else:
            async with await MessageStore.open(workspace, watch=False, mailboxes=False) as store:
                await BusRelay(store, relay_client, log, audit=audit, mail=False).run()
    except SwitchboardError as problem:
        log.error("bus.off", problem=str(problem), note="no events are published")


async def _relay_mail(
    server: MailServer, name_client: BusClient, relay_client: BusClient, log: Log, audit: str
) -> None:
    store = await server.store()
    node = await store.run(nodes.identify)
    names = NameRegistry(store, name_client, node)
    relay = BusRelay(store, relay_client, log, audit=audit)

    async def find_remote(name: str) -> str:
        """Return the other machine that holds this name, or an empty string. If Redis is unreachable, use the last
        known state.
        """
        if not relay.is_unreachable:
            try:
                owner = await names.claim(name)
                return "" if owner == node.id else owner
            except SwitchboardError as problem:
                log.warning("bus.name", agent=name, problem=str(problem))
        presence = server.presence.remote(name)
        return "" if presence is None else presence.node

    server.find_remote = find_remote
    try:
        await relay.run()
    finally:
        server.find_remote = None
        await name_client.close()
