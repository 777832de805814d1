"""Synchronises the parts of `state.json` that all machines share: agents, teams and workflows.

Local changes are pushed to Redis, remote changes are written to the state; `merge` decides which side wins. Not aware
of what the entries mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.malformed import decode
from switchboard_mcp.bus.merge import MergeBase, MergeStep, Value, compare
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.mail.store.store import MessageStore, State

# Parts of the state; True if concurrent changes of one entry are merged by field.
PARTS = {"agents": True, "teams": False, "workflows": False}
FILE = "shared.json"
MAX_NAME_LENGTH = 200
# Conflicts that are remembered and reported.
MAX_CONFLICTS = 100
# Fields that change constantly and only matter on the agent's own machine.
PRIVATE = frozenset({"seenAt", "pid"})


class SharedState:
    """Synchronises the shared parts with the last agreed version."""

    def __init__(
        self, store: MessageStore, client: BusClient, log_conflict: Callable[[str], None] | None = None
    ) -> None:
        """`log_conflict` is called once for each entry of which two machines had different values."""
        self._store = store
        self._client = client
        self._log_conflict = log_conflict
        # Entries of which one machine's value was given up, because two had the same revision.
        self.conflicts: list[str] = []
        # Entries that were put back because Redis had lost them, or held older ones.
        self.restored = 0
        self._agreed: dict[str, dict[str, MergeBase]] | None = None

    async def sync(self) -> bool:
        """Exchange changes; return True if anything was pushed."""
        if self._agreed is None:
            kind = dict[str, dict[str, MergeBase]]
            self._agreed = await self._store.run(lambda tx: nodes.load(tx, FILE, kind)) or {}
        state = await self._store.state()
        pushed = changed = False
        for part, merge in PARTS.items():
            agreed = self._agreed.setdefault(part, {})
            here = _entries(state, part)
            there, skipped = await self._read_table(part, here, agreed)
            takes: dict[str, Value] = {}
            earlier: dict[str, MergeBase | None] = {}
            for name in sorted({*here, *there, *agreed} - skipped):
                before, shared = agreed.get(name, MergeBase()), there.get(name, MergeBase())
                step, final = await self._exchange(part, name, before, here.get(name), shared)
                pushed = pushed or step.pushes
                if (step.takes or step.pushes) and final.value != here.get(name):
                    takes[name] = final.value
                if before != final and final.revision:
                    if merge or not step.pushes:
                        earlier[name] = agreed.get(name)
                    agreed[name] = final
                    changed = True
            if takes:
                missed: list[str] = []
                await self._store.update(partial(_apply, part=part, takes=takes, here=here, missed=missed))
                for name in missed:  # Changed here meanwhile: the next sync compares again.
                    _put_back(agreed, name, earlier)
        if changed:
            kept = self._agreed
            await self._store.run(lambda tx: nodes.save(tx, FILE, kept, durable=False))
        return pushed

    def removed_agents(self) -> set[str]:
        """Return the agents that were removed on some machine."""
        agents = (self._agreed or {}).get("agents", {})
        return {name for name, entry in agents.items() if entry.revision and entry.value is None}

    async def _exchange(
        self, part: str, name: str, agreed: MergeBase, here: Value, shared: MergeBase
    ) -> tuple[MergeStep, MergeBase]:
        """Push or take one entry; return the last step and the entry that both sides agree on then."""
        while True:
            step = compare(agreed, here, shared, merge=PARTS[part])
            if step.conflict:
                self._report_conflict(part, name)
            self.restored += step.restores
            # An entry that neither side has needs no record of its removal.
            if not step.pushes or (step.push is None and step.revision <= 1):
                return step, shared
            final = await self._push(part, name, MergeBase(step.revision, step.push), held=shared.revision)
            if final == (step.revision, step.push) or final == shared:
                return step, final
            # Another machine was quicker. Its entry may be older than ours, so it is compared like any other.
            shared = final

    def _report_conflict(self, part: str, name: str) -> None:
        place = f"{part}/{name}"
        if place not in self.conflicts and len(self.conflicts) < MAX_CONFLICTS:
            self.conflicts.append(place)
            if self._log_conflict is not None:
                self._log_conflict(place)

    async def _read_table(
        self, part: str, here: dict[str, Value], agreed: dict[str, MergeBase]
    ) -> tuple[dict[str, MergeBase], set[str]]:
        """Return the entries in Redis, and the names of malformed ones, which are neither taken nor merged.

        If a malformed entry exists here, the value here replaces it.
        """
        there: dict[str, MergeBase] = {}
        skipped: set[str] = set()
        for name, data in (await self._client.get_all(part)).items():
            shared, value = _read(data) if _is_name(part, name) else None, here.get(name)
            if shared is None:
                self._client.malformed.report(f"{part}/{name}", "it is not an entry of this table")
                if value is not None:
                    revision = agreed.get(name, MergeBase()).revision + 1
                    shared = await self._push(part, name, MergeBase(revision, value), held=0)
            if shared is not None:
                there[name] = shared
            else:
                skipped.add(name)
        return there, skipped

    async def _push(self, part: str, name: str, entry: MergeBase, *, held: int) -> MergeBase:
        """Store an entry if Redis still holds this revision. Return the entry that Redis holds afterwards."""
        data = msgspec.json.encode({"revision": entry.revision, "value": entry.value})
        final, _ = await self._client.compare_and_set(part, name, data, held)
        return _read(final) or entry


class SharedValue(Struct):
    """A value of a shared table."""

    revision: Annotated[int, Meta(ge=1, lt=2**53)]
    value: dict[str, Any] | None


def _read(data: bytes) -> MergeBase | None:
    shared = decode(data, SharedValue)
    return MergeBase(shared.revision, shared.value) if shared is not None else None


def _is_name(part: str, name: str) -> bool:
    if part == "agents":
        return is_agent_name(name)
    return name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH


def _entries(state: State, part: str) -> dict[str, Value]:
    value = state.get(part)
    entries = value if isinstance(value, dict) else {}
    return {
        name: {key: value for key, value in entry.items() if key not in PRIVATE}
        for name, entry in entries.items()
        if isinstance(entry, dict)
    }


def _put_back(agreed: dict[str, MergeBase], name: str, earlier: dict[str, MergeBase | None]) -> None:
    before = earlier.get(name, agreed.get(name))
    if before is None:
        agreed.pop(name, None)
    else:
        agreed[name] = before


def _apply(
    state: State, part: str, takes: dict[str, Value], here: dict[str, Value], missed: list[str]
) -> None:
    """Apply the merged values, except to entries that were changed since the comparison."""
    table = state.setdefault(part, {})
    now = _entries(state, part)
    missed.clear()  # An update may be retried.
    for name, value in takes.items():
        if now.get(name) != here.get(name):
            missed.append(name)
        elif value is None:
            table.pop(name, None)
        else:
            before = table.get(name)
            kept = {key: before[key] for key in PRIVATE if key in before} if isinstance(before, dict) else {}
            table[name] = {**value, **kept}
