"""Large work leaves the event loop, and its outcome comes back to it."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from msgspec import Raw

from switchboard_mcp.gateway.suites.child_suite import ChildSuite
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
    assert await work_thread.run(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await work_thread.run(lambda: 1 / 0)


async def test_cancelled_work_is_forgotten() -> None:
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait()

    task = asyncio.create_task(work_thread.run(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await work_thread.run(lambda: 1) == 1
