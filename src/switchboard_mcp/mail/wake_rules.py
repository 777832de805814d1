"""Decides when an idle agent is notified of new mail by an event of its own, for `mail.channel`. Pure.

Each message is announced once. While announced mail is unread, later announcements are spaced further and further
apart: an agent that ignores its mail is not woken again and again.
"""

from __future__ import annotations

from msgspec import Struct

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 960.0


class WakeRecord(Struct, frozen=True):
    """The last announcement to an agent."""

    newest: int = 0
    """Order of the newest message it was about."""
    at: float = 0.0
    pause_s: float = 0.0
    """Time until the next one, if the mail is not read before."""


def next_announcement(record: WakeRecord, oldest: int, newest: int, now: float) -> WakeRecord | float:
    """Return the announcement to make now, or the seconds until the next look; 0 if there is nothing to announce.

    `oldest` and `newest` are the orders of unread messages; 0 if there are none.

    >>> next_announcement(WakeRecord(), 5, 5, 100.0)
    WakeRecord(newest=5, at=100.0, pause_s=60.0)
    >>> next_announcement(WakeRecord(newest=5, at=100.0, pause_s=60.0), 5, 6, 110.0)
    50.0
    """
    if newest <= record.newest:
        return 0.0
    ignored = 0 < oldest <= record.newest
    if not ignored:
        return WakeRecord(newest, now, FIRST_PAUSE_S)
    left = record.at + record.pause_s - now
    if left > 0:
        return left
    return WakeRecord(newest, now, min(record.pause_s * 2, LONGEST_PAUSE_S))
