"""Helpers of programs are shared by clients, and one client leaves some to the others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from switchboard_mcp.programs import helper_pool
from switchboard_mcp.programs.helper_client import HelperProcess
from switchboard_mcp.programs.helper_pool import CLIENT, HelperPool


class Helper:
    """A helper that runs nothing."""

    held = None
    is_lost = False
    requests = 1

    def memory(self) -> int:
        return 0

    def end(self) -> None:
        """End."""

    async def exited(self) -> None:
        """Wait for the end."""


class Pool(HelperPool):
    """A pool whose helpers are no processes."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None), 64)

    async def _start(self) -> HelperProcess:
        helper = cast(HelperProcess, Helper())
        self._all.add(helper)
        return helper


async def borrow(pool: Pool, client: str) -> HelperProcess:
    CLIENT.set(client)
    return await pool.acquire()


async def test_the_programs_of_one_client_leave_a_helper_to_another() -> None:
    pool = Pool()
    busy = [asyncio.create_task(borrow(pool, "busy")) for _ in range(12)]
    await asyncio.sleep(0)
    other = await asyncio.create_task(borrow(pool, "other"))
    held = [task.result() for task in busy if task.done()]
    assert len(held) == helper_pool.MAX_PER_CLIENT
    pool.release(other, usable=True)
    for _ in range(10):
        pool.release(held.pop(0), usable=True)
        done, _ = await asyncio.wait(
            [task for task in busy if not task.done()], return_when="FIRST_COMPLETED"
        )
        held += [task.result() for task in done]
    assert all(task.done() for task in busy)
    await pool.close()


async def test_clients_that_wait_have_their_turn_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_pool, "MAX_HELPERS", 1)
    pool, order = Pool(), list[str]()

    async def run(client: str) -> None:
        helper = await borrow(pool, client)
        order.append(client)
        pool.release(helper, usable=True)

    first = await asyncio.create_task(borrow(pool, "first"))
    waiting = [asyncio.create_task(run(name)) for name in ("a", "a", "a", "b", "c")]
    await asyncio.sleep(0)
    pool.release(first, usable=True)
    await asyncio.gather(*waiting)
    assert order.index("c") < 3, order
    await pool.close()
