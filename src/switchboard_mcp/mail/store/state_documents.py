"""Documents of the workspace: agents, teams, workflow runs, reservations. Each entry of a section is a row.

A function changes the whole state as a dictionary; the rows that differ afterwards are written, in the transaction of
whatever else the caller does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from switchboard_mcp.database.transactions import Transaction

T = TypeVar("T")
State = dict[str, Any]
# A value that is no section has this name.
_WHOLE = "\n"
_encode = msgspec.json.Encoder(order="sorted").encode


def load(tx: Transaction) -> State:
    """Return the state."""
    state: State = {}
    for kind, name, body in tx.rows("SELECT kind, name, body FROM document ORDER BY kind, name"):
        value = msgspec.json.decode(body)
        if name == _WHOLE:
            state.setdefault(kind, value)
        else:
            state.setdefault(kind, {})[name] = value
    return state


def section(tx: Transaction, kind: str) -> dict[str, bytes]:
    """Return the encoded entries of a section by name; read once per group, unless it was changed since."""
    key = f"mail.state {kind}"
    if key not in tx.memo:
        found = tx.rows("SELECT name, body FROM document WHERE kind = ? ORDER BY name", kind)
        tx.memo[key] = {name: body.encode() for name, body in found if name != _WHOLE}
    entries: dict[str, bytes] = tx.memo[key]
    return entries


def update(tx: Transaction, change: Callable[[State], T]) -> T:
    """Apply `change`, which modifies the state in place, and store what differs."""
    state = load(tx)
    before = _rows(state)
    answer = change(state)
    after = _rows(state)
    for kind, name in before.keys() - after.keys():
        tx.run("DELETE FROM document WHERE kind = ? AND name = ?", kind, name)
    for key, body in after.items():
        if before.get(key) != body:
            tx.run(
                "INSERT INTO document (kind, name, body) VALUES (?, ?, ?)"
                " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
                *key,
                body,
            )
    if before != after:
        tx.topics.add("state")
        for memo in [memo for memo in tx.memo if memo.startswith("mail.state ")]:
            del tx.memo[memo]
    return answer


def _rows(state: State) -> dict[tuple[str, str], str]:
    documents: dict[tuple[str, str], str] = {}
    for kind, section in state.items():
        if isinstance(section, dict):
            documents |= {(kind, name): _encode(value).decode() for name, value in section.items()}
        else:
            documents[kind, _WHOLE] = _encode(section).decode()
    return documents
