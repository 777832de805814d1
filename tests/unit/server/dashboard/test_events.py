from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from switchboard_mcp.server.dashboard import events
from switchboard_mcp.server.dashboard.events import DashboardEvents, event


class State:
    """Counts how often it is sampled."""

    mail_server = None

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        def start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(work)

        self.services = SimpleNamespace(loop=asyncio.get_running_loop(), start_task=start_task)
        self.call_log = SimpleNamespace(seq=0)
        self.looks = 0
        self.closed: list[str] = []

    def open_details(self) -> None:
        self.closed.clear()

    def close_details(self) -> None:
        self.closed.append("details")

    async def close_mail(self) -> None:
        self.closed.append("mail")

    def rows(self) -> list[dict[str, object]]:
        self.looks += 1
        return []


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "TICK_S", 0.001)
    monkeypatch.setattr(events, "LINGER_S", 0.005)


@pytest.mark.usefixtures("_quick")
async def test_one_look_keeps_all_ready_for_a_while_and_then_everything_is_let_go() -> None:
    async with asyncio.TaskGroup() as tasks:
        state = State(tasks)
        feed = DashboardEvents(state)  # type: ignore[arg-type]
        feed.keep_sampling()
        feed.keep_sampling()
        assert state.closed == []
        # The group ends when the one task has: nobody listens.
    assert state.closed == ["details", "mail"]
    assert state.looks == 0


@pytest.mark.usefixtures("_quick")
async def test_it_can_be_looked_again_after_all_was_let_go_and_stopped_at_any_time() -> None:
    async with asyncio.TaskGroup() as tasks:
        state = State(tasks)
        feed = DashboardEvents(state)  # type: ignore[arg-type]
        feed.keep_sampling()
        while not state.closed:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        feed.keep_sampling()
        await feed.stop()
    assert state.closed.count("mail") >= 1
    assert state.closed[-1] == "mail"


def test_an_event_is_one_line_whatever_it_says() -> None:
    assert event("calls", {"a": "x\ny\r\nz"}) == b'event: calls\ndata: {"a":"x\\ny\\r\\nz"}\n\n'
