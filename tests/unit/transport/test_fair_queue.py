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
    MAX_WAITING_BYTES,
    REVIEW_S,
    WINDOW,
)
from switchboard_mcp.transport.rpc import Peer
from tests.unit.transport.test_rpc import ClockLoop, Listener, Probe, Script

GONE = failure("child_crashed", "Child 'a' is gone.", child="a")


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
    for _ in range(round(2.5 / REVIEW_S)):
        shared.loop.advance(REVIEW_S)
    assert len(shared.arrived()) == 1000


@pytest.mark.parametrize("every_s", [0.00005, 0.001])
def test_a_server_that_works_on_one_call_at_a_time_stays_fair(shared: Shared, every_s: float) -> None:
    shared.peer.take_turns()
    shared.send("busy", 500, timeout=600)
    for number in range(400):
        shared.loop.advance(every_s)
        shared.answer(shared.unanswered()[0])
        shared.send("busy" if number % 20 else "quiet", timeout=600)
    (quiet,) = shared.send("quiet", timeout=600)
    assert shared.unanswered().index(quiet) <= 2 * WINDOW


def test_a_window_that_a_silence_has_widened_shrinks_again(shared: Shared) -> None:
    shared.peer.take_turns()
    shared.send("busy", 800, timeout=600)
    for _ in range(3):
        shared.loop.advance(REVIEW_S * 4)
    assert len(shared.unanswered()) > 2 * WINDOW
    shared.serve(600, 0.005)
    assert len(shared.unanswered()) == WINDOW


@pytest.mark.parametrize("call_s", [0.05, 1.0])
def test_a_server_that_works_on_many_slow_calls_is_sent_many(shared: Shared, call_s: float) -> None:
    shared.peer.take_turns()
    shared.send("busy", 1500, timeout=6000)
    for _ in range(min(round(5 / call_s), 40)):
        working = shared.unanswered()
        steps = round(call_s / 0.01)
        for _ in range(steps):
            shared.loop.advance(0.01)
        for call in working:
            shared.answer(call)
    assert len(shared.unanswered()) >= 8


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


def test_the_queue_is_bounded(shared: Shared) -> None:
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
