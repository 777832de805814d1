from __future__ import annotations

import random
from itertools import permutations

from switchboard_mcp.bus.merge import MergeBase, MergeStep, Value, compare, newer
from tests.cases import each_case

OLD: Value = {"role": "coder", "note": ""}
HERE: Value = {"role": "coder", "note": "mine"}
THERE: Value = {"role": "lead", "note": ""}


def _pushed(value: Value, revision: int) -> MergeStep:
    return MergeStep(push=value, pushes=True, revision=revision)


@each_case(
    ("agreed", "here", "there", "merge", "step"),
    [
        (MergeBase(1, OLD), OLD, MergeBase(1, OLD), True, MergeStep()),
        (MergeBase(), OLD, MergeBase(), True, _pushed(OLD, 1)),
        (MergeBase(1, OLD), HERE, MergeBase(1, OLD), True, _pushed(HERE, 2)),
        (MergeBase(1, OLD), None, MergeBase(1, OLD), True, _pushed(None, 2)),
        (MergeBase(1, OLD), OLD, MergeBase(2, THERE), True, MergeStep(take=THERE, takes=True)),
        (MergeBase(1, OLD), OLD, MergeBase(2, None), True, MergeStep(take=None, takes=True)),
        (MergeBase(1, OLD), THERE, MergeBase(2, THERE), True, MergeStep(take=THERE, takes=False)),
        (MergeBase(1, OLD), HERE, MergeBase(2, THERE), False, MergeStep(take=THERE, takes=True)),
    ],
)
def test_a_change_on_one_side_goes_to_the_other(
    agreed: MergeBase, here: Value, there: MergeBase, merge: bool, step: MergeStep
) -> None:
    assert compare(agreed, here, there, merge=merge) == step


def test_changes_of_both_sides_are_joined_by_field_and_theirs_counts_where_both_changed_one() -> None:
    joined = {"role": "lead", "note": "mine"}
    step = compare(MergeBase(1, OLD), HERE, MergeBase(2, THERE), merge=True)
    assert step == MergeStep(push=joined, pushes=True, take=joined, takes=True, revision=3)
    both = compare(MergeBase(1, OLD), {"role": "tester", "note": ""}, MergeBase(2, THERE), merge=True)
    assert both.take == THERE
    assert not both.pushes


@each_case("merge", [True, False])
@each_case("there", [MergeBase(), MergeBase(3, None), MergeBase(6, OLD)])
def test_an_older_or_empty_table_is_answered_with_our_entry_under_its_revision(
    there: MergeBase, merge: bool
) -> None:
    def restored(value: Value, revision: int) -> MergeStep:
        return _pushed(value, revision)._replace(restores=True)

    assert compare(MergeBase(7, THERE), THERE, there, merge=merge) == restored(THERE, 7)
    assert compare(MergeBase(7, None), None, there, merge=merge) == restored(None, 7)
    assert compare(MergeBase(7, THERE), HERE, there, merge=merge) == restored(HERE, 8)


@each_case("merge", [True, False])
def test_two_values_of_one_revision_are_a_conflict_that_both_sides_decide_alike(merge: bool) -> None:
    done: Value = {"phase": "review", "completed": ["plan", "build"]}
    begun: Value = {"phase": "build", "completed": ["plan"]}
    keeps = compare(MergeBase(4, done), done, MergeBase(4, begun), merge=merge)
    takes = compare(MergeBase(4, begun), begun, MergeBase(4, done), merge=merge)
    assert keeps == MergeStep(push=done, pushes=True, revision=4, conflict=True)
    assert takes == MergeStep(take=done, takes=True, conflict=True)


def _random_entry(source: random.Random) -> MergeBase:
    value: Value = None if source.random() < 0.2 else {"a": source.randrange(3), "b": source.choice("xyz")}
    return MergeBase(source.randrange(4), value)


def test_the_newer_entry_is_the_same_in_every_order_and_never_older() -> None:
    source = random.Random(20)
    for _ in range(2_000):
        entries = [_random_entry(source) for _ in range(3)]
        results = set()
        for one, two, three in permutations(entries):
            result = newer(newer(one, two), three)
            results.add(repr(result))
            assert newer(result, one) == result  # idempotent
            assert result.revision == max(each.revision for each in entries)  # monotone
            assert newer(one, newer(two, three)) == result  # associative
        assert len(results) == 1  # commutative


class _Node:
    """A machine that synchronises one entry with a table, as the relay does."""

    def __init__(self) -> None:
        self.agreed = MergeBase()
        self.here: Value = None

    def sync(self, table: MergeBase, *, merge: bool) -> MergeBase:
        step = compare(self.agreed, self.here, table, merge=merge)
        if step.pushes and (step.push is not None or step.revision > 1):
            table = MergeBase(step.revision, step.push)
            self.here = step.push
        elif step.takes:
            self.here = step.take
        assert newer(self.agreed, table) == table, "a machine went back"
        self.agreed = table
        return table


@each_case("merge", [True, False])
def test_nodes_converge_and_none_goes_back_whatever_the_table_forgets(merge: bool) -> None:
    for seed in range(300):
        source = random.Random(seed)
        nodes = [_Node() for _ in range(3)]
        table, copies = MergeBase(), [MergeBase()]
        for _ in range(30):
            node = source.choice(nodes)
            what = source.random()
            if what < 0.3:
                node.here = {"a": source.randrange(100), "b": source.randrange(100)}
            elif what < 0.35:
                node.here = None
            elif what < 0.45:
                table = source.choice(copies)  # Redis comes back empty, or from an older copy.
            else:
                table = node.sync(table, merge=merge)
                copies.append(table)
        highest = max(node.agreed.revision for node in nodes)
        for _ in range(3):
            for node in nodes:
                table = node.sync(table, merge=merge)
        assert table.revision >= highest
        assert all(node.here == table.value for node in nodes), seed
