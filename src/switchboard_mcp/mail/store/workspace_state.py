"""`state.json`: state shared by all processes of a workspace, with one writer at a time.

The lock is a separate file, because the state file is replaced as a whole. The previous version is kept: an unreadable
state is moved aside and rebuilt from it and from the existing inboxes. Not aware of the contents beyond `agents`.
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
    """Read the state; None if it must be rebuilt by `load` under the lock."""
    content = file_operations.read(tx.root, FILE, MAX_STATE_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return {} if content.gone and not tx.agents() else None
    return _decode(content.data)


def load(tx: Transaction) -> State:
    """Read the state, rebuilding an unreadable one. The lock must be held."""
    content = file_operations.read(tx.root, FILE, MAX_STATE_BYTES)
    if isinstance(content, file_operations.FileContent):
        state = _decode(content.data)
        if state is not None:
            return state
    if isinstance(content, file_operations.FileContent) or not content.gone:
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
    """Apply `change` to the state and store it."""
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
    file = tx.write(msgspec.json.format(data, indent=2) + b"\n")
    tx.sync_file(file)
    tx.put(file, tx.root, name)


def _decode(data: bytes) -> State | None:
    try:
        state = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return state if isinstance(state, dict) else None
