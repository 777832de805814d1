"""Several processes send, claim and settle at once and are killed at random steps; then everything is compared."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from switchboard_mcp.database import database, job_threads
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from tests.databases import Targets
from tests.kills import Attempt, Forker
from tests.patience import PATIENCE_S
from tests.postgresserver import PostgresServer

SCENARIO = "tests.unit.mail.store.test_random_kills:kill_scenario"
WORKERS = 3
SEED = 20


async def kill_scenario(target: str, folder: str, report: Callable[[object], None]) -> None:
    """Send, claim and settle in a random order; run by `tests.kills`."""
    generator = random.Random(os.getpid())
    # A server that was killed may take long to start on a busy machine.
    database.OPEN_S = job_threads.RECONNECT_S = PATIENCE_S
    name = f"worker-{os.getpid()}-{os.urandom(3).hex()}"
    async with await MessageStore.open(folder, database=target, watch=False) as store:
        await store.register("coder")
        for number in range(25):
            if generator.random() < 0.5:
                draft = Draft(action="delegate_task", payload=str(number))
                sent = await store.send(draft, sender=name, recipient="coder")
                report(["sent", sent.id, name])
                continue
            for claimed in await store.claim("coder", limit=generator.choice((1, 2)), lease_s=3_600):
                report(["claimed", claimed.message.id, claimed.fence])
                if generator.random() < 0.3:
                    await store.release("coder", claimed.message.id, fence=claimed.fence)
                    continue
                await store.ack("coder", claimed.message.id, fence=claimed.fence)
                report(["settled", claimed.message.id, claimed.fence])


def run_workers(
    target: str, folder: Path, runs: int, has_ended: Callable[[], None] = lambda: None
) -> list[Attempt]:
    """Run the scenario in several processes at once; each run ends at a step of a recorded seed.

    `has_ended` is called after each run, while others go on.
    """

    def work(worker: int) -> list[Attempt]:
        generator = random.Random(SEED + worker)
        with Forker(SCENARIO) as forker:
            attempts = []
            for _ in range(runs // WORKERS):
                attempts.append(forker.run(target, folder, generator.randrange(5, 250)))
                has_ended()
            return attempts

    with ThreadPoolExecutor(WORKERS) as pool:
        return [attempt for attempts in pool.map(work, range(WORKERS)) for attempt in attempts]


async def compare(target: str, folder: Path, attempts: list[Attempt]) -> None:
    """Compare what the processes were told with what is stored."""
    reports: list[Any] = [report for attempt in attempts for report in attempt.reports]
    async with await MessageStore.open(str(folder), database=target, watch=False) as store:
        await store.register("coder")
        table = await store.database.read(
            lambda tx: tx.rows("SELECT id, sender, place, fence, outcome, ord FROM message ORDER BY ord")
        )
        rows = {row[0]: row for row in table}
        assert len(rows) == len(table)
        fences = Counter(report[2] for report in reports if report[0] == "claimed")
        assert not [fence for fence, count in fences.items() if count > 1]
        settled = Counter(report[1] for report in reports if report[0] == "settled")
        assert not [message for message, count in settled.items() if count > 1]
        for kind, message, value in reports:
            assert message in rows, (kind, message)
            if kind == "settled":
                assert (rows[message][2], rows[message][3], rows[message][4]) == ("archive", value, "done")
        for attempt in attempts:
            sent = [report[1] for report in attempt.reports if report[0] == "sent"]
            assert [rows[message][5] for message in sent] == sorted(rows[message][5] for message in sent)
        assert (await store.verify()).problems == []
        with pytest.raises(SwitchboardError):
            await store.ack("coder", next(iter(settled)), fence=1)


def test_processes_that_are_killed_at_random_lose_and_double_nothing(
    targets: Targets, tmp_path: Path
) -> None:
    target = targets()
    attempts = run_workers(target, tmp_path, 12)
    assert sum(attempt.was_killed for attempt in attempts) > 3
    asyncio.run(compare(target, tmp_path, attempts))


@pytest.mark.soak("crashes")
def test_hundreds_of_processes_that_are_killed_at_random_lose_and_double_nothing(
    targets: Targets, tmp_path: Path
) -> None:
    target = targets()
    attempts = run_workers(target, tmp_path, 501)
    asyncio.run(compare(target, tmp_path, attempts))


def crash_and_work(tmp_path: Path, runs: int, crashes: int) -> None:
    """Kill the server while processes work, and start it again."""
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed: run `scripts/setup postgres`")
    server = PostgresServer()
    server.start()
    try:
        target = server.url("crashing")
        attempts: list[Attempt] = []
        for _ in range(crashes):
            with ThreadPoolExecutor(1) as pool:
                is_working = Event()
                working = pool.submit(run_workers, target, tmp_path, runs, is_working.set)
                is_working.wait(PATIENCE_S)
                server.kill()
                server.start()
                attempts += working.result()
        asyncio.run(compare(target, tmp_path, attempts))
    finally:
        server.remove()


def test_a_server_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    crash_and_work(tmp_path, 9, 1)


@pytest.mark.soak("crashes")
def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    crash_and_work(tmp_path, 30, 10)
