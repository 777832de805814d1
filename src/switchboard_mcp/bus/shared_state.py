"""What the machines know together: entries of agents, teams and workflows, as parts of each one's `state.json`.

Changes made here go to Redis, changes made elsewhere come into the state; which counts is decided in `bus.merge`.
Owns the exchange; what the entries mean is for those who write them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.merge import MergeBase, Value, compare
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.mail.store.store import MessageStore, State

# Part of the state, and whether two changes of one entry are joined by its fields.
PARTS = {"agents": True, "teams": False, "workflows": False}
FILE = "shared.json"
# These change all the time, and matter where the agent lives.
PRIVATE = frozenset({"seenAt", "pid"})


class SharedState:
    """The shared parts, as last agreed on."""

    def __init__(self, store: MessageStore, client: BusClient) -> None:
        self._store = store
        self._client = client
        self._agreed: dict[str, dict[str, MergeBase]] | None = None

    async def sync(self) -> bool:
        """Exchange what has changed; True where something was pushed."""
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
                for name in missed:  # Changed here meanwhile: the next round compares anew.
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
        said: dict[str, Any] = msgspec.json.decode(value)
        return MergeBase(int(said["revision"]), said["value"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return MergeBase()


def _entries(state: State, part: str) -> dict[str, Value]:
    found = state.get(part)
    entries = found if isinstance(found, dict) else {}
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
    """Take over what was decided, but for entries that are no longer as they were when it was."""
    table = state.setdefault(part, {})
    now = _entries(state, part)
    missed.clear()  # An update may be tried again.
    for name, value in takes.items():
        if now.get(name) != here.get(name):
            missed.append(name)
        elif value is None:
            table.pop(name, None)
        else:
            before = table.get(name)
            kept = {key: before[key] for key in PRIVATE if key in before} if isinstance(before, dict) else {}
            table[name] = {**value, **kept}
