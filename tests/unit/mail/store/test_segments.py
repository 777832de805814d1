"""Segments: settled messages and receipts in one file per day are found, counted, verified and pruned like files."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import Claimed, Draft
from switchboard_mcp.mail.store import file_operations, quotas
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.maintenance import packing, retention
from switchboard_mcp.mail.store.maintenance.packing import PackingPass
from switchboard_mcp.mail.store.store import MessageStore

DAY_S = 86_400.0


@pytest.fixture
async def store(workspace: Path) -> AsyncIterator[MessageStore]:
    async with await MessageStore.open(str(workspace), watch=False) as opened:
        for name in ("lead", "coder"):
            await opened.register(name)
        yield opened


async def settle(store: MessageStore, *payloads: str) -> list[Claimed]:
    """Send and settle these, each with its own idempotency key."""
    held = []
    for payload in payloads:
        draft = Draft(action="delegate_task", payload=payload, idempotency_key=payload[-50:])
        await store.send(draft, sender="lead", recipient="coder")
        (one,) = await store.claim("coder")
        await store.ack("coder", one.message.id, fence=one.fence)
        held.append(one)
    return held


async def pack(store: MessageStore) -> int:
    def work(tx: Transaction) -> int:
        return packing.pack(tx, "archive", "coder", after_s=-1) + packing.pack(
            tx, "outbox", "lead", after_s=-1
        )

    return await store.run(work)


def files(workspace: Path) -> list[str]:
    root = workspace / ".switchboard"
    return [path.name for place in ("archive", "outbox") for path in (root / place).glob("*/*.json")]


def lose_index(index: Path) -> None:
    shutil.rmtree(index)


def break_index(index: Path) -> None:
    for path in index.iterdir():
        path.write_bytes(b"no database")


def keep_index(index: Path) -> None:
    assert index.parent.exists()


@pytest.mark.parametrize("harm", [keep_index, lose_index, break_index])
async def test_packed_messages_are_where_they_were(
    store: MessageStore, workspace: Path, harm: Callable[[Path], None]
) -> None:
    first, second = await settle(store, "one apple", "two pears")
    waiting = await store.send(Draft(action="delegate_task", payload="w"), sender="lead", recipient="coder")
    assert await pack(store) == 2 + 4
    assert files(workspace) == [f"receipt_{waiting.id}.json"]
    assert (await store.read("coder", first.message.id)).place == "archive"
    harm(workspace / ".switchboard" / "index")
    stored = await store.read("coder", second.message.id)
    assert (stored.message.payload, stored.outcome, stored.verified) == ("two pears", "done", True)
    assert [each.message.payload for each in await store.search("coder", "apple")] == ["one apple"]
    statuses = {each.in_reply_to: each.status for each in await store.receipts("lead")}
    assert statuses == {first.message.id: "done", second.message.id: "done", waiting.id: "delivered"}
    verdict = await store.verify()
    assert (verdict.sound, verdict.findings, verdict.counts["archive"]) == (True, [], 2)
    assert (await store.run(quotas.count_stored)).messages == 3
    assert await store.repair() == []


async def test_a_packed_message_is_neither_sent_nor_settled_again(store: MessageStore) -> None:
    (one,) = await settle(store, "same")
    await pack(store)
    draft = Draft(action="delegate_task", payload="same", idempotency_key="same")
    again = await store.send(draft, sender="lead", recipient="coder")
    assert (again.id, again.duplicate) == (one.message.id, True)
    assert (await store.ack("coder", one.message.id, fence=one.fence)).outcome == "done"
    assert await store.peek("coder") == []


async def test_a_crash_before_the_files_are_removed_leaves_one_message(
    store: MessageStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = await settle(store, "work")

    def killed(self: Transaction, folder: int, name: str) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "remove", killed)
        with pytest.raises(RuntimeError):
            await pack(store)
    (segment,) = (workspace / ".switchboard" / "archive").glob("*/days/*")
    segment.write_bytes(segment.read_bytes() + b'{"name":"msg_torn')
    verdict = await store.verify()
    assert (verdict.sound, verdict.counts["archive"]) == (True, 1)
    assert await pack(store) == 3
    verdict = await store.verify()
    assert (verdict.sound, verdict.findings, verdict.counts["archive"]) == (True, [], 1)
    assert (await store.read("coder", one.message.id)).message.payload == "work"


async def test_days_are_pruned_as_a_whole(store: MessageStore, workspace: Path) -> None:
    await settle(store, "old")
    await pack(store)
    for path in (workspace / ".switchboard").glob("*/*/days/*"):
        path.rename(path.with_name("2020-01-01.jsonl"))
    (new,) = await settle(store, "new")
    await pack(store)
    assert (await retention.would_prune(store, 30 * DAY_S)).messages == 1
    done = await retention.prune(store, 30 * DAY_S)
    assert (done.messages, done.receipts) == (1, 2)
    assert [each.in_reply_to for each in await store.receipts("lead")] == [new.message.id]
    assert (await store.verify()).findings == []
    again = Draft(action="delegate_task", payload="old", idempotency_key="old")
    assert not (await store.send(again, sender="lead", recipient="coder")).duplicate


async def test_recent_messages_stay_files(store: MessageStore, workspace: Path) -> None:
    await settle(store, "work")
    assert await store.run(lambda tx: packing.pack(tx, "archive", "coder")) == 0
    assert len(files(workspace)) == 3


async def test_a_folder_is_listed_once_however_many_pieces_it_is_packed_in_and_not_again_until_it_changes(
    store: MessageStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settle(store, *map(str, range(7)))
    for _ in range(9):
        await store.send(Draft(action="delegate_task", payload="w"), sender="lead", recipient="coder")
    monkeypatch.setattr(packing, "PIECE", 2)
    monkeypatch.setattr(packing, "EXAMINED", 3)
    listed: list[int] = []
    each_name = file_operations.each_name

    def listing(folder: int) -> Iterator[str]:
        listed.append(folder)
        return each_name(folder)

    monkeypatch.setattr(file_operations, "each_name", listing)

    def work(tx: Transaction) -> tuple[int, int, int]:
        states: list[int] = []
        first = PackingPass("outbox", "lead", after_s=-1)
        while first.pack(tx):
            pass
        for _ in range(3):
            again = PackingPass("outbox", "lead", after_s=-1)
            assert not again.pack(tx, states[-1] if states else None)
            states.append(again.quiet)
        return first.packed, states[0], states[-1]

    packed, before, after = await store.run(work)
    assert (packed, before) == (14, after)
    assert len(listed) == 2
    assert len(files(workspace)) == 7 + 9


async def test_a_packed_message_takes_little_room(store: MessageStore, workspace: Path) -> None:
    await settle(store, *("x" * 600 + str(number) for number in range(20)))

    def blocks() -> int:
        root = workspace / ".switchboard"
        return sum(
            path.stat().st_blocks * 512
            for place in ("archive", "outbox")
            for path in (root / place).rglob("*.json*")
        )

    before = blocks()
    await pack(store)
    assert blocks() * 4 < before


def test_a_day_ends_at_midnight() -> None:
    assert day_segments.day_of(0) == "1970-01-01.jsonl"
    assert day_segments.ends_before("1970-01-01.jsonl", DAY_S)
    assert not day_segments.ends_before("1970-01-01.jsonl", DAY_S - 1)
