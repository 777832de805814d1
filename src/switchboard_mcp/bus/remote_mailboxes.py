"""The mailboxes here of agents on other machines that may hold something to send.

A change is reported by the store's watcher. A few mailboxes are also checked in turn, so a change that was not reported
is found, and an idle relay costs the same however many agents there are. Not aware of Redis.
"""

from __future__ import annotations

from collections.abc import Mapping

from switchboard_mcp.bus.node import is_node_id
from switchboard_mcp.mail.store.remote import remote_outbox
from switchboard_mcp.mail.store.store import MessageStore

# Mailboxes checked in turn each time there is nothing else to do.
CHECKED_AT_ONCE = 64


class RemoteMailboxes:
    """The remote agents, their machines, and which of them may have messages or receipts to send."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._node_of: Mapping[str, str] = {}
        # New agents, and those of a report without a name.
        self._unchecked: set[str] = set()
        self._turn: list[str] = []
        self.messages: set[str] = set()
        self.receipts: set[str] = set()

    def update(self, node_of: Mapping[str, str]) -> None:
        """Replace the agents; `node_of` maps each to its machine. Mail of one without a valid machine waits."""
        if node_of is self._node_of:
            return
        known = self._node_of
        self._unchecked |= {agent for agent, node in node_of.items() if known.get(agent) != node}
        self._node_of = node_of

    def on_change(self, agent: str, *, active: bool) -> None:
        """Note that a mailbox has changed; an empty name means all. One that is not `active` is checked first."""
        if not agent:
            self._unchecked |= self._node_of.keys()
        elif active:
            self.messages.add(agent)
            self.receipts.add(agent)
        else:
            self._unchecked.add(agent)

    async def check(self) -> None:
        """Look into new mailboxes, and into a few others if nothing is known to be waiting."""
        agents, self._unchecked = self._unchecked, set()
        if not (agents or self.messages):
            self._turn = self._turn or list(self._node_of)
            agents = set(self._turn[:CHECKED_AT_ONCE])
            del self._turn[:CHECKED_AT_ONCE]
        agents = {agent for agent in agents if self.node_of(agent)}
        if not agents:
            return
        try:
            messages, receipts = await self._store.run(lambda tx: remote_outbox.with_mail(tx, agents))
        except BaseException:
            self._unchecked |= agents
            raise
        self.messages |= messages
        self.receipts |= receipts

    def node_of(self, agent: str) -> str:
        """Return the machine of an agent; empty if it is unknown now."""
        node = self._node_of.get(agent, "")
        return node if is_node_id(node) else ""

    def by_node(self, agents: set[str]) -> dict[str, list[str]]:
        """Group agents by their machine, without those that are not remote, which are also removed from the set."""
        nodes: dict[str, list[str]] = {}
        for agent in sorted(agents):
            node = self.node_of(agent)
            if node:
                nodes.setdefault(node, []).append(agent)
            else:
                agents.discard(agent)
        return nodes
