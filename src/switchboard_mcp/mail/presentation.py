"""Messages and agents as shown to a model: short, to save tokens."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.agent_registry import Agent
from switchboard_mcp.mail.messages import Claimed, MailMessage, StoredMessage
from switchboard_mcp.mail.presence import Presence
from switchboard_mcp.mail.store.reading import Waiting
from switchboard_mcp.mail.terminal.styling import stored_styling

if TYPE_CHECKING:
    from switchboard_mcp.mail.server import MailServer
    from switchboard_mcp.mail.store.store import MessageStore

# Enough to see what a message is about; claiming returns all of it.
PREVIEW_CHARS = 280


def summary_view(stored: StoredMessage) -> dict[str, object]:
    """Return a message with a preview of its payload."""
    message = stored.message
    cut = len(message.payload) > PREVIEW_CHARS
    view: dict[str, object] = {
        "id": message.id,
        "from": message.sender,
        "action": message.action,
        "payload": message.payload[:PREVIEW_CHARS] + "…" if cut else message.payload,
        "createdAt": message.created_at,
        "order": stored.order,
    }
    if message.subject:
        view["subject"] = message.subject[:PREVIEW_CHARS]
    if cut:
        view["chars"] = len(message.payload)
    if stored.place != "inbox":
        view["place"] = stored.place
    if not stored.verified:
        view["verified"] = False
    if stored.outcome:
        view["outcome"] = stored.outcome
    return view | _optional_fields(message)


def claimed_view(claimed: Claimed) -> dict[str, object]:
    """Return a claimed message in full."""
    view = message_view(claimed.message) | {"fence": claimed.fence, "expiresAt": claimed.expires_at}
    return {**view, "deliveries": claimed.deliveries} if claimed.deliveries > 1 else view


def message_view(message: MailMessage) -> dict[str, object]:
    """Return a message in full."""
    view: dict[str, object] = {
        "id": message.id,
        "from": message.sender,
        "action": message.action,
        "payload": message.payload,
        "createdAt": message.created_at,
    }
    if message.persona:
        view["persona"] = message.persona
    if message.metadata.get("attachment"):
        view["attachment"] = message.metadata["attachment"]
    if not message.verified:
        view["verified"] = False
    plain = {
        key: value
        for key, value in message.metadata.items()
        if key not in ("seal", "verified", "priority", "ackBy", "attachment")
    }
    if plain:
        view["metadata"] = plain
    return view | _optional_fields(message)


def _optional_fields(message: MailMessage) -> dict[str, object]:
    view: dict[str, object] = {}
    if message.reply_to:
        view["replyTo"] = message.reply_to
    if message.priority != "normal":
        view["priority"] = message.priority
    if message.ack_by:
        view["ackBy"] = message.ack_by
    if message.team:
        view["team"] = message.team
    return view


async def describe_agents(server: MailServer) -> list[dict[str, object]]:
    """Return all agents of a server's workspace."""
    return await list_agents(await server.store(), server.presence, server.unread_warn_s)


async def list_agents(
    store: MessageStore, presence: Presence, unread_warn_s: float
) -> list[dict[str, object]]:
    """Return all agents: those in the state, and those that only have an inbox."""
    state = await store.state()
    agents = {name: Agent(kind="chat", interface="files") for name in await store.agents()}
    agents |= agent_registry.agents(state)
    teams = agent_registry.teams(state)
    waiting = await store.waiting()
    views = await asyncio.to_thread(_agent_views, presence, agents, unread_warn_s, waiting)
    for entry in views:
        within = [name for name, team in teams.items() if entry["name"] in team.members]
        if within:
            entry["teams"] = within
    return views


def _agent_views(
    presence: Presence, agents: dict[str, Agent], unread_warn_s: float, waiting: dict[str, Waiting]
) -> list[dict[str, object]]:
    return [
        agent_view(presence, name, agent, unread_warn_s, waiting.get(name, Waiting()))
        for name, agent in sorted(agents.items())
    ]


def agent_view(
    presence: Presence, name: str, agent: Agent, unread_warn_s: float, counted: Waiting
) -> dict[str, object]:
    """Return one agent. Blocking."""
    status, seen = presence.status(name, agent.pid)
    waiting = presence.unclaimed(name, unread_warn_s, counted)
    view: dict[str, object] = {"name": name, "kind": agent.kind, "presence": status}
    if seen and status != "online":
        view["lastSeenSecondsAgo"] = max(0, round(time.time() - seen))
    optional: dict[str, object] = {
        "role": agent.role,
        "status": "" if agent.status == "available" else agent.status,
        "note": agent.note,
        "purpose": agent.purpose,
        "interface": agent.interface,
        "capabilities": agent.capabilities,
        "pid": agent.pid,
        "styling": msgspec.to_builtins(stored_styling(agent.styling)),
        "unread": waiting.unread,
    }
    view |= {key: value for key, value in optional.items() if value}
    if waiting.overdue:
        view["starving"] = True
        view["oldestUnreadSeconds"] = round(waiting.oldest_s)
    return view
