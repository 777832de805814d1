"""What a person does when something is wrong: backup, verify, salvage, export."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from switchboard_mcp.database.machine_clocks import machine_clocks
from switchboard_mcp.database.sqlite import SqliteEngine
from switchboard_mcp.database.transactions import StorageError
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import integrity
from switchboard_mcp.mail.store.store import MessageStore


def sorted_files(folder: Path) -> list[Path]:
    return sorted((folder / ".switchboard").iterdir())


async def fill(store: MessageStore, count: int = 60) -> list[str]:
    """Send some messages and settle the first one."""
    for name in ("lead", "coder"):
        await store.register(name)
    ids = []
    for number in range(count):
        draft = Draft(action="delegate_task", payload=f"{number} " * 300)
        ids.append((await store.send(draft, sender="lead", recipient="coder")).id)
    (claimed,) = await store.claim("coder")
    await store.ack("coder", ids[0], fence=claimed.fence, summary="Fine")
    return ids


async def test_a_backup_is_a_whole_copy_that_opens(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        ids = await fill(store)
        (copy / ".switchboard").mkdir(parents=True, mode=0o700)
        await store.back_up(str(copy / ".switchboard/mail.db"))
        with pytest.raises(SwitchboardError) as refusal:
            await store.back_up(str(copy / ".switchboard/mail.db"))
        assert refusal.value.failure.code == "mail_not_stored"
    async with await MessageStore.open(str(copy), watch=False) as store:
        assert [item.message.id for item in await store.peek("coder")] == ids[1:]
        assert (await store.verify()).is_sound


async def test_every_message_can_be_had_as_text(tmp_path: Path, database_target: str) -> None:
    async with await MessageStore.open(str(tmp_path), database=database_target, watch=False) as store:
        ids = await fill(store, 3)
        lines = [json.loads(line) for line in await store.read_rows(lambda tx: list(integrity.export(tx)))]
        assert [line["message"]["id"] for line in lines] == ids
        assert [[item["status"] for item in line["receipts"]] for line in lines] == [
            ["delivered", "done"],
            ["delivered"],
            ["delivered"],
        ]
        assert await store.read_rows(lambda tx: list(integrity.export(tx, "1999-"))) == []


async def test_a_changed_byte_and_wrong_counts_are_noticed(tmp_path: Path, database_target: str) -> None:
    async with await MessageStore.open(str(tmp_path), database=database_target, watch=False) as store:
        ids = await fill(store, 3)
        order = int(ids[1][4:20])
        await store.write(
            lambda tx: tx.run("UPDATE body SET body = replace(body, '1', '7') WHERE ord = ?", order)
        )
        await store.write(lambda tx: tx.run("UPDATE usage SET messages = 99 WHERE name = 'coder'"))
        problems = (await store.verify()).problems
        assert [ids[1] in problem for problem in problems] == [True, False]
        await store.recount()
        assert len((await store.verify()).problems) == 1
        damaged = await store.read("coder", ids[1])
        assert (damaged.message.payload, "damaged" in (damaged.reason or "")) == ("", True)
        assert [item.message.id for item in await store.claim("coder", limit=9)] == [ids[2]]
        assert [item.id for item in await store.dead_letters("coder")] == [ids[1]]


async def test_a_damaged_database_is_moved_aside_and_what_can_be_read_is_kept(tmp_path: Path) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        ids = await fill(store, 400)
    path = tmp_path / ".switchboard/mail.db"
    content = bytearray(path.read_bytes())
    pages = len(content) // 4096
    for page in range(pages // 2, pages // 2 + 4):
        content[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    salvaged = integrity.salvage(str(path), machine_clocks())
    assert salvaged.moved_to in [str(item) for item in sorted_files(tmp_path)]
    lost = set(salvaged.lost)
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        kept = await store.search("coder", limit=1_000)
        assert len(kept) >= 300
        missing = {int(item[4:20]) for item in ids} - {item.order for item in kept}
        assert missing <= lost | {item.order for item in kept if item.reason}
        assert await store.agents() == ["coder", "lead"]
        await store.send(Draft(action="delegate_task", payload="new"), sender="lead", recipient="coder")
        assert [item for item in (await store.verify()).problems if "counts" in item] == []


def test_a_database_without_a_readable_page_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    path.write_bytes(b"\0" * 8192)
    with pytest.raises(StorageError):
        integrity.salvage(str(path), machine_clocks())
    assert path.read_bytes() == b"\0" * 8192


async def test_a_removed_database_refuses_new_mail_and_its_backup_is_still_whole(tmp_path: Path) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        ids = await fill(store, 3)
        for name in os.listdir(tmp_path / ".switchboard"):
            if name.startswith("mail.db") and not name.endswith(".wake"):
                os.unlink(tmp_path / ".switchboard" / name)
        with pytest.raises(SwitchboardError) as refusal:
            await store.send(Draft(action="delegate_task", payload="lost"), sender="lead", recipient="coder")
        assert refusal.value.failure.code == "mail_not_stored"
        await store.back_up(str(tmp_path / "saved.db"))
    connection = sqlite3.connect(tmp_path / "saved.db")
    assert [row[0] for row in connection.execute("SELECT id FROM message ORDER BY ord")] == ids
    connection.close()


async def test_a_read_only_workspace_can_be_read(tmp_path: Path) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        ids = await fill(store, 2)
    shutil.rmtree(tmp_path / ".switchboard/mail.db.wake")
    path = str(tmp_path / ".switchboard/mail.db")
    engine = SqliteEngine(path, [], machine_clocks())
    engine.read_only = True
    assert [row[0] for row in engine.reader().rows("SELECT id FROM message ORDER BY ord")] == ids
    engine.end_read()
    engine.close_reader()
