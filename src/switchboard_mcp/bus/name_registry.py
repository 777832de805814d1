"""Who lives where: names that are unique over all machines, and a mailbox here for everybody who lives elsewhere.

A name belongs to the machine that claimed it first, for as long as its relay is heard of; then another one may have it,
with a higher fence. Owns the claims and the marks in `elsewhere/`; letters are carried by others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.mail.agent_names import is_agent_name
from switchboard_mcp.mail.presence import Presence, RemotePresence
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import REMOTE_AGENTS, Transaction
from switchboard_mcp.mail.store.store import MessageStore


class NameOwner(Struct, frozen=True):
    """Who has a name."""

    node: str
    fence: int = 0


class LocalAgents(Struct):
    """The agents of this folder as its files have them."""

    here: list[str]
    elsewhere: dict[str, RemotePresence]


class NameRegistry:
    """The names of all machines, as known here."""

    def __init__(self, post: MessageStore, wire: BusClient, me: BusNode) -> None:
        self._post = post
        self._wire = wire
        self._me = me
        self._presence = Presence(post.path)
        # On which machine each agent of another machine lives.
        self.away: dict[str, str] = {}
        # Names that are used here although another machine has them: registered while the bus was away.
        self.conflicts: dict[str, str] = {}
        self.owned: set[str] = set()
        self._said: dict[str, bytes] = {}

    async def recover(self) -> None:
        """What was known before this start: mail for elsewhere must not be handed out here."""
        seen = await self._post.run(look)
        self.away = {name: stay.node for name, stay in seen.elsewhere.items()}

    async def claim(self, name: str) -> str:
        """Have a name for this machine; the machine that has it, which is this one where it could be had."""
        owner = _owner((await self._wire.claim(self._me.id, [name]))[0])
        if owner.node == self._me.id:
            self.owned.add(name)
            self.away.pop(name, None)
            await self._post.run(lambda tx: _mark(tx, {}, [name]))
        return owner.node

    async def sync(self) -> None:
        """Claim what is new here, and know what is new elsewhere."""
        seen = await self._post.run(look)
        names = {name: _owner(held) for name, held in (await self._wire.all("names")).items()}
        wanted = [name for name in seen.here if names.get(name, NameOwner("")).node != self._me.id]
        if wanted:
            for name, held in zip(wanted, await self._wire.claim(self._me.id, wanted), strict=True):
                names[name] = _owner(held)
        self.owned = {name for name in seen.here if names[name].node == self._me.id}
        # What Redis has forgotten is remembered here: mail for elsewhere is not handed out for that.
        foreign = {name: stay.node for name, stay in seen.elsewhere.items() if name not in names}
        foreign |= {n: o.node for n, o in names.items() if o.node != self._me.id and is_agent_name(n)}
        lived_in = {
            name for name in foreign if name in seen.here and self._presence.status(name)[0] != "offline"
        }
        self.conflicts = {name: foreign[name] for name in lived_in}
        self.away = {name: node for name, node in foreign.items() if name not in lived_in}
        stays = await self._stays()
        back = [name for name in seen.elsewhere if name not in self.away]
        fresh = {name: stay for name, stay in stays.items() if seen.elsewhere.get(name) != stay}
        if fresh or back:
            await self._post.run(lambda tx: _mark(tx, fresh, back))

    async def _stays(self) -> dict[str, RemotePresence]:
        said = await self._wire.all("presence")
        alive = await self._wire.alive(sorted(set(self.away.values())))
        stays = {}
        for name, node in self.away.items():
            try:
                stay = msgspec.json.decode(said.get(name, b""), type=RemotePresence)
            except msgspec.DecodeError:
                stay = RemotePresence(node=node)
            here = stay.here if node in alive and stay.node == node else "offline"
            stays[name] = RemotePresence(node=node, here=here, seen=stay.seen)
        return stays

    async def tell_presence(self) -> bool:
        """Say who of ours is here, where that has changed."""
        told = False
        for name in sorted(self.owned):
            here, seen = self._presence.status(name)
            # When somebody was last active is told to the minute: it is no news by itself.
            value = msgspec.json.encode(
                RemotePresence(node=self._me.id, here=here, seen=float(int(seen) // 60 * 60))
            )
            if self._said.get(name) != value:
                await self._wire.put("presence", name, value)
                self._said[name] = value
                told = True
        return told


def look(tx: Transaction) -> LocalAgents:
    """Who has a mailbox here, and who of them lives elsewhere."""
    elsewhere: dict[str, RemotePresence] = {}
    if tx.has(REMOTE_AGENTS):
        for name, _ in file_operations.entries(tx.folder(REMOTE_AGENTS)):
            found = file_operations.read(tx.folder(REMOTE_AGENTS), name, 4096)
            if is_agent_name(name) and isinstance(found, file_operations.FileContent):
                try:
                    elsewhere[name] = msgspec.json.decode(found.data, type=RemotePresence)
                except msgspec.DecodeError:
                    elsewhere[name] = RemotePresence(node="")
    return LocalAgents([name for name in tx.agents() if name not in elsewhere], elsewhere)


def _mark(tx: Transaction, fresh: Mapping[str, RemotePresence], back: Sequence[str]) -> None:
    """Write who lives elsewhere, and a mailbox for each; forget those who are back."""
    folder = tx.folder(REMOTE_AGENTS, make=True)
    for name, stay in fresh.items():
        draft = tx.write(msgspec.json.encode(stay))
        tx.sync_file(draft)
        tx.put(draft, folder, name)
        for place in ("inbox", "outbox"):
            tx.folder(place, name, make=True)
    for name in back:
        try:
            tx.remove(folder, name)
        except FileNotFoundError:
            continue
    tx.sync_folders()


def _owner(held: bytes | None) -> NameOwner:
    try:
        return msgspec.json.decode(held or b"", type=NameOwner)
    except msgspec.DecodeError:
        return NameOwner("")
