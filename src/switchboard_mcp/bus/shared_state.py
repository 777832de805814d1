"""Synchronises the parts of `state.json` that all machines share: agents, teams and workflows.

Local changes are pushed to Redis, remote changes are written to the state; `merge` decides which side wins. Not aware
of what the entries mean.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.merge import MergeBase, Value, compare
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.mail.store.store import MessageStore, State

# Parts of the state; True if concurrent changes of one entry are merged by field.
PARTS = {"agents": True, "teams": False, "workflows": False}
FILE = "shared.json"
# Fields that change constantly and only matter on the agent's own machine.
PRIVATE = frozenset({"seenAt", "pid"})


class SharedState:
    """Synchronises the shared parts with the last agreed version."""

    def __init__(self, store: MessageStore, client: BusClient) -> None:
        self._store = store
        self._client = client
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
            there = {name: _read(value) for name, value in (await self._client.get_all(part)).items()}
            here = _entries(state, part)
            takes: dict[str, Value] = {}
            earlier: dict[str, MergeBase | None] = {}
            for name in sorted({*here, *there, *agreed}):
                known = there.get(name, MergeBase())
                step = compare(agreed.get(name, MergeBase()), here.get(name), known, merge=merge)
                final = known
                if step.pushes and (step.push is not None or known.revision):
                    final = await self._push(part, name, step.push, known.revision)
                    pushed = True
                value = final.value if step.pushes else step.take
                if (step.takes or step.pushes) and value != here.get(name):
                    takes[name] = value
                if agreed.get(name) != final and final.revision:
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

    async def _push(self, part: str, name: str, value: Value, revision: int) -> MergeBase:
        data = msgspec.json.encode({"revision": revision + 1, "value": value})
        final, _ = await self._client.compare_and_set(part, name, data, revision)
        return _read(final)


def _read(value: bytes) -> MergeBase:
    try:
        decoded: dict[str, Any] = msgspec.json.decode(value)
        return MergeBase(int(decoded["revision"]), decoded["value"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return MergeBase()


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
