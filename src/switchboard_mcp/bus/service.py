"""The bus beside a message desk: runs the relay of its workspace, and asks for names before anybody takes them.

Owns putting the parts together for a server; what they do is theirs.
"""

from __future__ import annotations

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.name_registry import NameRegistry
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.inprocess.server_app import ServerApp
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.observability.log import Log

# Whoever registers does not wait long for a Redis that may be away.
NAME_TIMEOUT_S = 2.0


async def run_relay(program: ServerApp, settings: BusSettings, log: Log, audit: str = "") -> None:
    """Carry the mail of the workspace whose desk this is, until it is cancelled."""
    desk = program
    if not isinstance(desk, MailServer):
        return
    store = await desk.store()
    node = await store.run(nodes.identify)
    try:
        asking, carrying = BusClient(settings, answer_timeout_s=NAME_TIMEOUT_S), BusClient(settings)
    except SwitchboardError as problem:
        log.error("bus.off", problem=str(problem))
        return
    names = NameRegistry(store, asking, node)
    relay = BusRelay(store, carrying, log, audit=audit)

    async def taken(name: str) -> str:
        """On which other machine an agent of this name lives. While Redis is away, what was known last counts."""
        if not relay.is_unreachable:
            try:
                owner = await names.claim(name)
                return "" if owner == node.id else owner
            except SwitchboardError as problem:
                log.warning("bus.name", agent=name, problem=str(problem))
        stay = desk.presence.remote(name)
        return "" if stay is None else stay.node

    desk.find_remote = taken
    try:
        await relay.run()
    finally:
        desk.find_remote = None
        await asking.close()
