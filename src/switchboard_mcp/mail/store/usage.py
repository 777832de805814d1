"""How many messages, and how many bytes, wait for each agent and are stored; and the quotas on them.

The counts are rows, changed once per group of jobs and in the same commit as what they count.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.store.mail_tables import WORKSPACE

_MEMO = "mail.usage"


class MailQuotas(Struct, frozen=True, kw_only=True):
    """How much may wait for one agent, and be stored in the workspace. The defaults are those of the settings."""

    waiting: int = 100_000
    waiting_bytes: int = 4_294_967_296
    stored: int = 2_000_000
    stored_bytes: int = 34_359_738_368


class _Counts:
    """The counts that a group has read and changed."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._counts: dict[str, tuple[int, int]] = {}
        self._changed: set[str] = set()
        tx.at_end(self._write)

    def get(self, name: str) -> tuple[int, int]:
        """Return messages and bytes."""
        counts = self._counts.get(name)
        if counts is None:
            row = self._tx.row("SELECT messages, bytes FROM usage WHERE name = ?", name)
            counts = self._counts[name] = (row[0], row[1]) if row else (0, 0)
        return counts

    def add(self, name: str, messages: int, size: int) -> None:
        """Count more, or less."""
        had = self.get(name)
        self._counts[name] = had[0] + messages, had[1] + size
        self._changed.add(name)
        self._tx.has_changed = True

    def _write(self) -> None:
        for name in sorted(self._changed):
            self._tx.run(
                "INSERT INTO usage (name, messages, bytes) VALUES (?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET messages = excluded.messages, bytes = excluded.bytes",
                name,
                *self._counts[name],
            )


def _counts(tx: Transaction) -> _Counts:
    counts: _Counts | None = tx.memo.get(_MEMO)
    if counts is None:
        counts = tx.memo[_MEMO] = _Counts(tx)
    return counts


def require_room(tx: Transaction, agent: str, size: int, quotas: MailQuotas) -> None:
    """Raise `mail_quota` if a message of this size may not be stored for this agent."""
    counts = _counts(tx)
    messages, total = counts.get(agent)
    if messages >= quotas.waiting:
        text = f"The mailbox of '{agent}' is full: {messages} of {quotas.waiting} messages wait."
        raise _full(text, "mail.maxWaiting")
    if total + size > quotas.waiting_bytes:
        text = f"The mailbox of '{agent}' is full: with this message, {total + size} bytes would wait."
        raise _full(text, "mail.maxWaitingBytes")
    messages, total = counts.get(WORKSPACE)
    if messages >= quotas.stored:
        raise _full(f"The workspace is full: {messages} messages are stored.", "mail.maxStored")
    if total + size > quotas.stored_bytes:
        text = f"The workspace is full: with this message, {total + size} bytes would be stored."
        raise _full(text, "mail.maxStoredBytes")


def _full(text: str, setting: str) -> SwitchboardError:
    return refused("mail_quota", text, hint=f"Try again when some messages are settled, or raise {setting}.")


def count_stored(tx: Transaction, agent: str, size: int) -> None:
    """Count a new message that waits."""
    counts = _counts(tx)
    counts.add(agent, 1, size)
    counts.add(WORKSPACE, 1, size)


def count_waiting(tx: Transaction, agent: str, messages: int, size: int) -> None:
    """Count messages that wait again, or no longer if negative."""
    _counts(tx).add(agent, messages, size)


def count_removed(tx: Transaction, messages: int, size: int) -> None:
    """Count settled messages that were removed."""
    _counts(tx).add(WORKSPACE, -messages, -size)


def waiting_for(tx: Transaction, agent: str) -> tuple[int, int]:
    """Return how many messages, and how many bytes, are unsettled for an agent."""
    return _counts(tx).get(agent)


def count_all(tx: Transaction) -> int:
    """Return how many messages are stored."""
    return _counts(tx).get(WORKSPACE)[0]


def count_refused(tx: Transaction) -> None:
    """Count a file that was refused: its row is stored, and nothing waits."""
    _counts(tx).add(WORKSPACE, 1, 0)
