from __future__ import annotations

import pytest

from switchboard_mcp.bus.merge import Agreed, Step, Value, compare

OLD: Value = {"role": "coder", "note": ""}
HERE: Value = {"role": "coder", "note": "mine"}
THERE: Value = {"role": "lead", "note": ""}


@pytest.mark.parametrize(
    ("agreed", "here", "there", "merge", "step"),
    [
        (Agreed(1, OLD), OLD, Agreed(1, OLD), True, Step()),
        (Agreed(), OLD, Agreed(), True, Step(push=OLD, pushes=True)),
        (Agreed(1, OLD), HERE, Agreed(1, OLD), True, Step(push=HERE, pushes=True)),
        (Agreed(1, OLD), None, Agreed(1, OLD), True, Step(push=None, pushes=True)),
        (Agreed(1, OLD), OLD, Agreed(2, THERE), True, Step(take=THERE, takes=True)),
        (Agreed(1, OLD), OLD, Agreed(2, None), True, Step(take=None, takes=True)),
        (Agreed(1, OLD), THERE, Agreed(2, THERE), True, Step(take=THERE, takes=False)),
        (Agreed(1, OLD), HERE, Agreed(2, THERE), False, Step(take=THERE, takes=True)),
    ],
)
def test_what_was_changed_on_one_side_goes_to_the_other(
    agreed: Agreed, here: Value, there: Agreed, merge: bool, step: Step
) -> None:
    assert compare(agreed, here, there, merge=merge) == step


def test_changes_of_both_sides_are_joined_by_field_and_theirs_counts_where_both_changed_one() -> None:
    joined = {"role": "lead", "note": "mine"}
    step = compare(Agreed(1, OLD), HERE, Agreed(2, THERE), merge=True)
    assert step == Step(push=joined, pushes=True, take=joined, takes=True)
    both = compare(Agreed(1, OLD), {"role": "tester", "note": ""}, Agreed(2, THERE), merge=True)
    assert both.take == THERE
    assert not both.pushes
