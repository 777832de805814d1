"""Announcements of new mail: each message once, and further and further apart while they are ignored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.mail.wake_rules import FIRST_PAUSE_S, LONGEST_PAUSE_S, WakeRecord, next_announcement


@given(st.lists(st.tuples(st.floats(0.01, 500), st.booleans()), max_size=60))
def test_no_message_is_announced_twice_and_ignored_mail_wakes_less_and_less(
    arrivals: list[tuple[float, bool]],
) -> None:
    record, now, unread = WakeRecord(), 0.0, list[int]()
    last_at, pause = -1.0, 0.0
    for order, (waited, is_read) in enumerate(arrivals, 1):
        now += waited
        if is_read:
            unread.clear()
        unread.append(order)
        ignored = min(unread) <= record.newest
        decided = next_announcement(record, min(unread), max(unread), now)
        if isinstance(decided, WakeRecord):
            assert decided.newest == order > record.newest
            assert not ignored or now - last_at >= pause
            assert FIRST_PAUSE_S <= decided.pause_s <= LONGEST_PAUSE_S
            record, last_at, pause = decided, now, decided.pause_s
        else:
            assert ignored
            assert 0 < decided <= LONGEST_PAUSE_S
        assert next_announcement(record, min(unread), record.newest, now) == 0.0


def test_without_unread_mail_there_is_no_announcement() -> None:
    assert next_announcement(WakeRecord(), 0, 0, 5.0) == 0.0
