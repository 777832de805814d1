"""Sessions that share a connection take turns."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard_mcp.errors import failure
from switchboard_mcp.transport.fair_queue import (
    ALONE_S,
    LONGEST_S,
    MAX_WAITING_BYTES,
    MOST_AHEAD,
    PAUSE_S,
    REVIEW_S,
    SLOWER,
    Window,
)
from switchboard_mcp.transport.rpc import Peer
from tests.cases import each_case
from tests.unit.transport.test_rpc import ClockLoop, Listener, Probe, Script

GONE = failure("child_crashed", "Child 'a' is gone.", child="a")


# Calls of a session at the other side, before it has answered any.
WINDOW = 1
Step = tuple[Any, ...]


class SessionCall(Probe):
    """A call of a session."""

    __slots__ = ("session",)

    def __init__(self, session: str | None, timeout: float = 10.0) -> None:
        super().__init__(timeout)
        self.session = session

    @property
    def sender(self) -> object:
        return self.session


class Shared:
    """A connection that sessions share, and every call of theirs."""

    def __init__(self) -> None:
        self.loop = ClockLoop()
        self.link = Script()
        self.peer = Peer(self.loop, self.link, Listener())
        self.peer.start()
        self.calls: list[SessionCall] = []
        self.answered: set[int] = set()

    def send(self, session: str | None, count: int = 1, timeout: float = 10.0) -> list[SessionCall]:
        sent = [SessionCall(session, timeout) for _ in range(count)]
        self.calls += sent
        for call in sent:
            self.peer.send(call)
        return sent

    def arrived(self, session: str | None = None) -> list[SessionCall]:
        """The calls that reached the other side, in order."""
        by_id = {call.number: call for call in self.calls}
        numbers = [message["id"] for message in self.link.sent if "id" in message]
        return [by_id[number] for number in numbers if session in (None, by_id[number].session)]

    def unanswered(self) -> list[SessionCall]:
        """The calls that the other side works on."""
        ended = {
            message["params"]["requestId"] for message in self.link.sent if "id" not in message
        } | self.answered
        return [call for call in self.arrived() if call.number not in ended]

    def answer(self, call: SessionCall) -> None:
        self.answered.add(call.number)
        self.link.say(id=call.number, result="done")

    def serve(self, count: int, every_s: float = 0.0) -> None:
        """Answer the oldest call, again and again."""
        for _ in range(count):
            self.loop.advance(every_s)
            self.answer(self.unanswered()[0])


@pytest.fixture
def shared() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.loop.close()


def test_a_session_alone_does_not_wait(shared: Shared) -> None:
    shared.send("busy", 100)
    assert len(shared.arrived()) == 100


def test_a_call_waits_for_few_calls_of_another_session(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 100)
    (quiet,) = shared.send("quiet")
    assert shared.arrived().index(quiet) == WINDOW


def test_calls_that_were_sent_before_count(shared: Shared) -> None:
    shared.send("busy", 100)
    shared.peer.take_turns()
    shared.send("busy", 10)
    assert len(shared.arrived()) == 100
    shared.serve(100 - WINDOW + 1)
    assert len(shared.arrived()) == 101


def test_busy_sessions_are_served_in_turn(shared: Shared) -> None:
    shared.peer.take_turns()
    for session in "abc":
        shared.send(session, 50)
    shared.serve(90, 0.0001)
    served = Counter(call.session for call in shared.calls if call.ends)
    assert max(served.values()) - min(served.values()) <= 2


def test_own_requests_take_no_turns(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send(None, 3 * WINDOW)
    assert len(shared.arrived()) == 3 * WINDOW


def test_a_server_that_answers_nothing_soon_gets_all_calls(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 1000, timeout=60)
    for _ in range(round(0.5 / REVIEW_S)):
        shared.loop.advance(REVIEW_S)
    assert len(shared.arrived()) == 1000


@pytest.mark.parametrize("every_s", [0.00005, 0.005, 0.05])
def test_a_server_that_works_on_one_call_at_a_time_stays_fair(shared: Shared, every_s: float) -> None:
    shared.peer.take_turns()
    shared.send("busy", 500, timeout=600)
    steps = max(1, min(round(every_s / REVIEW_S), 10))
    for number in range(400):  # by then, what was sent before its pace was known is done
        for _ in range(steps):
            shared.loop.advance(every_s / steps)
        shared.answer(shared.unanswered()[0])
        shared.send("busy" if number % 20 else "quiet", timeout=600)
    (quiet,) = shared.send("quiet", timeout=600)
    assert shared.unanswered().index(quiet) <= 2 * WINDOW


def sizes(window: Window, interval_s: Callable[[int], float], count: int, now: float = 1.0) -> list[int]:
    """The sizes of a window at each answer of a server, by the time between its answers."""
    seen = []
    for _ in range(count):
        seen.append(window.size)
        now += interval_s(window.size)
        window.add_answer(now)
    return seen


@each_case("call_s", [0.0002, 0.01, 1.0])
def test_a_server_that_works_on_one_call_at_a_time_is_sent_one(call_s: float) -> None:
    seen = sizes(Window(), lambda _size: call_s, 2000)
    assert max(seen) == 2
    assert seen.count(1) > 0.85 * len(seen)


@each_case(("call_s", "at_once"), [(0.0002, 4), (0.01, 64), (1.0, 16)])
def test_a_server_that_works_on_many_calls_is_sent_as_many(call_s: float, at_once: int) -> None:
    seen = sizes(Window(), lambda size: call_s / min(size, at_once), 200 * at_once)
    assert max(seen) == 2 * at_once
    assert seen[-100 * at_once :].count(at_once) > 60 * at_once


def test_a_server_that_is_faster_with_many_calls_is_sent_as_many_as_others_hardly_notice() -> None:
    overhead_s, call_s = 0.00005, 0.000005
    seen = sizes(Window(), lambda size: (overhead_s + call_s * size) / size, 5000)
    usual = Counter(seen).most_common(1)[0][0]
    assert usual > 2
    assert overhead_s + call_s * usual <= SLOWER * (overhead_s + call_s)


def test_a_window_follows_a_server_that_has_changed() -> None:
    window = Window()
    sizes(window, lambda size: 0.01 / min(size, 64), 5000)
    seen = sizes(window, lambda _size: 0.0005, 20_000, now=1000.0)
    assert max(seen[-1000:]) <= 2


def test_while_others_pause_a_session_has_more_calls_there(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 500, timeout=600)
    shared.send("quiet")
    shared.serve(50, 0.0001)
    assert len(shared.unanswered()) <= 2
    shared.loop.now += 2 * PAUSE_S  # no review meanwhile
    shared.serve(100, 0.0001)
    assert 8 <= len(shared.unanswered()) <= MOST_AHEAD
    shared.send("quiet")
    shared.serve(100, 0.0001)
    assert len(shared.unanswered()) <= 2


def test_a_long_silence_always_lets_calls_go(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 100, timeout=600)
    for _ in range(10):
        shared.loop.now += 10  # no review meanwhile, so its interval seems long
        shared.answer(shared.unanswered()[0])
        shared.send("quiet", timeout=600)
    before = len(shared.arrived("busy"))
    shared.loop.now += LONGEST_S
    shared.loop.settle()
    assert len(shared.arrived("busy")) > before


def test_a_session_that_is_alone_for_long_takes_no_turns(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 20)
    shared.loop.now += ALONE_S + 1  # nothing runs meanwhile
    shared.send("busy")
    assert shared.arrived() == shared.calls


def test_the_first_call_of_another_session_after_long_has_its_turn(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 100)
    shared.loop.now += ALONE_S + 1
    (quiet,) = shared.send("quiet")
    assert shared.arrived().index(quiet) == WINDOW


def test_what_waits_is_bounded(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", WINDOW)
    for _ in range(40):
        call = SessionCall("busy")
        call.message = call.message[:-1] + b" " * (MAX_WAITING_BYTES // 10) + b"}"
        shared.calls.append(call)
        shared.peer.send(call)
    assert 40 - 10 <= len(shared.arrived()) - WINDOW < 40
    assert shared.arrived() == shared.calls[: len(shared.arrived())]


def test_a_call_that_waits_is_cancelled_without_a_notification(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", WINDOW)
    waiting, last = shared.send("busy", 2)
    assert shared.peer.is_waiting(waiting)
    assert shared.peer.cancel(waiting, "enough")
    assert not shared.peer.is_waiting(waiting)
    shared.serve(1)
    assert shared.arrived()[-1] is last
    assert len(shared.link.sent) == WINDOW + 1


def test_the_time_of_a_call_runs_while_it_waits(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", WINDOW, timeout=100)
    (waiting,) = shared.send("busy", timeout=REVIEW_S / 2)
    shared.loop.advance(REVIEW_S * 0.6)
    assert waiting.ends == ["timed out"]
    assert len(shared.link.sent) == WINDOW


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from("abc"), st.integers(1, 30)),
        st.tuples(st.sampled_from(["answer", "cancel", "fail", "early"]), st.integers(0, 200)),
        st.tuples(st.just("pass"), st.sampled_from([0.0001, REVIEW_S, 0.1, 4.0, ALONE_S + 1])),
        st.tuples(st.just("turns")),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sampled_from(["serve", "exit", "reclaim"]))
def test_every_call_ends_once_and_sessions_keep_their_order(steps: list[Step], end: str) -> None:
    shared = Shared()
    with closing(shared.loop):
        _run(shared, steps, end)


def _run(shared: Shared, steps: list[Step], end: str) -> None:
    cancelled: set[int] = set()
    for kind, *values in steps:
        if kind in ("send", "turns", "pass"):
            does: dict[str, Callable[..., object]] = {"send": shared.send, "pass": shared.loop.advance}
            does.get(kind, shared.peer.take_turns)(*values)
            continue
        open_calls = [call for call in shared.calls if not call.ends and call.number not in cancelled]
        if kind == "answer":
            open_calls = shared.unanswered()
        if open_calls:
            _end_call(shared, kind, open_calls[values[0] % len(open_calls)], cancelled)
    reclaimed: list[SessionCall] = []
    if end == "serve":
        shared.loop.advance(REVIEW_S)  # what has waited behind a call that was cancelled is sent then
        while sent := shared.unanswered():
            shared.answer(sent[0])
    elif end == "reclaim":
        reclaimed = shared.peer.reclaim(SessionCall)
    if end != "serve":
        shared.peer.fail_all(GONE)
    length = len(shared.link.sent)
    shared.loop.advance(100)
    assert len(shared.link.sent) == length
    assert not shared.peer.pending
    for call in shared.calls:
        assert len(call.ends) + (call.number in cancelled) + (call in reclaimed) == 1
    for session in "abc":
        numbers = [call.number for call in shared.arrived(session)]
        assert all(earlier < later for earlier, later in itertools.pairwise(numbers))


def _end_call(shared: Shared, kind: str, call: SessionCall, cancelled: set[int]) -> None:
    if kind == "cancel":
        was_waiting, length = shared.peer.is_waiting(call), len(shared.link.sent)
        assert was_waiting == (call not in shared.arrived())
        cancelled.add(call.number)
        assert shared.peer.cancel(call, "enough")
        assert not was_waiting or len(shared.link.sent) == length
    elif kind == "fail":
        shared.answered.add(call.number)
        shared.peer.fail(call.id, GONE)
    else:  # an early answer may be to a call that has not even been sent
        shared.answer(call)
