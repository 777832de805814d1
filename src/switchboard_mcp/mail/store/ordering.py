"""Claim order, and the order numbers it is based on.

A number is about the wall clock in microseconds, but always higher than the previous one: setting the clock back only
makes numbers denser. A ceiling is stored durably before any number up to it is issued, so a power cut cannot cause
repeats. Not aware of clocks or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Distance of the ceiling from the last number issued: one durable write per minute.
HEADROOM_US = 60_000_000
RANK = {"low": 0, "normal": 1, "high": 2, "urgent": 3}


class Counter(NamedTuple):
    """The numbers issued so far."""

    boot: str
    last: int
    ceiling: int


class NumberRange(NamedTuple):
    """Numbers from `first` on, and the counter after them; if `durable`, the ceiling must be stored first."""

    first: int
    counter: Counter
    durable: bool


def reserve(counter: Counter, count: int, boot: str, clock_us: int) -> NumberRange:
    """Reserve the next `count` numbers. After a reboot only the ceiling is reliable, so continue above it."""
    last = counter.last if counter.boot == boot else max(counter.last, counter.ceiling)
    first = max(last + 1, clock_us)
    last = first + count - 1
    durable = counter.boot != boot or last >= counter.ceiling
    ceiling = max(counter.ceiling, last + HEADROOM_US) if durable else counter.ceiling
    return NumberRange(first, Counter(boot, last, ceiling), durable)


class QueuedPosition(NamedTuple):
    """Facts about a waiting message that decide its claim order."""

    order: int
    sender: str
    priority: str


def claim_order(waiting: Sequence[QueuedPosition]) -> list[int]:
    """Return the indexes of `waiting` in claim order.

    A message never overtakes earlier ones from the same sender; it raises their priority to its own instead.
    """
    ranks = [RANK.get(each.priority, 1) for each in waiting]
    inherited: dict[str, int] = {}
    for place in sorted(range(len(waiting)), key=lambda place: -waiting[place].order):
        sender = waiting[place].sender
        ranks[place] = inherited[sender] = max(ranks[place], inherited.get(sender, 0))
    return sorted(range(len(waiting)), key=lambda place: (-ranks[place], waiting[place].order))
