from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from switchboard_mcp.server.dashboard import savings_history
from switchboard_mcp.server.dashboard.savings_history import MAX_POINTS, SavingsHistory


def series(savings: SavingsHistory) -> list[tuple[int, int]]:
    return [(point.at, point.saved) for point in savings.points]


def test_nothing_is_saved_before_a_host_was_served() -> None:
    savings = SavingsHistory(0)
    savings.add(1000, {"a": 50, "b": 7}, 0)
    assert series(savings) == [(0, 0), (1000, 0)]
    assert savings.suites == {"a": 50, "b": 7}


def test_every_host_that_was_served_saves_the_same_again() -> None:
    savings = SavingsHistory(0)
    savings.add(1000, {"a": 50, "b": 0}, 1)
    savings.add(2000, {"a": 50, "b": 7}, 3)
    assert series(savings) == [(0, 0), (1000, 50), (2000, 171)]


def test_a_level_stretch_has_two_points_however_often_it_is_looked_at() -> None:
    savings = SavingsHistory(0)
    for at in range(1000, 50_000, 1000):
        savings.add(at, {"a": 50}, 1)
    assert series(savings) == [(0, 0), (1000, 50), (49_000, 50)]
    assert savings.add(50_000, {"a": 50}, 1) is None


def test_what_was_saved_stays_saved_when_the_suites_change_and_later_hosts_save_by_the_new_ones() -> None:
    savings = SavingsHistory(0)
    savings.add(1000, {"a": 50, "b": 0}, 2)
    savings.add(2000, {"a": 50, "b": 10}, 2)  # the same suites, of which more is known
    savings.add(3000, {"a": 50}, 2)
    savings.add(4000, {"a": 50}, 3)
    assert [saved for _, saved in series(savings)] == [0, 100, 120, 120, 170]


async def test_it_looks_by_itself_once_a_host_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings_history, "SAMPLE_S", 0.0)
    looked = asyncio.Event()
    hosts = 0

    def tokens_saved_by(suite: object) -> int:
        looked.set()
        return 7

    monkeypatch.setattr(savings_history, "tokens_saved_by", tokens_saved_by)
    savings, gateway = SavingsHistory(0), SimpleNamespace(all_suites={"a": SimpleNamespace(name="a")})
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(savings.sample_forever(gateway, lambda: hosts))  # type: ignore[arg-type]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not looked.is_set()
        hosts = 3
        await looked.wait()
        while len(savings.points) < 2:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        following.cancel()
    assert savings.points[-1].saved == 21


def test_a_long_series_is_thinned_out_from_its_old_end_and_keeps_both_ends() -> None:
    savings = SavingsHistory(0)
    for at in range(1, 5 * MAX_POINTS):
        savings.add(at, {"a": at}, 1)
        assert len(savings.points) <= MAX_POINTS
    assert series(savings)[0] == (0, 0)
    assert series(savings)[-3:] == [(at, at) for at in range(5 * MAX_POINTS - 3, 5 * MAX_POINTS)]
    assert series(savings) == sorted(series(savings))
