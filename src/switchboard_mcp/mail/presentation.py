"""Messages and agents as a model is shown them: briefly, and without what only costs tokens."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.agent_registry import Agent
from switchboard_mcp.mail.messages import Claimed, MailMessage, StoredMessage
from switchboard_mcp.mail.presence import Presence

if TYPE_CHECKING:
    from switchboard_mcp.mail.server import MailServer
    from switchboard_mcp.mail.store.store import MessageStore

# Enough to see what a message is about; the whole comes with claiming it.
PREVIEW_CHARS = 280


def brief(letter: StoredMessage) -> dict[str, object]:
    """A message of which only the beginning is shown."""
    message = letter.message
    cut = len(message.payload) > PREVIEW_CHARS
    told: dict[str, object] = {
        "id": message.id,
        "from": message.sender,
        "action": message.action,
        "payload": message.payload[:PREVIEW_CHARS] + "…" if cut else message.payload,
        "createdAt": message.created_at,
        "order": letter.order,
    }
    if cut:
        told["chars"] = len(message.payload)
    if letter.place != "inbox":
        told["place"] = letter.place
    if not letter.verified:
        told["verified"] = False
    if letter.outcome:
        told["outcome"] = letter.outcome
    return told | _circumstances(message)


def whole(claimed: Claimed) -> dict[str, object]:
    """A claimed message, all of it."""
    told = full(claimed.message) | {"fence": claimed.fence, "expiresAt": claimed.expires_at}
    return {**told, "deliveries": claimed.deliveries} if claimed.deliveries > 1 else told


def full(message: MailMessage) -> dict[str, object]:
    """All of a message."""
    told: dict[str, object] = {
        "id": message.id,
        "from": message.sender,
        "action": message.action,
        "payload": message.payload,
        "createdAt": message.created_at,
    }
    if message.persona:
        told["persona"] = message.persona
    if message.metadata.get("attachment"):
        told["attachment"] = message.metadata["attachment"]
    if not message.verified:
        told["verified"] = False
    plain = {
        key: value
        for key, value in message.metadata.items()
        if key not in ("seal", "verified", "priority", "ackBy", "attachment")
    }
    if plain:
        told["metadata"] = plain
    return told | _circumstances(message)


def _circumstances(message: MailMessage) -> dict[str, object]:
    told: dict[str, object] = {}
    if message.reply_to:
        told["replyTo"] = message.reply_to
    if message.priority != "normal":
        told["priority"] = message.priority
    if message.ack_by:
        told["ackBy"] = message.ack_by
    if message.team:
        told["team"] = message.team
    return told


async def described(desk: MailServer) -> list[dict[str, object]]:
    """Everybody, as a desk knows them."""
    return await everybody(await desk.post(), desk.presence, desk.starving_s)


async def everybody(post: MessageStore, presence: Presence, starving_s: float) -> list[dict[str, object]]:
    """Every agent: those with an entry in the state, and those who only have an inbox."""
    state = await post.state()
    known = {name: Agent(kind="chat", interface="files") for name in await post.agents()}
    known |= agent_registry.agents(state)
    teams = agent_registry.teams(state)
    found = await asyncio.to_thread(_look, presence, known, starving_s)
    for entry in found:
        within = [name for name, team in teams.items() if entry["name"] in team.members]
        if within:
            entry["teams"] = within
    return found


def _look(presence: Presence, known: dict[str, Agent], starving_s: float) -> list[dict[str, object]]:
    return [entry(presence, name, agent, starving_s) for name, agent in sorted(known.items())]


def entry(presence: Presence, name: str, agent: Agent, starving_s: float) -> dict[str, object]:
    """One agent. Blocking."""
    here, seen = presence.here(name, agent.pid)
    waiting = presence.waiting(name, starving_s)
    told: dict[str, object] = {"name": name, "kind": agent.kind, "presence": here}
    if seen and here != "online":
        told["lastSeenSecondsAgo"] = max(0, round(time.time() - seen))
    more: dict[str, object] = {
        "role": agent.role,
        "status": "" if agent.status == "available" else agent.status,
        "note": agent.note,
        "purpose": agent.purpose,
        "interface": agent.interface,
        "capabilities": agent.capabilities,
        "pid": agent.pid,
        "unread": waiting.unread,
    }
    told |= {key: value for key, value in more.items() if value}
    if waiting.starving:
        told["starving"] = True
        told["oldestUnreadSeconds"] = round(waiting.oldest_s)
    return told
