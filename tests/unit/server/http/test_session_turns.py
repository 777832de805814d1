"""The sessions of the HTTP server take turns."""

from __future__ import annotations

import asyncio

from switchboard_mcp.server.http.session_turns import SessionTurns
from tests.patience import PATIENCE_S


async def test_a_request_is_begun_before_those_of_a_busy_session_that_wait() -> None:
    turns = SessionTurns(asyncio.get_running_loop())
    begun: list[str] = []

    async def request(session: str) -> None:
        await turns.wait(session)
        begun.append(session)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        for session in [*["busy"] * 100, *["other"] * 3, "quiet"]:
            tasks.create_task(request(session))
    assert begun.index("quiet") <= 2
    assert begun.index("other") <= 2
    assert begun[:10].count("other") == 3
    assert len(begun) == 104


async def test_requests_whose_clients_have_gone_are_passed_over() -> None:
    turns = SessionTurns(asyncio.get_running_loop())
    tasks = [asyncio.create_task(turns.wait("busy")) for _ in range(100)]
    await asyncio.sleep(0)
    for task in tasks[1:-1]:
        task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await tasks[-1]
        await turns.wait("busy")
    assert all(task.done() for task in tasks)
