"""`state.json`: what the processes of a workspace know together, one writer at a time.

The lock is on a file of its own, since the state is replaced as a whole. The version before is kept: where the state
cannot be read, it is set aside and made anew from that and from the inboxes there are; nothing is blanked.
Owns the file; does not know what stands in it, beyond `agents`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from switchboard_mcp.errors import refused
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction

T = TypeVar("T")
State = dict[str, Any]
FILE = "state.json"
BEFORE = "state.before.json"
MOST_STATE_BYTES = 64 * 1_048_576


def read(visit: Transaction) -> State | None:
    """The state; None where it has to be made anew (`load`, under the lock)."""
    found = file_operations.read(visit.root, FILE, MOST_STATE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return {} if found.gone and not visit.agents() else None
    return _decoded(found.data)


def load(visit: Transaction) -> State:
    """The state. The lock is held, so that an unreadable one can be set aside."""
    found = file_operations.read(visit.root, FILE, MOST_STATE_BYTES)
    if isinstance(found, file_operations.FileContent):
        state = _decoded(found.data)
        if state is not None:
            return state
    if isinstance(found, file_operations.FileContent) or not found.gone:
        visit.move(visit.root, FILE, visit.root, f"state.unreadable.{visit.number():016d}.json")
    return _rebuilt(visit)


def _rebuilt(visit: Transaction) -> State:
    before = file_operations.read(visit.root, BEFORE, MOST_STATE_BYTES)
    state = (_decoded(before.data) if isinstance(before, file_operations.FileContent) else None) or {}
    agents = state.get("agents")
    state["agents"] = agents if isinstance(agents, dict) else {}
    for name in visit.agents():
        state["agents"].setdefault(name, {"name": name})
    return state


def update(visit: Transaction, change: Callable[[State], T]) -> T:
    """Let `change` alter the state, and store it."""
    with visit.state_locked():
        state = load(visit)
        was = msgspec.json.encode(state)
        answer = change(state)
        data = msgspec.json.encode(state)
        if data == was and file_operations.exists(visit.root, FILE):
            return answer
        if len(data) > MOST_STATE_BYTES:
            raise refused("mail_not_stored", f"{FILE} would be larger than {MOST_STATE_BYTES} bytes.")
        _store(visit, was, BEFORE)
        _store(visit, data, FILE)
        file_operations.sync(visit.root)
        return answer


def _store(visit: Transaction, data: bytes, name: str) -> None:
    draft = visit.write(msgspec.json.format(data, indent=2) + b"\n")
    visit.sync_draft(draft)
    visit.put(draft, visit.root, name)


def _decoded(data: bytes) -> State | None:
    try:
        state = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return state if isinstance(state, dict) else None
