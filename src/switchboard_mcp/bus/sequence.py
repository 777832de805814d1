"""Sequence numbers on the link between two machines: the receiver's decision about a numbered message.

A sender numbers every message it ships to one machine, and states with each the lowest number it still keeps. The
receiver stores messages in that order only. Whatever the bus loses, duplicates or delays, a message is stored once and
in order, or requested again. Not aware of streams, files or clocks.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# `store`: the next in order; `known`: already stored; `gap`: an earlier message is missing.
SequenceVerdict = Literal["store", "known", "gap"]


class SequenceMark(NamedTuple):
    """Progress of a link: everything up to `last` is stored. `epoch` identifies one numbering of the sender."""

    epoch: str = ""
    last: int = 0


def check_sequence(
    mark: SequenceMark, epoch: str, sequence: int, base: int
) -> tuple[SequenceVerdict, SequenceMark]:
    """Return the decision for a message, and the progress of the link before it.

    `base` is the lowest number that the sender still keeps. Lower ones were confirmed, perhaps by this machine before
    it
    lost its state, and will not send it again.

    >>> check_sequence(SequenceMark("a", 4), "a", 5, 3)
    ('store', SequenceMark(epoch='a', last=4))
    >>> check_sequence(SequenceMark("a", 4), "a", 6, 3)[0], check_sequence(SequenceMark("a", 4), "a", 4, 3)[0]
    ('gap', 'known')
    """
    if epoch != mark.epoch or base - 1 > mark.last:
        mark = SequenceMark(epoch, base - 1)
    if sequence <= mark.last:
        return "known", mark
    return ("store" if sequence == mark.last + 1 else "gap"), mark
