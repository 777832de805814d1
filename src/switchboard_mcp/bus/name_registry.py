"""Agent names that are unique across machines, and local mailboxes for agents on other machines.

A name belongs to the machine that claimed it first for as long as that machine's relay holds its lease; after that,
another machine may claim it with a higher fence. Also writes the files in `elsewhere/` that mark remote agents.
Messages are carried by `sender` and `receiver`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.bus.malformed import decode
from switchboard_mcp.bus.node import BusNode, is_node_id
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.mail.presence import Presence, RemotePresence
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import REMOTE_AGENTS, Transaction
from switchboard_mcp.mail.store.maintenance import removal
from switchboard_mcp.mail.store.store import MessageStore

# Files of remote agents that are synced together: one by one, a thousand would keep the store busy for seconds.
SYNCED_TOGETHER = 64


class NameOwner(Struct, frozen=True):
    """The machine that holds a name."""

    node: str
    fence: int = 0


class LocalAgents(Struct):
    """The agents of this folder, according to its files."""

    local: list[str]
    remote: dict[str, RemotePresence]


class NameRegistry:
    """The names of all machines, as known here."""

    def __init__(self, store: MessageStore, client: BusClient, node: BusNode) -> None:
        self._store = store
        self._client = client
        self._node = node
        self._presence = Presence(store.path)
        # The machine of each remote agent.
        self.remote: dict[str, str] = {}
        # Names in use here that another machine holds: both registered while the bus was unreachable.
        self.conflicts: dict[str, str] = {}
        self.owned: set[str] = set()
        # The presences in Redis, as last read.
        self._published: dict[str, bytes] = {}

    @property
    def count(self) -> int:
        """The number of names known here."""
        return len(self.owned) + len(self.remote)

    async def recover(self) -> None:
        """Restore the remote agents known before this start, so their mail is not delivered locally."""
        agents = await self._store.run(read_local_agents)
        self.remote = {name: presence.node for name, presence in agents.remote.items()}

    async def claim(self, name: str) -> str:
        """Claim a name for this machine; return the machine that holds it now."""
        owner = self._owner(name, (await self._client.claim_names(self._node.id, [name]))[0])
        if owner.node == self._node.id:
            self.owned.add(name)
            self.remote.pop(name, None)
            await self._store.run(lambda tx: _write_remote_agents(tx, {}, [name]))
        return owner.node

    async def sync(self, removed: Container[str] = ()) -> None:
        """Claim names that are new here, and learn those that are new elsewhere.

        `removed` are agents that were removed on some machine: if none holds such a name, its mailbox here goes too.
        """
        agents = await self._store.run(read_local_agents)
        names = {
            name: self._owner(name, claim_value)
            for name, claim_value in (await self._client.get_all("names")).items()
        }
        await self._release_removed(agents, names)
        for name in [name for name in agents.remote if name not in names and name in removed]:
            await self._store.run(
                lambda tx, name=name: removal.remove_remote_agent(tx, name, REMOTE_AGENTS)  # type: ignore[misc]
            )
            del agents.remote[name]
        await self._claim_new(agents, names)
        self.owned = {name for name in agents.local if names[name].node == self._node.id}
        self._learn_remote(agents, names)
        presences = await self._remote_presence()
        returned = [name for name in agents.remote if name not in self.remote]
        fresh = {
            name: presence for name, presence in presences.items() if agents.remote.get(name) != presence
        }
        if fresh or returned:
            await self._store.run(lambda tx: _write_remote_agents(tx, fresh, returned))

    async def _release_removed(self, agents: LocalAgents, names: dict[str, NameOwner]) -> None:
        """Give up the names that this machine holds of agents that are no longer here."""
        here = {*agents.local, *agents.remote}
        given_up = [name for name, owner in names.items() if owner.node == self._node.id and name not in here]
        if given_up:
            await self._client.release_names(self._node.id, given_up)
            for name in given_up:
                del names[name]

    async def _claim_new(self, agents: LocalAgents, names: dict[str, NameOwner]) -> None:
        """Claim the names of local agents that this machine does not hold, and note who holds them then."""
        unclaimed = [name for name in agents.local if names.get(name, NameOwner("")).node != self._node.id]
        if unclaimed:
            claims = await self._client.claim_names(self._node.id, unclaimed)
            for name, claim_value in zip(unclaimed, claims, strict=True):
                names[name] = self._owner(name, claim_value)

    def _learn_remote(self, agents: LocalAgents, names: Mapping[str, NameOwner]) -> None:
        """Find out which agents are remote, and which names are in use here too."""
        # Remote agents that Redis has lost stay remote: their mail must not be delivered locally.
        nodes = {name: owner.node for name, owner in names.items() if owner.node and is_agent_name(name)}
        remote = {name: presence.node for name, presence in agents.remote.items() if name not in nodes}
        remote |= {name: node for name, node in nodes.items() if node != self._node.id}
        in_use = {
            name for name in remote if name in agents.local and self._presence.status(name)[0] != "offline"
        }
        self.conflicts = {name: remote[name] for name in in_use}
        self.remote = {name: node for name, node in remote.items() if name not in in_use}

    async def _remote_presence(self) -> dict[str, RemotePresence]:
        published = self._published = await self._client.get_all("presence")
        alive = await self._client.alive(sorted(set(self.remote.values())))
        presences = {}
        for name, node in self.remote.items():
            value = published.get(name)
            presence = decode(value, RemotePresence)
            if presence is None:
                if value is not None:
                    self._client.malformed.report(f"presence/{name}", "it is not a presence")
                presence = RemotePresence(node=node)
            here = presence.here if node in alive and presence.node == node else "offline"
            presences[name] = RemotePresence(node=node, here=here, seen=presence.seen)
        return presences

    def _owner(self, name: str, claim_value: bytes | None) -> NameOwner:
        """Return the machine that holds a name; one without an id if the claim is malformed, so it can be replaced."""
        owner = decode(claim_value, NameOwner)
        if owner is not None and is_node_id(owner.node):
            return owner
        self._client.malformed.report(f"names/{name}", "it names no machine")
        return NameOwner("")

    async def publish_presence(self) -> bool:
        """Publish the presence of local agents if it has changed; return True if anything was published."""
        changed = False
        for name in sorted(self.owned):
            here, seen = self._presence.status(name)
            # The time of the last activity changes every minute, which is no reason to publish an entry.
            value = msgspec.json.encode(
                RemotePresence(node=self._node.id, here=here, seen=float(int(seen) // 60 * 60))
            )
            if self._published.get(name) != value:
                await self._client.set_shared("presence", name, value)
                self._published[name] = value
                changed = True
        return changed


def read_local_agents(tx: Transaction) -> LocalAgents:
    """Return the agents with a mailbox here, split into local and remote ones."""
    remote: dict[str, RemotePresence] = {}
    if tx.has(REMOTE_AGENTS):
        for name, _ in file_operations.entries(tx.folder(REMOTE_AGENTS)):
            content = file_operations.read(tx.folder(REMOTE_AGENTS), name, 4096)
            if is_agent_name(name) and isinstance(content, file_operations.FileContent):
                presence = decode(content.data, RemotePresence)
                is_valid = presence is not None and is_node_id(presence.node)
                remote[name] = presence if presence is not None and is_valid else RemotePresence(node="")
    return LocalAgents([name for name in tx.agents() if name not in remote], remote)


def _write_remote_agents(
    tx: Transaction, fresh: Mapping[str, RemotePresence], returned: Sequence[str]
) -> None:
    """Mark agents as remote, with a mailbox for each, and unmark those that are local again."""
    folder = tx.folder(REMOTE_AGENTS, make=True)
    names = list(fresh)
    for first in range(0, len(names), SYNCED_TOGETHER):
        some = names[first : first + SYNCED_TOGETHER]
        drafts = [tx.write(msgspec.json.encode(fresh[name])) for name in some]
        for problem in tx.sync_files(drafts):
            if problem is not None:
                raise problem
        for name, draft in zip(some, drafts, strict=True):
            tx.put(draft, folder, name)
    for name in names:
        for place in ("inbox", "outbox"):
            tx.folder(place, name, make=True)
    for name in returned:
        try:
            tx.remove(folder, name)
        except FileNotFoundError:
            continue
    tx.sync_folders()
