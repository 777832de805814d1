from __future__ import annotations

import pytest

from switchboard_mcp.observability.timeline import BOUNDS, TIERS, ChildTimeline, Timeline, percentile
from tests.cases import each_case

FINE_S, FINE_MOST = TIERS[0]


def test_before_the_first_call_there_is_nothing() -> None:
    timeline = Timeline()
    assert timeline.current() is None
    assert timeline.points() == []


def test_calls_of_one_span_are_reported_together_and_quiet_times_not_at_all() -> None:
    timeline = Timeline()
    timeline.add(1_000.0, 1.0, failed=False)
    timeline.add(1_004.9, 3.0, failed=True)
    timeline.add(1_100.0, 2.0, failed=False)
    points = [(point.at, point.seconds, point.calls, point.errors) for point in timeline.points()]
    assert points == [(1_000_000, 5, 2, 1), (1_100_000, 5, 1, 0)]
    newest = timeline.current()
    assert newest is not None
    assert newest == timeline.points()[-1]


@each_case("hours", [0.1, 1, 10, 100])
def test_memory_is_bounded_and_every_call_is_reported_once_however_long_it_runs(hours: float) -> None:
    timeline = Timeline()
    begin, step = 1_000_003, 5
    count = int(hours * 3600 / step)
    for number in range(count):
        timeline.add(begin + number * step, 1.0, failed=number % 10 == 0)
    points = timeline.points()
    assert len(points) <= sum(most for _, most in TIERS) + len(TIERS)
    ends = [point.at + point.seconds * 1000 for point in points]
    assert all(end <= later.at for end, later in zip(ends, points[1:], strict=False))
    if hours * 3600 < TIERS[2][0] * TIERS[2][1]:
        assert sum(point.calls for point in points) == count
        assert sum(point.errors for point in points) == (count + 9) // 10
    assert {point.seconds for point in points[-FINE_MOST + 12 :]} == {FINE_S}


@each_case("step", [7, 30, 59, 60, 90, 300, 900, 3600])
def test_calls_that_come_rarely_are_each_told_once_too(step: int) -> None:
    timeline = Timeline()
    count = min(2_000, TIERS[2][1] * max(1, TIERS[2][0] // step))
    for number in range(count):
        timeline.add(1_000_003 + number * step, 1.0, failed=False)
    points = timeline.points()
    assert sum(point.calls for point in points) == count
    ends = [point.at + point.seconds * 1000 for point in points]
    assert all(end <= later.at for end, later in zip(ends, points[1:], strict=False))


def test_an_hour_is_reported_in_full_and_its_newest_part_finely() -> None:
    timeline = Timeline()
    for second in range(3600):
        timeline.add(float(second), 10.0 if second < 1800 else 40.0, failed=False)
    points = timeline.points()
    assert points[0].at == 0
    assert sum(point.calls for point in points) == 3600
    assert {point.seconds for point in points} == {60, 5}
    assert points[0].p50 == pytest.approx(10, rel=0.1)
    assert points[-1].p50 == pytest.approx(40, rel=0.1)


def test_a_clock_that_is_set_back_loses_no_call() -> None:
    timeline = Timeline()
    for at in (5_000.0, 1_000.0, 5_000.0):
        timeline.add(at, 1.0, failed=False)
    assert sum(point.calls for point in timeline.points()) == 3


@each_case("ms", [0.05, 0.3, 1.0, 7.0, 250.0, 59_000.0])
def test_a_time_is_reported_within_a_tenth(ms: float) -> None:
    timeline = Timeline()
    timeline.add(0.0, ms, failed=False)
    (point,) = timeline.points()
    assert point.p50 == point.p95 == pytest.approx(ms, rel=0.1)


def test_the_slow_end_is_told_apart_from_the_middle() -> None:
    bins = [0] * (len(BOUNDS) + 1)
    bins[10], bins[40] = 90, 10
    assert percentile(bins, 0.5) < BOUNDS[10]
    assert BOUNDS[39] < percentile(bins, 0.95) < BOUNDS[40]


def test_the_longest_durations_count_in_the_last_bucket() -> None:
    timeline = Timeline()
    timeline.add(0.0, 1e9, failed=False)
    assert timeline.points()[0].p50 > 500_000


def test_a_tally_tells_the_last_calls() -> None:
    tally = ChildTimeline()
    tally.times.extend(float(number) for number in range(1, 1_001))
    assert (tally.percentile_ms(0.5), tally.percentile_ms(0.95)) == (873.0, 987.0)
