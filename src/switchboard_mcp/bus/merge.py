"""Tables that several machines change: what to do with one entry when it was changed here, there, or in both places.

Every value in the shared table has a revision. A machine remembers the value and the revision it last agreed on, and
compares. Owns this decision; does not know where the tables are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Value = dict[str, Any] | None


class MergeBase(NamedTuple):
    """What was last the same on both sides; revision 0 is before the beginning."""

    revision: int = 0
    value: Value = None


class MergeStep(NamedTuple):
    """What is to be done: `push` this value to the table, or `take` this one from it; neither where all is well."""

    push: Value = None
    pushes: bool = False
    take: Value = None
    takes: bool = False


def compare(agreed: MergeBase, here: Value, there: MergeBase, *, merge: bool) -> MergeStep:
    """What to do with an entry. Where both sides have changed it, `merge` joins them field by field; else theirs wins.

    >>> compare(Agreed(1, {"a": 1}), {"a": 2}, Agreed(1, {"a": 1}), merge=False).push
    {'a': 2}
    >>> compare(Agreed(1, {"a": 1}), {"a": 1}, Agreed(2, None), merge=False).takes
    True
    """
    if there.revision == agreed.revision:
        return MergeStep(push=here, pushes=True) if here != there.value else MergeStep()
    if here == agreed.value or here == there.value or not merge or here is None or there.value is None:
        return MergeStep(take=there.value, takes=here != there.value)
    before = agreed.value or {}
    mine = {key: value for key, value in here.items() if value != before.get(key)}
    theirs = {key for key, value in there.value.items() if value != before.get(key)}
    joined = {**there.value, **{key: value for key, value in mine.items() if key not in theirs}}
    return MergeStep(push=joined, pushes=joined != there.value, take=joined, takes=joined != here)
