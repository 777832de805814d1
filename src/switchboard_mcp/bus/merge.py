"""Three-way merge of one entry in a table that several machines change.

Every value in the shared table has a revision. A machine remembers the value and revision it last agreed on, and
compares both sides with it. Not aware of where the tables are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Value = dict[str, Any] | None


class MergeBase(NamedTuple):
    """The value both sides last agreed on; revision 0 means there was none."""

    revision: int = 0
    value: Value = None


class MergeStep(NamedTuple):
    """The decision: `push` the local value to the table, `take` the table's value, or neither."""

    push: Value = None
    pushes: bool = False
    take: Value = None
    takes: bool = False


def compare(agreed: MergeBase, here: Value, there: MergeBase, *, merge: bool) -> MergeStep:
    """Decide what to do with an entry. If both sides changed it, `merge` combines them by field; otherwise theirs wins.

    >>> compare(MergeBase(1, {"a": 1}), {"a": 2}, MergeBase(1, {"a": 1}), merge=False).push
    {'a': 2}
    >>> compare(MergeBase(1, {"a": 1}), {"a": 1}, MergeBase(2, None), merge=False).takes
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
