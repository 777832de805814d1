"""In which order messages are claimed, and the numbers that give them an order in the first place.

A number is about the time of day in microseconds, but never less than one that was given before: a clock that is
set back only makes numbers dense. A ceiling is stored durably before any number up to it is given, so that a power
cut cannot lower them. Owns these two decisions; does not know clocks or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# How far ahead of the numbers given the ceiling is set: one durable write a minute.
HEADROOM_US = 60_000_000
RANK = {"low": 0, "normal": 1, "high": 2, "urgent": 3}


class Counter(NamedTuple):
    """The numbers given so far."""

    boot: str
    last: int
    ceiling: int


class NumberRange(NamedTuple):
    """Numbers from `first` on, and the counter after them; `durable` where the ceiling has to be stored first."""

    first: int
    counter: Counter
    durable: bool


def reserve(counter: Counter, count: int, boot: str, clock_us: int) -> NumberRange:
    """The next `count` numbers. After another start of the machine what was given is not known, only the ceiling."""
    last = counter.last if counter.boot == boot else max(counter.last, counter.ceiling)
    first = max(last + 1, clock_us)
    last = first + count - 1
    durable = counter.boot != boot or last >= counter.ceiling
    ceiling = max(counter.ceiling, last + HEADROOM_US) if durable else counter.ceiling
    return NumberRange(first, Counter(boot, last, ceiling), durable)


class QueuedPosition(NamedTuple):
    """What has to be known of a message to give it its turn."""

    order: int
    sender: str
    priority: str


def claim_order(waiting: Sequence[QueuedPosition]) -> list[int]:
    """The places of `waiting` in the order of claiming.

    Nobody overtakes the same sender's earlier messages; an urgent one lends its rank to those in front of it instead.
    """
    ranks = [RANK.get(each.priority, 1) for each in waiting]
    inherited: dict[str, int] = {}
    for place in sorted(range(len(waiting)), key=lambda place: -waiting[place].order):
        sender = waiting[place].sender
        ranks[place] = inherited[sender] = max(ranks[place], inherited.get(sender, 0))
    return sorted(range(len(waiting)), key=lambda place: (-ranks[place], waiting[place].order))
