from __future__ import annotations

import random

import pytest

from switchboard_mcp.bus.sequence import Mark, judge


@pytest.mark.parametrize(
    ("mark", "epoch", "sequence", "base", "verdict", "last"),
    [
        (Mark(), "a", 1, 1, "store", 0),
        (Mark("a", 3), "a", 4, 2, "store", 3),
        (Mark("a", 3), "a", 3, 2, "known", 3),
        (Mark("a", 3), "a", 5, 2, "gap", 3),
        (Mark("a", 3), "a", 9, 9, "store", 8),
        (Mark("a", 3), "a", 9, 7, "gap", 6),
        (Mark("a", 30), "b", 1, 1, "store", 0),
        (Mark(), "a", 57, 50, "gap", 49),
    ],
)
def test_a_letter_is_stored_in_its_turn_alone(
    mark: Mark, epoch: str, sequence: int, base: int, verdict: str, last: int
) -> None:
    assert judge(mark, epoch, sequence, base) == (verdict, Mark(epoch, last))


@pytest.mark.parametrize("seed", range(50))
def test_whatever_a_bus_loses_and_doubles_everything_is_stored_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    mark, stored, base = Mark(), list[int](), 1
    while len(stored) < 60:
        # The sender sends everything it keeps, in order; the bus loses some and brings some twice.
        sent = [
            number for number in range(base, min(base + 10, 61)) for _ in range(chance.choice([0, 1, 1, 2]))
        ]
        for number in sent:
            verdict, mark = judge(mark, "a", number, base)
            if verdict == "store":
                stored.append(number)
                mark = Mark("a", number)
        if chance.random() < 0.7:
            base = mark.last + 1
    assert stored == list(range(1, 61))
