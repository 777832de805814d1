"""Large work leaves the event loop, and its outcome comes back to it."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from msgspec import Raw

from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.results import answers
from switchboard_mcp.system import work_thread


class Secrets:
    """A child that only keeps what is registered."""

    def __init__(self) -> None:
        self.registered: list[str] = []

    def register_secrets(self, values: list[str]) -> None:
        self.registered += values


def suite(secrets: Secrets) -> ChildSuite:
    made = ChildSuite.__new__(ChildSuite)
    made.child = secrets  # type: ignore[assignment]  # all that is used of it
    made.redact_args = ["password"]
    return made


async def test_small_arguments_are_searched_at_once() -> None:
    secrets, done = Secrets(), asyncio.Event()
    suite(secrets).redact_arguments(Raw(b'{"password":"hunter2"}'), done.set)
    assert (secrets.registered, done.is_set()) == (["hunter2"], True)


async def test_large_arguments_are_searched_in_the_thread_before_the_call_goes_on() -> None:
    secrets, done = Secrets(), asyncio.Event()
    args = {"text": "x" * work_thread.LOOP_BYTES, "password": "hunter2"}
    suite(secrets).redact_arguments(Raw(msgspec.json.encode(args)), done.set)
    assert not done.is_set()
    await done.wait()
    assert secrets.registered == ["hunter2"]


async def test_work_runs_in_a_thread_and_its_failure_is_raised_here() -> None:
    assert await work_thread.run(work_thread.OWN, threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await work_thread.run(work_thread.OWN, lambda: 1 / 0)


async def test_cancelled_work_is_forgotten() -> None:
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait()

    task = asyncio.create_task(work_thread.run(work_thread.OWN, work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await work_thread.run(work_thread.OWN, lambda: 1) == 1


class Client:
    """A client, with a queue of its own, that may leave."""

    def __init__(self) -> None:
        self.closed = False

    @property
    def work_queue(self) -> object:
        return self


async def test_clients_take_turns_however_much_one_has_submitted() -> None:
    busy, other, finished = Client(), Client(), asyncio.Event()
    order: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        release.wait()

    work_thread.submit(busy, first, lambda _: order.append("busy"))
    await asyncio.to_thread(begun.wait)
    for _ in range(20):
        work_thread.submit(busy, lambda: None, lambda _: order.append("busy"))
    work_thread.submit(other, lambda: None, lambda _: order.append("other"))
    work_thread.submit(busy, lambda: None, lambda _: finished.set())
    release.set()
    await finished.wait()
    assert order.index("other") <= 2, order


async def test_a_computation_ends_when_its_time_is_over_or_its_client_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, begun = Client(), threading.Event()

    def endless() -> None:
        begun.set()
        while True:
            work_thread.checkpoint()

    running = asyncio.create_task(work_thread.run(client, endless))
    await asyncio.to_thread(begun.wait)
    client.closed = True
    with pytest.raises(work_thread.OverdueError):
        await running
    monkeypatch.setattr(work_thread, "DEADLINE_S", 0.01)
    with pytest.raises(work_thread.OverdueError):
        await work_thread.run(Client(), endless)


async def test_queued_work_of_a_client_that_left_does_not_begin() -> None:
    client = Client()
    client.closed = True
    with pytest.raises(work_thread.OverdueError):
        await work_thread.run(client, lambda: pytest.fail("it was computed"))


def test_words_that_are_searched_for_are_bounded_and_the_search_can_be_ended() -> None:
    looked: list[int] = []

    text = "\n".join(f"line {number}" for number in range(1000))
    many = " ".join(f"word{number}" for number in range(20_000))
    assert answers.lines_with(text, f"{many} line", 100, bool) == ""  # beyond the bound
    assert answers.lines_with(text, f"line {many}", 100, lambda: looked.append(1))
    assert len(looked) == 1000  # once for each piece

    def end() -> None:
        raise work_thread.OverdueError

    with pytest.raises(work_thread.OverdueError):
        answers.lines_with(text, "line", 100, end)
