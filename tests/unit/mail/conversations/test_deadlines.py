"""Deadlines act once, however many processes look and wherever one of them dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from switchboard_mcp.config.agent_names import OVERSEER, SYSTEM
from switchboard_mcp.database.machine_clocks import iso_time
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.conversations.deadlines import act_on_deadlines
from switchboard_mcp.mail.messages import Draft, FileAttachment
from switchboard_mcp.mail.store.store import MessageStore
from tests.cases import each_case
from tests.unit.mail.office import Hours

LATE = "2020-01-01T00:00:00Z"
# All that the watch does to the store. A process may die before or after each.
STEPS = ("send", "register", "write")


class ProcessDiedError(Exception):
    """Stands for a process that was killed."""


def dies_at(store: MessageStore, step: int, when: Literal["before", "after"]) -> None:
    """Let the store die at the n-th step."""
    counted = iter(range(1_000))

    def wrap(act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **more: Any) -> Any:
            now = next(counted) == step
            if now and when == "before":
                raise ProcessDiedError
            answer = await act(*args, **more)
            if now:
                raise ProcessDiedError
            return answer

        return wrapped

    for name in STEPS:
        setattr(store, name, wrap(getattr(store, name)))


async def make(tmp_path: Path) -> str:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        for name in ("lead", "coder", "tester"):
            await store.register(name)
        file = FileAttachment(name="a.bin", data=b"\0\xff")
        draft = Draft(action="delegate_task", payload="do it", ack_by=LATE, attachment=file)
        return (await store.send(draft, sender="lead", recipient="coder")).id


async def inbox(store: MessageStore, name: str) -> list[tuple[str, str]]:
    return [(each.message.sender, each.message.payload[:12]) for each in await store.peek(name)]


@each_case("when", ["before", "after"])
async def test_the_notices_of_a_deadline_are_sent_once_wherever_a_process_dies(
    tmp_path: Path, when: Literal["before", "after"]
) -> None:
    step = 0
    died = True
    while died:
        folder = tmp_path / f"{step}"
        folder.mkdir()
        await make(folder)
        async with await MessageStore.open(str(folder), watch=False) as store:
            dies_at(store, step, when)
            try:
                await act_on_deadlines(store)
                died = False
            except ProcessDiedError:
                pass
        async with await MessageStore.open(str(folder), watch=False) as store:
            await act_on_deadlines(store)
            await act_on_deadlines(store)
            assert len(await inbox(store, "coder")) == 1
            assert len(await inbox(store, "lead")) == len(await inbox(store, OVERSEER)) == 1
            assert (await store.verify()).is_sound
        step += 1
    assert step > 2


async def test_several_processes_act_once_together(tmp_path: Path) -> None:
    await make(tmp_path)
    stores = [await MessageStore.open(str(tmp_path), watch=False) for _ in range(4)]
    await asyncio.gather(*(act_on_deadlines(store) for store in stores))
    assert [len(await inbox(stores[0], name)) for name in ("coder", "lead", OVERSEER)] == [
        1,
        1,
        1,
    ]
    assert (await inbox(stores[0], "lead"))[0][0] == SYSTEM
    for store in stores:
        await store.close()


async def test_the_notice_names_a_claimed_message_and_a_settled_one_is_not_late(tmp_path: Path) -> None:
    id = await make(tmp_path)
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        (claimed,) = await store.claim("coder")
        assert await act_on_deadlines(store) == [id]
        (notice,) = await store.peek("lead")
        assert "claimed, but not settled" in notice.message.payload
        await store.ack("coder", id, fence=claimed.fence)
        later = await store.send(
            Draft(action="delegate_task", payload="p", ack_by=LATE), sender="lead", recipient="coder"
        )
        await store.ack("coder", later.id)
        assert await act_on_deadlines(store) == []
        assert len(await inbox(store, "lead")) == 1


async def test_a_deadline_counts_when_it_comes(tmp_path: Path) -> None:
    hours = Hours()
    async with await MessageStore.open(str(tmp_path), watch=False, clocks=hours.clocks()) as store:
        for name in ("lead", "coder", "tester"):
            await store.register(name)
        soon = iso_time(hours.clocks().wall_us() // 1000 + 1_800_000)
        await store.send(
            Draft(action="delegate_task", payload="p", ack_by=soon), sender="lead", recipient="coder"
        )
        assert await act_on_deadlines(store) == []
        hours.passed = 1
        assert len(await act_on_deadlines(store)) == 1
        assert len(await store.peek("lead")) == 1
        assert await act_on_deadlines(store) == []


async def test_a_deadline_in_any_form_of_time_is_kept(tmp_path: Path) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        for text in (
            "0001-01-01T00:00:00+14:00",
            "2020-01-01",
            "9999-12-31T23:59:59-14:00",
            "2020-01-01T00:00",
        ):
            draft = Draft(action="status_update", payload=text, ack_by=text)
            await store.send(draft, sender="lead", recipient="coder")
        assert len(await act_on_deadlines(store)) == 3
        with pytest.raises(SwitchboardError):
            await store.send(
                Draft(action="status_update", payload="p", ack_by="soon"), sender="lead", recipient="coder"
            )
