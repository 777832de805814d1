"""Paths that agents have reserved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail import reservations
from switchboard_mcp.mail.store.store import State
from tests.cases import each_case
from tests.unit.mail.office import office

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def refusal(state: State, holder: str, *paths: str, now: datetime = NOON) -> Failure:
    with pytest.raises(SwitchboardError) as raised:
        reservations.reserve(holder, paths, 10, now=now)(state)
    return raised.value.failure


def test_a_reservation_of_another_agent_refuses_all_paths_with_holder_and_time() -> None:
    state: State = {}
    reservations.reserve("ada", ["src/*.py"], 30, "refactoring", now=NOON)(state)
    refused = refusal(state, "bob", "docs", "src/a.py")
    assert refused.code == "mail_paths_reserved"
    assert "src/*.py is reserved by 'ada' until 2026-01-01T12:30:00.000Z (refactoring)" in refused.message
    assert refused.retry_after_ms == 30 * 60_000
    assert [row["holder"] for row in state["reservations"]] == ["ada"]


def test_a_reservation_ends_by_itself() -> None:
    state: State = {}
    reservations.reserve("ada", ["src"], 30, now=NOON)(state)
    later = NOON + timedelta(minutes=30)
    reservations.reserve("bob", ["src/a.py"], 30, now=later)(state)
    assert [row["holder"] for row in state["reservations"]] == ["bob"]


def test_the_holder_of_a_lease_may_extend_or_release_it() -> None:
    state: State = {}
    reservations.reserve("ada", ["src", "docs"], 30, now=NOON)(state)
    own = reservations.reserve("ada", ["src"], 60, now=NOON)(state)
    assert {row.path: row.until[11:16] for row in own} == {"docs": "12:30", "src": "13:00"}
    assert reservations.release("bob", now=NOON)(state) == []
    assert reservations.release("ada", ["./src/"], now=NOON)(state) == ["src"]
    assert reservations.release("ada", now=NOON)(state) == ["docs"]
    assert state["reservations"] == []


@each_case("path", ["/etc", "../x", "a/../../b", "", "a\nb"])
def test_paths_outside_the_workspace_cannot_be_reserved(path: str) -> None:
    with pytest.raises(SwitchboardError, match="inside the workspace, relative to it"):
        reservations.reserve("ada", [path], 10)


def test_a_reservation_has_an_end() -> None:
    state: State = {}
    reservations.reserve("ada", [f"f{number}" for number in range(200)], 10, now=NOON)(state)
    assert "At most 200" in refusal(state, "ada", "one-more").message


def test_rows_that_make_no_sense_hold_nothing() -> None:
    state: State = {
        "reservations": [5, {"path": "src"}, {"path": "a", "holder": "x", "until": "z", "since": ""}]
    }
    reservations.reserve("ada", ["src", "a"], 10, now=NOON)(state)
    assert len(state["reservations"]) == 2


async def test_agents_learn_by_the_tools_who_is_at_it(tmp_path: Path) -> None:
    async with office(tmp_path) as server, office(tmp_path) as other:
        ada, bob = await server.agent("ada"), await other.agent("bob")
        mine = await ada.call("reserve_paths", paths=["src/**"], minutes=5, reason="cache")
        assert [row["path"] for row in mine["yours"]] == ["src/**"]
        clash = await bob.failure("reserve_paths", paths=["src/mail/post.py"])
        (conflict,) = clash["data"]["conflicts"]
        assert (conflict["holder"], conflict["until"]) == ("ada", mine["yours"][0]["until"])
        theirs = await bob.call("reserve_paths", paths=["docs"])
        assert [row["holder"] for row in theirs["others"]] == ["ada"]
        assert await ada.call("release_paths") == {"released": ["src/**"]}
        await bob.call("reserve_paths", paths=["src/mail/post.py"])
