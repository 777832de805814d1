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
MAX_STATE_BYTES = 64 * 1_048_576


def read(tx: Transaction) -> State | None:
    """The state; None where it has to be made anew (`load`, under the lock)."""
    found = file_operations.read(tx.root, FILE, MAX_STATE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return {} if found.gone and not tx.agents() else None
    return _decode(found.data)


def load(tx: Transaction) -> State:
    """The state. The lock is held, so that an unreadable one can be set aside."""
    found = file_operations.read(tx.root, FILE, MAX_STATE_BYTES)
    if isinstance(found, file_operations.FileContent):
        state = _decode(found.data)
        if state is not None:
            return state
    if isinstance(found, file_operations.FileContent) or not found.gone:
        tx.move(tx.root, FILE, tx.root, f"state.unreadable.{tx.next_number():016d}.json")
    return _rebuild(tx)


def _rebuild(tx: Transaction) -> State:
    before = file_operations.read(tx.root, BEFORE, MAX_STATE_BYTES)
    state = (_decode(before.data) if isinstance(before, file_operations.FileContent) else None) or {}
    agents = state.get("agents")
    state["agents"] = agents if isinstance(agents, dict) else {}
    for name in tx.agents():
        state["agents"].setdefault(name, {"name": name})
    return state


def update(tx: Transaction, change: Callable[[State], T]) -> T:
    """Let `change` alter the state, and store it."""
    with tx.state_locked():
        state = load(tx)
        was = msgspec.json.encode(state)
        answer = change(state)
        data = msgspec.json.encode(state)
        if data == was and file_operations.exists(tx.root, FILE):
            return answer
        if len(data) > MAX_STATE_BYTES:
            raise refused("mail_not_stored", f"{FILE} would be larger than {MAX_STATE_BYTES} bytes.")
        _store(tx, was, BEFORE)
        _store(tx, data, FILE)
        file_operations.sync(tx.root)
        return answer


def _store(tx: Transaction, data: bytes, name: str) -> None:
    draft = tx.write(msgspec.json.format(data, indent=2) + b"\n")
    tx.sync_file(draft)
    tx.put(draft, tx.root, name)


def _decode(data: bytes) -> State | None:
    try:
        state = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return state if isinstance(state, dict) else None
