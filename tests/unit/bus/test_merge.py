from __future__ import annotations

import pytest

from switchboard_mcp.bus.merge import MergeBase, MergeStep, Value, compare

OLD: Value = {"role": "coder", "note": ""}
HERE: Value = {"role": "coder", "note": "mine"}
THERE: Value = {"role": "lead", "note": ""}


@pytest.mark.parametrize(
    ("agreed", "here", "there", "merge", "step"),
    [
        (MergeBase(1, OLD), OLD, MergeBase(1, OLD), True, MergeStep()),
        (MergeBase(), OLD, MergeBase(), True, MergeStep(push=OLD, pushes=True)),
        (MergeBase(1, OLD), HERE, MergeBase(1, OLD), True, MergeStep(push=HERE, pushes=True)),
        (MergeBase(1, OLD), None, MergeBase(1, OLD), True, MergeStep(push=None, pushes=True)),
        (MergeBase(1, OLD), OLD, MergeBase(2, THERE), True, MergeStep(take=THERE, takes=True)),
        (MergeBase(1, OLD), OLD, MergeBase(2, None), True, MergeStep(take=None, takes=True)),
        (MergeBase(1, OLD), THERE, MergeBase(2, THERE), True, MergeStep(take=THERE, takes=False)),
        (MergeBase(1, OLD), HERE, MergeBase(2, THERE), False, MergeStep(take=THERE, takes=True)),
    ],
)
def test_what_was_changed_on_one_side_goes_to_the_other(
    agreed: MergeBase, here: Value, there: MergeBase, merge: bool, step: MergeStep
) -> None:
    assert compare(agreed, here, there, merge=merge) == step


def test_changes_of_both_sides_are_joined_by_field_and_theirs_counts_where_both_changed_one() -> None:
    joined = {"role": "lead", "note": "mine"}
    step = compare(MergeBase(1, OLD), HERE, MergeBase(2, THERE), merge=True)
    assert step == MergeStep(push=joined, pushes=True, take=joined, takes=True)
    both = compare(MergeBase(1, OLD), {"role": "tester", "note": ""}, MergeBase(2, THERE), merge=True)
    assert both.take == THERE
    assert not both.pushes
