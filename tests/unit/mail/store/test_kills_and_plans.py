"""The message store survives a kill at any step, on both engines, and none of its queries reads a whole table."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.database import sqlite
from switchboard_mcp.mail.messages import Draft, Priority
from switchboard_mcp.mail.store import aging
from switchboard_mcp.mail.store.store import MessageStore
from tests import kills
from tests.databases import Targets

PAYLOAD = "a task with words"
LEVELS: list[Priority] = ["low", "normal", "urgent"]


async def kill_scenario(target: str, folder: str, report: Callable[[object], None]) -> None:
    """Send, claim, settle with a result, return, withdraw and prune; run by `tests.kills`."""
    async with await MessageStore.open(folder, database=target, watch=False) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        for number in range(3):
            draft = Draft(action="delegate_task", payload=str(number), idempotency_key=f"key {number}")
            sent = await store.send(draft, sender="lead", recipient="coder")
            report(["sent", sent.id])
        for number in range(2):
            (claimed,) = await store.claim("coder")
            report(["claimed", claimed.message.id, claimed.fence])
            if number:
                await store.release("coder", claimed.message.id, fence=claimed.fence)
            else:
                await store.ack("coder", claimed.message.id, fence=claimed.fence, result="done so")
                report(["settled", claimed.message.id])
        (claimed,) = await store.claim("coder")
        report(["claimed", claimed.message.id, claimed.fence])
        await store.update(lambda state: state.setdefault("teams", {}).update(a={}))
        await store.search("coder", "words")
        await store.withdraw("lead", (await store.peek("lead"))[0].message.id, outcome="recalled")
        await store.prune(-1)
        report(["pruned"])


async def _check(target: str, folder: str, reports: list[list[Any]]) -> None:
    async with await MessageStore.open(folder, database=target, watch=False) as store:
        verdict = await store.verify()
        assert verdict.problems == []
        for name in ("lead", "coder"):
            await store.register(name)
        accepted = [report[1] for report in reports if report[0] == "sent"]
        settled = [report[1] for report in reports if report[0] == "settled"]
        is_pruned = ["pruned"] in reports
        rows = await store.database.read(
            lambda tx: tx.rows("SELECT id, place, sender, fence FROM message ORDER BY ord")
        )
        sent = [row for row in rows if row[2] == "lead"]
        if not is_pruned and ["settled"] not in [report[:1] for report in reports]:
            assert [row[0] for row in sent][: len(accepted)] == accepted
            assert len(accepted) <= len(sent) <= len(accepted) + 1
        # Everything goes on: the same messages are sent again, and each is there once.
        for number in range(3):
            draft = Draft(action="delegate_task", payload=str(number), idempotency_key=f"key {number}")
            await store.send(draft, sender="lead", recipient="coder")
        fences = [report[2] for report in reports if report[0] == "claimed"]
        assert fences == sorted(set(fences))
        waiting = [item.message for item in await store.peek("coder")]
        assert not {message.id for message in waiting} & set(settled)
        if not is_pruned:
            results = await store.search("lead", sender="coder", places=("inbox", "archive"))
            assert len(results) == len({item.message.reply_to for item in results})
            assert len(results) >= len(settled) or rows_were_pruned(rows)
        assert (await store.verify()).problems == []


def rows_were_pruned(rows: list[Any]) -> bool:
    """Return True if the scenario had begun to remove settled messages."""
    return not any(row[1] == "archive" for row in rows)


def test_a_kill_at_any_step_loses_and_doubles_nothing(targets: Targets, tmp_path: Path) -> None:
    attempts = 0
    # Every single step is tried in the long tests.
    for attempt in kills.at_every_step(
        "tests.unit.mail.store.test_kills_and_plans:kill_scenario",
        targets,
        tmp_path,
        stride=7,
        first=3,
    ):
        attempts += 1
        asyncio.run(_check(attempt.target, str(tmp_path), attempt.reports))
    assert attempts > 4


@pytest.mark.soak("crashes")
def test_a_kill_at_every_single_step_loses_and_doubles_nothing(targets: Targets, tmp_path: Path) -> None:
    for attempt in kills.at_every_step(
        "tests.unit.mail.store.test_kills_and_plans:kill_scenario", targets, tmp_path
    ):
        asyncio.run(_check(attempt.target, str(tmp_path), attempt.reports))


_WHOLE_TABLE = re.compile(r"^SCAN (?!CONSTANT)(?:TABLE )?(\w+)(?! VIRTUAL)(?!.*USING)")


async def test_no_query_of_the_store_reads_a_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: set[str] = set()
    run = sqlite.SqliteConnection.rows

    def note(self: sqlite.SqliteConnection, sql: str, *values: object) -> Any:
        statements.add(sql)
        return run(self, sql, *values)

    monkeypatch.setattr(sqlite.SqliteConnection, "rows", note)
    monkeypatch.setattr(sqlite.SqliteConnection, "run", note)
    monkeypatch.setattr("switchboard_mcp.mail.store.reading.MAX_RANKED", 3)
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        generator = random.Random(3)
        for number in range(60):
            level = generator.choice(LEVELS)
            draft = Draft(action="delegate_task", payload=PAYLOAD, ack_by="2020-01-01", priority=level)
            draft.idempotency_key = str(number)
            await store.send(draft, sender="lead", recipient="coder")
        ids = [item.message.id for item in await store.peek("coder", limit=60)]
        for claimed in [
            *(await store.claim("coder", limit=3)),
            *(await store.claim("coder", ids=ids[50:52])),
        ]:
            await store.renew("coder", claimed.message.id, fence=claimed.fence)
            await store.ack("coder", claimed.message.id, fence=claimed.fence, outcome="rejected")
        await store.search("coder", "words")
        for criteria in ({}, {"sender": "lead"}, {"thread": ids[0]}):
            await store.search("coder", **criteria)  # type: ignore[arg-type]
        await store.receipts("lead")
        await store.receipts("lead", ids=[ids[0], "msg_other"])
        await store.dead_letters("coder")
        await store.requeue("coder", (await store.dead_letters("coder"))[0].id)
        await store.database.read(aging.overdue)
        await store.database.read(aging.next_deadline)
        await store.database.read(aging.next_expiry)
        await store.withdraw("coder", ids[40], outcome="recalled")
        await store.prune(-1)
        await store.remove_agent("coder", force=True)
        monkeypatch.undo()
        scans = []
        for sql in sorted(statements):
            if not sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE")) or "pragma" in sql.lower():
                continue
            plan = await store.write(
                lambda tx, sql=sql: tx.rows(f"EXPLAIN QUERY PLAN {sql}", *[1] * sql.count("?"))  # type: ignore[misc]
            )
            scans += [
                (sql, row[3]) for row in plan if (m := _WHOLE_TABLE.match(row[3])) and m[1] in BIG_TABLES
            ]
    assert len(statements) > 40
    assert scans == []


BIG_TABLES = ("message", "body", "attached", "usage")
