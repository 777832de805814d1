"""The loop whose far timers are alarms. pytest's own time limit is an alarm too, and is off here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from switchboard_mcp.transport import alarms
from switchboard_mcp.transport.alarms import FEW, AlarmLoop

pytestmark = pytest.mark.timeout(0)
NO_ALARM = (0.0, 0.0)


@pytest.fixture
def loop() -> Iterator[AlarmLoop]:
    before = signal.getsignal(signal.SIGALRM)
    loop = AlarmLoop()
    yield loop
    loop.close()
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def all_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "NEAR_S", 0.0)


@pytest.mark.usefixtures("all_far")
def test_timers_run_in_the_order_of_their_times(loop: AlarmLoop) -> None:
    ran: list[str] = []
    loop.call_later(0.02, ran.append, "second")
    loop.call_later(0.01, ran.append, "first")
    loop.call_later(0.03, loop.stop)
    loop.run_forever()
    assert ran == ["first", "second"]


@pytest.mark.usefixtures("all_far")
def test_a_cancelled_timer_does_not_run(loop: AlarmLoop) -> None:
    ran: list[str] = []
    loop.call_later(0.01, ran.append, "cancelled").cancel()
    late = loop.call_later(0.02, ran.append, "cancelled in the last moment")
    loop.call_at(late.when() - 1e-9, late.cancel)
    loop.call_later(0.03, loop.stop)
    loop.run_forever()
    assert ran == []


@pytest.mark.usefixtures("all_far")
def test_sleeping_and_limits_work_as_ever(loop: AlarmLoop) -> None:
    async def too_long() -> None:
        await asyncio.sleep(0.001)
        async with asyncio.timeout(0.01):
            await loop.create_future()

    with pytest.raises(TimeoutError):
        loop.run_until_complete(too_long())


def test_alarms_are_heard_though_whoever_started_us_hears_none() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    before = signal.getsignal(signal.SIGALRM)
    AlarmLoop().close()
    signal.signal(signal.SIGALRM, before)
    assert signal.SIGALRM not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_a_far_timer_puts_no_limit_on_a_turn_of_the_loop(
    loop: AlarmLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.call_later(3600, print)
    limits: list[float | None] = []
    selector = loop._selector  # type: ignore[attr-defined]
    select = selector.select

    def noting(limit: float | None = None) -> object:
        limits.append(limit)
        loop.call_soon_threadsafe(loop.stop)
        return select(limit)

    monkeypatch.setattr(selector, "select", noting)
    loop.run_forever()
    assert limits[0] is None
    assert 3590 < signal.getitimer(signal.ITIMER_REAL)[0] <= 3600


@pytest.mark.usefixtures("all_far")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Python warns of the full socket
def test_an_alarm_is_heard_though_threads_have_filled_what_wakes_the_loop(loop: AlarmLoop) -> None:
    loop.call_later(0.01, loop.stop)
    for _ in range(2000):
        loop.call_soon_threadsafe(int)
    while signal.getitimer(signal.ITIMER_REAL) != NO_ALARM:
        pass
    loop.run_forever()


@pytest.mark.parametrize("far_s", [200_000_000, 1e10, float("inf")])
def test_nothing_is_too_far_off(loop: AlarmLoop, far_s: float) -> None:
    loop.call_later(far_s, print)
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 86_400


def test_a_near_timer_rings_no_alarm(loop: AlarmLoop) -> None:
    loop.call_later(0.01, loop.stop)
    assert signal.getitimer(signal.ITIMER_REAL) == NO_ALARM
    loop.run_forever()


def test_cancelled_timers_do_not_pile_up(loop: AlarmLoop) -> None:
    wanted = loop.call_later(100, print)
    for _ in range(50 * FEW):
        loop.call_later(3600, print).cancel()
    assert wanted in loop._far
    assert len(loop._far) <= FEW


def test_a_closed_loop_takes_no_timers_and_leaves_no_alarm(loop: AlarmLoop) -> None:
    loop.call_later(3600, print)
    loop.close()
    assert signal.getitimer(signal.ITIMER_REAL) == NO_ALARM
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(3600, print)
    assert signal.getitimer(signal.ITIMER_REAL) == NO_ALARM
