from __future__ import annotations

from switchboard_mcp.edge.dashboard_savings import MOST_POINTS, Savings


def series(savings: Savings) -> list[tuple[int, int]]:
    return [(point.at, point.saved) for point in savings.points]


def test_nothing_is_saved_before_a_host_was_served() -> None:
    savings = Savings(0)
    savings.note(1000, {"a": 50, "b": 7}, 0)
    assert series(savings) == [(0, 0), (1000, 0)]
    assert savings.suites == {"a": 50, "b": 7}


def test_every_host_that_was_served_saves_the_same_again() -> None:
    savings = Savings(0)
    savings.note(1000, {"a": 50}, 1)
    savings.note(2000, {"a": 50, "b": 7}, 3)
    assert series(savings) == [(0, 0), (1000, 50), (2000, 171)]


def test_a_level_stretch_has_two_points_however_often_it_is_looked_at() -> None:
    savings = Savings(0)
    for at in range(1000, 50_000, 1000):
        savings.note(at, {"a": 50}, 1)
    assert series(savings) == [(0, 0), (1000, 50), (49_000, 50)]
    assert savings.note(50_000, {"a": 50}, 1) is None


def test_a_long_series_is_thinned_out_from_its_old_end_and_keeps_both_ends() -> None:
    savings = Savings(0)
    for at in range(1, 5 * MOST_POINTS):
        savings.note(at, {"a": at}, 1)
        assert len(savings.points) <= MOST_POINTS
    assert series(savings)[0] == (0, 0)
    assert series(savings)[-3:] == [(at, at) for at in range(5 * MOST_POINTS - 3, 5 * MOST_POINTS)]
    assert series(savings) == sorted(series(savings))
