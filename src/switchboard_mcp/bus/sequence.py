"""The link between two machines: what a receiver makes of a numbered letter that comes.

A sender numbers everything it ships to one machine, and says with each letter from which number on it still keeps what
it has shipped. The receiver stores in that order alone. Whatever the bus loses, doubles or brings late, a letter is
stored once and in its turn, or asked for again. Owns these rules; does not know streams, files or clocks.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# `store` it; `known`, it is there already; `gap`, something before it is missing.
Verdict = Literal["store", "known", "gap"]


class SequenceMark(NamedTuple):
    """How far a link has come: everything up to `last` is stored. `epoch` is the sender's count of new beginnings."""

    epoch: str = ""
    last: int = 0


def judge(mark: SequenceMark, epoch: str, sequence: int, base: int) -> tuple[Verdict, SequenceMark]:
    """What to do with a letter, and how far the link has come without it.

    `base` is the lowest number that the sender still keeps: what is below it was confirmed, by whom this machine was
    before it lost its memory, and will not come again.

    >>> judge(Mark("a", 4), "a", 5, 3), judge(Mark("a", 4), "a", 6, 3)[0], judge(Mark("a", 4), "a", 4, 3)[0]
    (('store', Mark(epoch='a', last=4)), 'gap', 'known')
    """
    if epoch != mark.epoch or base - 1 > mark.last:
        mark = SequenceMark(epoch, base - 1)
    if sequence <= mark.last:
        return "known", mark
    return ("store" if sequence == mark.last + 1 else "gap"), mark
