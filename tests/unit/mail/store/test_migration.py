"""A tree of the file store becomes rows, with its receipts, once; a kill at any step changes nothing of that."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from switchboard_mcp.mail.store.directory import Transaction as FileTransaction
from switchboard_mcp.mail.store.maintenance import packing

from switchboard_mcp.mail.messages import Draft, Receipt
from switchboard_mcp.mail.store.migration import migrate
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.store import MessageStore as FileStore
from switchboard_mcp.mail.store.surface.surface import FileSurface
from tests import kills
from tests.databases import Targets

AGENTS = ("lead", "coder")


async def make_old_tree(folder: Path) -> tuple[dict[str, tuple[str, str]], dict[str, Receipt]]:
    """Write mail of every kind with the file store; returns places and payloads by id, and the latest receipts."""
    async with await FileStore.open(str(folder), watch=False) as store:
        for name in AGENTS:
            await store.register(name)
        await store.update(lambda state: state.setdefault("agents", {}).update(coder={"name": "coder"}))

        async def send(payload: str, **fields: Any) -> str:
            draft = Draft(action="delegate_task", payload=payload, **fields)
            return (await store.send(draft, sender="lead", recipient="coder")).id

        for outcome in ("done", "failed", "rejected"):
            await send(f"is {outcome}", idempotency_key=outcome)
            (claimed,) = await store.claim("coder")
            await store.ack(
                "coder",
                claimed.message.id,
                fence=claimed.fence,
                outcome=outcome,
                summary=f"It was {outcome}",
                result="the result" if outcome == "done" else None,
            )
        recalled = await send("is recalled")
        await store.withdraw("coder", recalled, outcome="recalled", sender="lead")
        await store.run(_pack)
        await send("is claimed")
        await store.claim("coder", lease_s=3_600)
        returned = await send("was released")
        (claimed,) = await store.claim("coder")
        await store.release("coder", returned, fence=claimed.fence)
        await send("waits", priority="urgent", idempotency_key="again", ack_by="2099-01-01T00:00:00Z")
        _drop(folder, "msg_dropped.json", "was dropped")
        _drop(folder, "msg_bad.json", "is refused", action="sing")
        with pytest.MonkeyPatch.context() as patch:
            # Without the second in which a file may still be completed.
            patch.setattr("switchboard_mcp.mail.store.dropped_files.SETTLE_S", 0.0)
            await store.deliver()
        places: dict[str, tuple[str, str]] = {}
        for agent in AGENTS:
            for message in await store.search(
                agent, places=("inbox", "claimed", "archive", "deadletter"), limit=99
            ):
                places[message.message.id] = (message.place, message.message.payload)
        receipts = {item.in_reply_to: item for name in AGENTS for item in await store.receipts(name)}
    _drop(folder, "msg_later.json", "is imported later")
    return places, receipts


def _pack(tx: FileTransaction) -> None:
    """Pack what was settled, as an hour later."""
    for place in ("archive", "outbox"):
        for agent in AGENTS:
            if tx.has(place, agent):
                packing.pack(tx, place, agent, after_s=-60)


def _drop(folder: Path, name: str, payload: str, action: str = "delegate_task") -> None:
    path = folder / ".switchboard/inbox/coder" / name
    path.write_text(
        f'{{"sender": "lead", "recipient": "coder", "action": "{action}", "payload": "{payload}"}}'
    )
    os.utime(path, (1, os.stat(path).st_mtime - 60))


async def check(
    folder: Path, target: str, places: dict[str, tuple[str, str]], receipts: dict[str, Receipt]
) -> None:
    async with await MessageStore.open(str(folder), database=target, watch=False) as store:
        await migrate(store)
        assert await migrate(store) is None
        stored = {}
        for agent in AGENTS:
            every = ("inbox", "claimed", "archive", "deadletter")
            for message in await store.search(agent, places=every, limit=99):
                stored[message.message.id] = (message.place, message.message.payload)
        stored = {name: place for name, place in stored.items() if not name.startswith("foreign_")}
        assert stored == places
        latest = {item.in_reply_to: item for name in AGENTS for item in await store.receipts(name)}
        assert latest == receipts
        assert "coder" in (await store.state())["agents"]
        assert (await store.verify()).problems == []
        surface = FileSurface(store)
        await surface.sync()
        await surface.close()
        payloads = [item.message.payload for item in await store.peek("coder")]
        assert sorted(payloads) == ["is imported later", "waits", "was dropped", "was released"]
        again = Draft(action="delegate_task", payload="twice", idempotency_key="again")
        assert (await store.send(again, sender="lead", recipient="coder")).duplicate
        assert [item.message.payload for item in await store.claim("coder")] == ["was released"]
    assert not (folder / ".switchboard/keys").exists()
    assert (folder / ".switchboard/old-mail/archive/coder").is_dir()


async def test_every_kind_of_message_is_read_with_its_receipts(tmp_path: Path, database_target: str) -> None:
    places, receipts = await make_old_tree(tmp_path)
    assert {place for place, _ in places.values()} == {"inbox", "claimed", "archive", "deadletter"}
    assert {item.status for item in receipts.values()} == {
        "delivered",
        "refused",
        "done",
        "failed",
        "rejected",
        "recalled",
    }
    await check(tmp_path, database_target, places, receipts)


async def kill_scenario(target: str, folder: str, report: Callable[[object], None]) -> None:
    """Migrate; run by `tests.kills`."""
    async with await MessageStore.open(folder, database=target, watch=False) as store:
        await migrate(store)
        report("done")


def _check_attempts(targets: Targets, tmp_path: Path, stride: int) -> int:
    places, receipts = asyncio.run(make_old_tree(tmp_path / "old"))
    work, attempts = tmp_path / "work", 0
    shutil.copytree(tmp_path / "old", work)
    scenario = "tests.unit.mail.store.test_migration:kill_scenario"
    for attempt in kills.at_every_step(scenario, targets, work, stride=stride, first=40):
        attempts += 1
        asyncio.run(check(work, attempt.target, places, receipts))
        shutil.rmtree(work)
        shutil.copytree(tmp_path / "old", work)
    return attempts


def test_a_kill_at_any_step_of_the_migration_changes_nothing(targets: Targets, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    assert _check_attempts(targets, tmp_path, 23) > 3


@pytest.mark.soak("crashes")
def test_a_kill_at_every_single_step_of_the_migration(targets: Targets, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    assert _check_attempts(targets, tmp_path, 1) > 100
