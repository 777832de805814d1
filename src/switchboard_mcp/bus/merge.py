"""Three-way merge of one entry in a table that several machines change.

Every value in the shared table has a revision. A machine remembers the value and revision it last agreed on, and
compares both sides with it. Revisions only move forward: a table that was emptied or restored from an older copy
gets the newer entries back from the machines. Not aware of where the tables are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

Value = dict[str, Any] | None

_encode = msgspec.json.Encoder(order="deterministic").encode


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
    revision: int = 0
    """The revision under which the value is pushed."""
    conflict: bool = False
    """Two different values had the same revision, so one of them is given up."""
    restores: bool = False
    """The table had lost the entry, or went back to an older one."""


def newer(one: MergeBase, other: MergeBase) -> MergeBase:
    """Return the entry that counts: the higher revision, and of two values with the same one the larger.

    Every machine decides alike, in whatever order it sees the entries.

    >>> newer(MergeBase(2, {"a": 1}), MergeBase(1, {"a": 2}))
    MergeBase(revision=2, value={'a': 1})
    """
    return max(one, other, key=_rank)


def _rank(entry: MergeBase) -> tuple[int, int, bytes]:
    data = _encode(entry.value)
    return entry.revision, len(data), data


def compare(agreed: MergeBase, here: Value, there: MergeBase, *, merge: bool) -> MergeStep:
    """Decide what to do with an entry. If both sides changed it, `merge` combines them by field; otherwise theirs wins.

    >>> compare(MergeBase(1, {"a": 1}), {"a": 2}, MergeBase(1, {"a": 1}), merge=False).push
    {'a': 2}
    >>> compare(MergeBase(1, {"a": 1}), {"a": 1}, MergeBase(2, None), merge=False).takes
    True
    >>> compare(MergeBase(2, {"a": 1}), {"a": 1}, MergeBase(1, None), merge=False).push
    {'a': 1}
    """
    if there == agreed:
        if here == there.value:
            return MergeStep()
        return MergeStep(push=here, pushes=True, revision=there.revision + 1)
    conflict = there.revision == agreed.revision
    if newer(agreed, there) == agreed:
        # The table was emptied or is older: it gets our entry back, under the revision that others know it by.
        revision = agreed.revision if here == agreed.value else agreed.revision + 1
        return MergeStep(push=here, pushes=True, revision=revision, conflict=conflict, restores=not conflict)
    if here == agreed.value or here == there.value or not merge or here is None or there.value is None:
        return MergeStep(take=there.value, takes=here != there.value, conflict=conflict)
    before = agreed.value or {}
    mine = {key: value for key, value in here.items() if value != before.get(key)}
    theirs = {key for key, value in there.value.items() if value != before.get(key)}
    joined = {**there.value, **{key: value for key, value in mine.items() if key not in theirs}}
    return MergeStep(
        push=joined,
        pushes=joined != there.value,
        take=joined,
        takes=joined != here,
        revision=there.revision + 1,
        conflict=conflict,
    )
