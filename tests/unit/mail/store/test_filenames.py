from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config.agent_names import AGENT, agent_name, is_agent_name
from switchboard_mcp.mail.store.filenames import (
    MESSAGE_ID,
    Lease,
    MessageFile,
    Now,
    Stem,
    claimed_name,
    is_message_id,
    name_patterns,
    new_lease,
    parse,
    parse_receipt_name,
    receipt_name,
    settled_name,
    waiting_name,
)

numbers = st.integers(0, 10**16 - 1)
tails = st.one_of(
    st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    st.from_regex(r"key-[0-9a-f]{24}", fullmatch=True),
    st.from_regex(r"file-[A-Za-z0-9_-]{1,100}", fullmatch=True),
)
stems = st.builds(Stem, numbers, tails)
boots = st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
leases = st.builds(Lease, numbers, boots, st.integers(0, 10**14 - 1), st.integers(0, 10**15 - 1))


class TestAgentNames:
    @given(st.text())
    def test_whatever_is_written_becomes_a_safe_name_or_none(self, written: str) -> None:
        name = agent_name(written)
        assert name is None or (
            re.fullmatch(AGENT, name) and is_agent_name(name) and agent_name(name) == name
        )

    @given(st.from_regex(AGENT, fullmatch=True))
    def test_a_name_stays_as_it_is(self, name: str) -> None:
        assert agent_name(name) == name

    @pytest.mark.parametrize(
        ("written", "name"),
        [
            ("coder 1", "coder-1"),
            ("Lead", "lead"),
            ("x" * 64, "x" * 64),
            ("x" * 65, None),
            ("a\n", None),
            ("", None),
        ],
    )
    def test_the_roles_spaced_forms_are_names(self, written: str, name: str | None) -> None:
        assert agent_name(written) == name


class TestNames:
    @given(stems)
    def test_a_waiting_name_says_its_stem(self, stem: Stem) -> None:
        assert parse("inbox", waiting_name(stem)) == MessageFile(stem, "inbox", waiting_name(stem))
        assert is_message_id(stem.id) or len(stem.id) > 104

    @given(stems, leases, st.integers(1, 99))
    def test_a_name_says_how_often_a_message_came_back(self, stem: Stem, lease: Lease, times: int) -> None:
        waiting, claimed = waiting_name(stem, times), claimed_name(stem, lease, times)
        assert parse("inbox", waiting) == MessageFile(stem, "inbox", waiting, returns=times)
        assert parse("claimed", claimed) == MessageFile(
            stem, "claimed", claimed, lease, lease.fence, returns=times
        )
        assert len(claimed.encode()) <= 255

    @given(stems, leases)
    def test_a_claimed_name_says_its_lease_and_fits_a_folder(self, stem: Stem, lease: Lease) -> None:
        name = claimed_name(stem, lease)
        assert parse("claimed", name) == MessageFile(stem, "claimed", name, lease, lease.fence)
        assert len(name) <= 255
        assert parse("inbox", name) is None

    @given(stems, leases)
    def test_an_id_says_how_the_name_of_its_file_goes_on(self, stem: Stem, lease: Lease) -> None:
        for name in (waiting_name(stem), claimed_name(stem, lease), settled_name(stem, 7, "done")):
            assert any(name.startswith(begins, at) for begins, at in name_patterns(stem.id))
            assert not any(name.startswith(begins, at) for begins, at in name_patterns(stem.id[:-1]))

    @given(stems, numbers, st.sampled_from(["done", "failed", "rejected"]))
    def test_a_settled_name_says_how_it_ended(self, stem: Stem, fence: int, outcome: str) -> None:
        found = parse("archive", settled_name(stem, fence, outcome))
        assert found is not None
        assert (found.stem, found.fence, found.outcome) == (stem, fence, outcome)

    @given(st.lists(stems, min_size=2, unique_by=lambda stem: stem.order))
    def test_names_sort_as_messages_were_accepted(self, some: list[Stem]) -> None:
        assert sorted(map(waiting_name, some)) == [
            waiting_name(s) for s in sorted(some, key=lambda s: s.order)
        ]

    @given(st.text(max_size=40), st.sampled_from(["inbox", "claimed", "archive", "deadletter"]))
    def test_anything_else_is_no_name(self, name: str, place: str) -> None:
        assert parse(place, name) is None  # type: ignore[arg-type]

    @given(st.from_regex(MESSAGE_ID, fullmatch=True))
    def test_a_receipt_says_whose_it_is(self, message_id: str) -> None:
        assert parse_receipt_name(receipt_name(message_id)) == (message_id, None)
        assert parse_receipt_name(receipt_name(message_id, "failed")) == (message_id, "failed")

    def test_a_dropped_message_keeps_its_id(self) -> None:
        assert Stem(7, "file-1_a").id == "msg_1_a"


class TestLeases:
    @pytest.mark.parametrize(
        ("now", "over"),
        [
            (Now("aaaaaaaa", 1999, 9_999_999), False),  # a clock that was set ahead ends nothing
            (Now("aaaaaaaa", 2000, 0), True),  # one that was set back holds nothing up
            (Now("bbbbbbbb", 9_999_999, 5999), False),  # another machine, or another start of it
            (Now("bbbbbbbb", 0, 6000), True),
        ],
    )
    def test_a_lease_is_over_by_the_clock_that_counts(self, now: Now, over: bool) -> None:
        lease = new_lease(1, Now("aaaaaaaa", 1000, 5000), 1000)
        assert lease.has_expired(now) is over
