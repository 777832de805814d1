from __future__ import annotations

import random

from switchboard_mcp.bus.sequence import SequenceMark, check_sequence
from tests.cases import each_case


@each_case(
    ("mark", "epoch", "sequence", "base", "verdict", "last"),
    [
        (SequenceMark(), "a", 1, 1, "store", 0),
        (SequenceMark("a", 3), "a", 4, 2, "store", 3),
        (SequenceMark("a", 3), "a", 3, 2, "known", 3),
        (SequenceMark("a", 3), "a", 5, 2, "gap", 3),
        (SequenceMark("a", 3), "a", 9, 9, "store", 8),
        (SequenceMark("a", 3), "a", 9, 7, "gap", 6),
        (SequenceMark("a", 30), "b", 1, 1, "store", 0),
        (SequenceMark(), "a", 57, 50, "gap", 49),
    ],
)
def test_a_letter_is_stored_in_its_turn_alone(
    mark: SequenceMark, epoch: str, sequence: int, base: int, verdict: str, last: int
) -> None:
    assert check_sequence(mark, epoch, sequence, base) == (verdict, SequenceMark(epoch, last))


@each_case("seed", range(50))
def test_lost_and_doubled_messages_are_stored_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    mark, stored, base = SequenceMark(), list[int](), 1
    while len(stored) < 60:
        # The sender sends everything it keeps, in order; the bus loses some and brings some twice.
        sent = [
            number for number in range(base, min(base + 10, 61)) for _ in range(chance.choice([0, 1, 1, 2]))
        ]
        for number in sent:
            verdict, mark = check_sequence(mark, "a", number, base)
            if verdict == "store":
                stored.append(number)
                mark = SequenceMark("a", number)
        if chance.random() < 0.7:
            base = mark.last + 1
    assert stored == list(range(1, 61))
