"""A tree of the file store becomes rows, with its receipts, once; a kill at any step changes nothing of that."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from switchboard_mcp.mail.messages import Draft, Receipt
from switchboard_mcp.mail.store.migration import migrate
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.surface.surface import FileSurface
from tests import kills
from tests.databases import Targets

AGENTS = ("lead", "coder")
FIXTURE = Path(__file__).parents[3] / "fixtures" / "mail" / "files.json"


class OldTree(msgspec.Struct):
    """Files by path, and what they hold."""

    files: dict[str, str]
    places: dict[str, tuple[str, str]]
    receipts: dict[str, Receipt]


def make_old_tree(folder: Path) -> tuple[dict[str, tuple[str, str]], dict[str, Receipt]]:
    """Write mail of every kind as the file store left it; returns places and payloads by id, and the latest receipts.

    The fixture was written by the file store: settled messages are packed, one is claimed until the year 2100, two
    files were dropped, of which one was refused, and one was not imported yet.
    """
    tree = msgspec.json.decode(FIXTURE.read_bytes(), type=OldTree)
    for name, text in tree.files.items():
        path = folder / ".switchboard" / name
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1, path.stat().st_mtime - 60))
    (folder / ".switchboard" / "seal.key").chmod(0o600)
    return tree.places, tree.receipts


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
    places, receipts = make_old_tree(tmp_path)
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
    places, receipts = make_old_tree(tmp_path / "old")
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
