from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from switchboard_mcp.server.dashboard import savings_history
from switchboard_mcp.server.dashboard.savings_history import MAX_POINTS, SavingsHistory


def series(savings: SavingsHistory) -> list[tuple[int, int]]:
    return [(point.at, point.saved) for point in savings.points]


class Counts:
    """What the call log counts."""

    def __init__(self) -> None:
        self.callers: dict[str, int] = {}
        self.introspections: dict[str, int] = {}


def sample(savings: SavingsHistory, usage: Counts, at: int, saved: int = 50, opening: float = 0.0) -> object:
    savings.count(usage, lambda principal: saved, lambda child: opening)
    return savings.add(at)


def test_only_sessions_that_called_something_save_and_introspecting_costs() -> None:
    savings, usage = SavingsHistory(0), Counts()
    sample(savings, usage, 1000)
    usage.callers["http"] = 2
    sample(savings, usage, 2000)
    usage.introspections["git"] = 3
    sample(savings, usage, 3000, opening=10.0)
    assert series(savings) == [(0, 0), (1000, 0), (2000, 100), (3000, 70)]


def test_introspecting_without_a_call_has_saved_less_than_nothing() -> None:
    savings, usage = SavingsHistory(0), Counts()
    usage.introspections["git"] = 1
    sample(savings, usage, 1000, opening=10.0)
    assert series(savings)[-1] == (1000, -10)


def test_each_session_counts_by_the_suites_of_its_principal() -> None:
    savings, usage = SavingsHistory(0), Counts()
    usage.callers.update(ann=2, ben=1)
    savings.count(usage, {"ann": 5, "ben": 100}.__getitem__, lambda child: 0.0)
    savings.add(1000)
    assert series(savings)[-1] == (1000, 110)


def test_a_level_stretch_has_two_points_however_often_it_is_looked_at() -> None:
    savings, usage = SavingsHistory(0), Counts()
    usage.callers["http"] = 1
    for at in range(1000, 50_000, 1000):
        sample(savings, usage, at)
    assert series(savings) == [(0, 0), (1000, 50), (49_000, 50)]
    assert sample(savings, usage, 50_000) is None


def test_savings_stay_when_the_suites_change_and_later_sessions_count_with_the_new_ones() -> None:
    savings, usage = SavingsHistory(0), Counts()
    usage.callers["http"] = 2
    sample(savings, usage, 1000, saved=50)
    sample(savings, usage, 2000, saved=10)
    usage.callers["http"] = 3
    sample(savings, usage, 3000, saved=10)
    assert [saved for _, saved in series(savings)] == [0, 100, 100, 110]


async def test_it_looks_by_itself_once_something_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings_history, "SAMPLE_S", 0.0)
    looked = asyncio.Event()

    def saved_by_listing(suite: object) -> int:
        looked.set()
        return 7

    monkeypatch.setattr(savings_history, "saved_by_listing", saved_by_listing)
    suites = {"a": SimpleNamespace(name="a")}
    gateway = SimpleNamespace(all_suites=suites, view_of=lambda principal: SimpleNamespace(suites=suites))
    savings, usage = SavingsHistory(0), Counts()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(savings.sample_forever(gateway, usage))  # type: ignore[arg-type]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not looked.is_set()
        usage.callers["http"] = 3
        await looked.wait()
        while len(savings.points) < 2:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        following.cancel()
    assert savings.points[-1].saved == 21


def test_a_long_series_is_thinned_out_from_its_old_end_and_keeps_both_ends() -> None:
    savings, usage = SavingsHistory(0), Counts()
    for at in range(1, 5 * MAX_POINTS):
        usage.callers["http"] = at
        sample(savings, usage, at, saved=1)
        assert len(savings.points) <= MAX_POINTS
    assert series(savings)[0] == (0, 0)
    assert series(savings)[-3:] == [(at, at) for at in range(5 * MAX_POINTS - 3, 5 * MAX_POINTS)]
    assert series(savings) == sorted(series(savings))
