"""Brings the indexes of large mailboxes up to date, in pieces between which other jobs run.

Every index may be deleted, and whoever needs one brings it up to date. What this does before is not waited for.
"""

from __future__ import annotations

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store import receipts
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.receipts import NewestReceipts

# Smaller segments without an index are searched in some 50 ms, so they get one when that happens.
MIN_SEGMENT_BYTES = 64 * 1_048_576
# Mailboxes that are looked at in one piece.
MAILBOXES = 50


class IndexingPass:
    """One pass over all mailboxes: indexes their segments, and finds the newest receipts of large outboxes."""

    def __init__(self) -> None:
        self._due: list[tuple[str, str]] | None = None
        self._receipts: NewestReceipts | None = None

    def advance(self, tx: Transaction) -> bool:
        """Do one piece; returns True if there is more to do."""
        if self._due is None:
            places = day_segments.PACKED_PLACES
            self._due = [(place, name) for place in places for name in tx.names(place) if is_agent_name(name)]
        for _ in range(MAILBOXES):
            if not self._due:
                return False
            try:
                if self._index_segments(tx, *self._due[-1]) or self._list_receipts(tx, *self._due[-1]):
                    return True
            except (OSError, SwitchboardError):
                self._receipts = None  # A link, a file, another user's folder: reported by `verify`.
            self._due.pop()
        return True

    def _index_segments(self, tx: Transaction, place: str, agent: str) -> bool:
        is_large = day_segments.total_bytes(tx, place, agent) > MIN_SEGMENT_BYTES
        wanted = is_large or day_segments.has_index(tx, place, agent)
        return wanted and day_segments.index_piece(tx, place, agent)

    def _list_receipts(self, tx: Transaction, place: str, agent: str) -> bool:
        if self._receipts is None:
            if place != "outbox" or not receipts.is_large(tx, agent) or tx.recent_receipts(agent).exists():
                return False
            self._receipts = NewestReceipts(agent, None, 0)
        if self._receipts.newest_ids(tx) is None:
            return True
        self._receipts = None
        return False
