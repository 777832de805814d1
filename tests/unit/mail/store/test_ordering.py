from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.mail.store.ordering import RANK, Counter, QueuedPosition, claim_order, reserve

waiting = st.lists(
    st.builds(
        QueuedPosition, st.integers(1, 10_000), st.sampled_from("abc"), st.sampled_from([*RANK, "unheard-of"])
    ),
    unique_by=lambda each: each.order,
)


class TestTurns:
    @given(waiting)
    def test_everybody_has_one_turn_and_no_sender_overtakes_itself(self, some: list[QueuedPosition]) -> None:
        turns = claim_order(some)
        assert sorted(turns) == list(range(len(some)))
        for sender in "abc":
            mine = [some[place].order for place in turns if some[place].sender == sender]
            assert mine == sorted(mine)

    @given(waiting)
    def test_the_first_turn_is_of_a_sender_with_the_highest_rank(self, some: list[QueuedPosition]) -> None:
        if some:
            first = some[claim_order(some)[0]]
            best = max(RANK.get(each.priority, 1) for each in some)
            assert best in [RANK.get(each.priority, 1) for each in some if each.sender == first.sender]

    def test_equals_take_turns_by_age(self) -> None:
        some = [
            QueuedPosition(3, "a", "normal"),
            QueuedPosition(1, "b", "normal"),
            QueuedPosition(2, "a", "normal"),
        ]
        assert claim_order(some) == [1, 2, 0]


class TestNumbers:
    @given(
        st.lists(
            st.tuples(
                st.integers(1, 50), st.sampled_from(["boot1", "boot2"]), st.integers(0, 10**15), st.booleans()
            )
        )
    )
    def test_numbers_only_grow_whatever_clocks_do_and_whenever_the_power_fails(
        self, steps: list[tuple[int, str, int, bool]]
    ) -> None:
        memory = disk = Counter("", 0, 0)
        highest = 0
        for count, boot, clock, power_fails in steps:
            if power_fails:
                # Only what was written durably is there; the machine has started again.
                memory = disk._replace(boot="before")
            taken = reserve(memory, count, boot, clock)
            assert taken.first > highest
            highest = taken.first + count - 1
            memory = taken.counter
            if taken.durable:
                disk = taken.counter
            assert highest <= disk.ceiling

    def test_a_ceiling_is_written_once_a_minute(self) -> None:
        counter, written = Counter("", 0, 0), 0
        for second in range(600):
            taken = reserve(counter, 1, "boot", 10**15 + second * 1_000_000)
            counter, written = taken.counter, written + taken.durable
        assert written <= 11
