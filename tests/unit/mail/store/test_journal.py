"""The journal: what is in it survives the loss of every file that was not synced yet."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail.messages import Draft, Sent
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import StoreDirectory
from switchboard_mcp.mail.store.disk import commit_journal
from switchboard_mcp.mail.store.store import MessageStore
from tests import patience

pytestmark = pytest.mark.skipif(not file_operations.can_sync_all(), reason="there is no syncfs here")


def draft(payload: str = "work") -> Draft:
    return Draft(action="delegate_task", payload=payload, idempotency_key=payload)


@pytest.fixture
async def store(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MessageStore]:
    """A store whose files are never synced, so that a test can take them away."""
    monkeypatch.setattr(commit_journal, "DIRECT_GROUPS", 0)
    monkeypatch.setattr(commit_journal, "CHECKPOINT_S", 3600.0)
    monkeypatch.setattr(commit_journal, "MAX_DIRTY_KB", -1)
    async with await MessageStore.open(str(workspace), watch=False) as opened:
        for name in ("lead", "coder"):
            await opened.register(name)
        yield opened


def journals(workspace: Path) -> list[Path]:
    return sorted((workspace / ".switchboard" / "journal").glob("*"))


async def kill(store: MessageStore, workspace: Path) -> None:
    """End a process as the power does: its lock is free, and its journals are there."""
    copies = workspace.parent / "kept"
    shutil.copytree(workspace / ".switchboard" / "journal", copies)
    await store.close()
    for path in copies.iterdir():
        shutil.copy(path, workspace / ".switchboard" / "journal" / path.name)


async def send_and_settle(store: MessageStore) -> tuple[Sent, Sent]:
    waiting = await store.send(draft("waiting"), sender="lead", recipient="coder")
    done = await store.send(draft("done"), sender="lead", recipient="coder")
    (held,) = await store.claim("coder", ids=[done.id])
    await store.ack("coder", done.id, fence=held.fence)
    return waiting, done


def lose(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zero(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("damage", [lose, empty, zero, cut])
async def test_files_that_a_power_cut_took_are_written_again(
    store: MessageStore, workspace: Path, damage: Callable[[Path], None]
) -> None:
    waiting, done = await send_and_settle(store)
    await kill(store, workspace)
    for place in ("inbox", "claimed", "archive", "outbox", "keys"):
        for path in (workspace / ".switchboard" / place).glob("*/*"):
            damage(path)
    async with await MessageStore.open(str(workspace), watch=False) as again:
        verdict = await again.verify()
        assert verdict.sound, verdict.findings
        assert verdict.findings == []
        assert verdict.counts["inbox"] == verdict.counts["archive"] == 1
        assert (await again.read("coder", done.id)).place == "archive"
        receipts = {each.in_reply_to: each.status for each in await again.receipts("lead")}
        assert receipts == {waiting.id: "delivered", done.id: "done"}
        assert (await again.send(draft("waiting"), sender="lead", recipient="coder")).duplicate
    assert journals(workspace) == []


async def test_a_settled_message_whose_move_was_lost_is_settled_again(
    store: MessageStore, workspace: Path
) -> None:
    _, done = await send_and_settle(store)
    await kill(store, workspace)
    archived = next((workspace / ".switchboard" / "archive" / "coder").iterdir())
    archived.rename(workspace / ".switchboard" / "inbox" / "coder" / f"{done.id}.json")
    async with await MessageStore.open(str(workspace), watch=False) as again:
        assert [each.message.payload for each in await again.peek("coder")] == ["waiting"]
        assert (await again.verify()).counts["archive"] == 1


async def test_what_was_removed_or_requeued_on_purpose_does_not_come_back(
    store: MessageStore, workspace: Path
) -> None:
    from switchboard_mcp.mail.store import dead_letters

    sent = await store.send(draft("rejected"), sender="lead", recipient="coder")
    (held,) = await store.claim("coder")
    await store.ack("coder", sent.id, fence=held.fence, outcome="rejected")
    await store.run(lambda tx: dead_letters.requeue(tx, "coder", sent.id))
    gone = await store.send(draft("gone"), sender="coder", recipient="lead")

    def remove(tx: object) -> None:
        tx.remove(tx.folder("inbox", "lead"), f"{gone.id}.json")  # type: ignore[attr-defined]
        tx.sync_folders()  # type: ignore[attr-defined]

    await store.run(remove)
    await kill(store, workspace)
    async with await MessageStore.open(str(workspace), watch=False) as again:
        assert [each.message.id for each in await again.peek("coder")] == [sent.id]
        assert await again.peek("lead") == []


async def test_a_change_of_a_live_process_counts_though_only_the_journal_of_an_ended_one_is_replayed(
    store: MessageStore, workspace: Path
) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as live:
        await send_and_settle(store)
        (held,) = await live.claim("coder")
        await live.ack("coder", held.message.id, fence=held.fence)
        await kill(store, workspace)
        async with await MessageStore.open(str(workspace), watch=False) as again:
            assert await again.peek("coder") == []
            assert (await again.verify()).counts["archive"] == 2
        assert len(journals(workspace)) == 1


async def test_groups_overwrite_zeros_so_that_their_syncs_do_not_change_the_size_of_the_journal(
    store: MessageStore, workspace: Path
) -> None:
    sizes, held = set(), []
    for number in range(8):
        await store.send(draft(f"{number}"), sender="lead", recipient="coder")
        (path,) = journals(workspace)
        data = path.read_bytes()
        sizes.add(len(data))
        held.append(data.rstrip(b"\0"))
    assert len(sizes) == 1
    assert all(after.startswith(before) for before, after in pairwise(held))
    # One that is full grows: by as much as it holds.
    for size in (20_000, 5_000):
        long = Draft(action="delegate_task", payload="x" * size)
        await store.send(long, sender="lead", recipient="coder")
    await kill(store, workspace)
    for path in (workspace / ".switchboard" / "inbox" / "coder").iterdir():
        path.unlink()
    async with await MessageStore.open(str(workspace), watch=False) as again:
        assert len(await again.peek("coder")) == 10


@pytest.mark.parametrize(
    "rest", [b"", b"\0" * 5_000, b'\0\0me":"x","data":"x"}\n{"at":2,"folder":[],"name":"y","data":""}\n']
)
async def test_a_torn_or_foreign_journal_stops_nobody(
    store: MessageStore, workspace: Path, rest: bytes
) -> None:
    await store.send(draft(), sender="lead", recipient="coder")
    await kill(store, workspace)
    (path,) = journals(workspace)
    # Of a group that was not synced, any parts may be there.
    torn = b'{"at":1,"folder":["inbox","coder"],"na'
    path.write_bytes(path.read_bytes().rstrip(b"\0") + torn + rest)
    path.with_name("ffffffffffff.1.jsonl").write_bytes(b"\xff\0\n{}\n")
    path.with_name("fffffffffff0.1.jsonl").write_text('{"at":1,"folder":["..",".."],"name":"x","data":"x"}\n')
    path.with_name("fffffffffff1.1.jsonl").write_text('{"at":1,"folder":[],"name":"x/y","data":"x"}\n')
    async with await MessageStore.open(str(workspace), watch=False) as again:
        assert len(await again.peek("coder")) == 1
    assert journals(workspace) == []
    assert not (workspace.parent / "x").exists()
    assert not (workspace / ".switchboard" / "y").exists()


async def test_a_checkpoint_removes_the_journal(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_journal, "DIRECT_GROUPS", 0)
    monkeypatch.setattr(commit_journal, "CHECKPOINT_BYTES", 1)
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("coder")
        for number in range(3):
            await store.send(draft(str(number)), sender="lead", recipient="coder")
    assert journals(workspace) == []


async def test_a_journal_that_was_removed_under_its_process_is_written_anew(
    store: MessageStore, workspace: Path
) -> None:
    await store.send(draft("first"), sender="lead", recipient="coder")
    journals(workspace)[0].unlink()
    sent = await store.send(draft("second"), sender="lead", recipient="coder")
    (path,) = journals(workspace)
    assert sent.id in path.read_text()


def test_a_short_command_leaves_no_journal(workspace: Path) -> None:
    tree = StoreDirectory(str(workspace), system_clocks())
    tree.make()
    assert [tree.journal.begins() for _ in range(commit_journal.DIRECT_GROUPS + 1)] == [
        *[False] * commit_journal.DIRECT_GROUPS,
        True,
    ]
    tree.close()
    assert journals(workspace) == []


def test_processes_that_make_a_checkpoint_at_the_same_time_share_its_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locks").mkdir(mode=0o700)
    monkeypatch.setattr(commit_journal, "MAX_DIRTY_KB", sys.maxsize)
    monkeypatch.setattr(commit_journal, "CHECKPOINT_S", 3600.0)
    syncing, waiting, go_on = threading.Event(), threading.Semaphore(0), threading.Event()
    synced: list[int] = []
    lock = file_operations.lock

    def sync(folder: int) -> bool:
        synced.append(folder)
        syncing.set()
        return go_on.wait(patience.PATIENCE_S)

    def watched(*args: Any) -> AbstractContextManager[int]:
        waiting.release()
        return lock(*args)

    monkeypatch.setattr(file_operations, "sync_all", sync)
    monkeypatch.setattr(file_operations, "lock", watched)
    journals = [commit_journal.Journal(str(tmp_path), str(number), "boot") for number in range(6)]
    for journal in journals:
        journal.append([commit_journal.published(("inbox",), "x", b"x")], sync=False)
    with ThreadPoolExecutor(len(journals)) as threads:
        first = threads.submit(journals[0].close)
        assert syncing.wait(patience.PATIENCE_S)
        others = [threads.submit(journal.close) for journal in journals[1:]]
        for _ in journals:
            assert waiting.acquire(timeout=patience.PATIENCE_S)
        go_on.set()
        for each in (first, *others):
            each.result()
    assert len(synced) == 2, "the second one began when all had closed their journals"
    assert list((tmp_path / "journal").iterdir()) == []


def test_a_sync_of_an_earlier_boot_or_before_the_last_change_is_not_enough() -> None:
    last = commit_journal.LastSync("boot", 100)
    assert last.covers("boot", 99)
    assert not last.covers("boot", 100)
    assert not last.covers("other", 99)
