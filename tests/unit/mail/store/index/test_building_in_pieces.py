"""Everything that reads all messages does so in pieces, and acts are answered before it has ended."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import (
    dropped_files,
    file_operations,
    message_lookup,
    message_search,
    receipts,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.index import inbox_comparison, inbox_index, word_index
from switchboard_mcp.mail.store.maintenance import packing
from switchboard_mcp.mail.store.maintenance.indexing import IndexingPass
from switchboard_mcp.mail.store.maintenance.packing import PackingPass
from switchboard_mcp.mail.store.message_search import SearchQuery
from switchboard_mcp.mail.store.receipts import NewestReceipts
from switchboard_mcp.mail.store.store import MessageStore
from tests import patience


async def _open(workspace: Path) -> MessageStore:
    store = await MessageStore.open(str(workspace), watch=False)
    for agent in ("lead", "coder"):
        await store.register(agent)
    if not await store.run(lambda tx: tx.directory.index.exact):
        await store.close()
        pytest.skip("this kernel does not give every change of a folder its own time")
    return store


async def _send(store: MessageStore, text: str, priority: str = "normal") -> str:
    draft = Draft(action="status_update", payload=text, priority=priority)  # type: ignore[arg-type]
    return (await store.send(draft, sender="lead", recipient="coder")).id


async def _settle(store: MessageStore, count: int) -> list[str]:
    """Send and settle so many messages, and pack them."""
    ids = [await _send(store, f"settled{number}") for number in range(count)]
    for held in await store.claim("coder", limit=count):
        await store.ack("coder", held.message.id, fence=held.fence)

    def pack(tx: Transaction) -> None:
        for place, agent in (("archive", "coder"), ("outbox", "lead")):
            packing.pack(tx, place, agent, after_s=-1)

    await store.run(pack)
    return ids


def _lose_indexes(workspace: Path) -> None:
    shutil.rmtree(workspace / ".switchboard" / "index", ignore_errors=True)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count an inbox of more than ten files as large, with small pieces, in a workspace that is swept."""
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    monkeypatch.setattr(inbox_index, "LARGE", 10)
    monkeypatch.setattr(inbox_comparison, "PIECE", 4)
    monkeypatch.setattr(dropped_files, "FIRST_FILES", 6)
    monkeypatch.setattr(dropped_files, "MAX_READ", 4)
    monkeypatch.setattr(dropped_files, "READY", 2)
    monkeypatch.setattr(dropped_files, "is_swept", lambda _: True)

    def listing(*_: object) -> Any:
        raise AssertionError("all of it was listed at once")

    monkeypatch.setattr(file_operations, "entries", listing)


def _sweep(tx: Transaction, changed: Collection[str] = ()) -> bool:
    """Do a piece of the sweeper's work; returns True once the index is complete."""
    return not dropped_files.scan(tx, "coder", listing=True, changed=set(changed)).partial


@pytest.mark.usefixtures("large")
async def test_messages_are_shown_and_claimed_in_order_before_a_large_inbox_is_indexed(
    workspace: Path,
) -> None:
    async with await _open(workspace) as store:
        sent = [await _send(store, str(number)) for number in range(40)]
    _lose_indexes(workspace)
    async with await _open(workspace) as store:
        assert [each.message.id for each in await store.peek("coder", limit=3)] == sent[:3]
        claimed = []
        for number in range(20):
            claimed += [each.message.id for each in await store.claim("coder")]
            sent.append(await _send(store, f"new {number}"))
        assert claimed == sent[:20]
        pieces = 0
        while not await store.run(_sweep):
            pieces += 1
            assert pieces < 100, "it never ends"
        assert pieces > 10
        assert [each.message.id for each in await store.peek("coder")] == sent[20:]
        assert await store.run(lambda tx: dropped_files.scan(tx, "coder").count()) == 40


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("changed", [(), ("msg_1",)], ids=["quiet", "busy"])
async def test_what_others_do_while_a_large_inbox_is_indexed_is_in_the_index(
    workspace: Path, changed: Collection[str]
) -> None:
    async with await _open(workspace) as store, await MessageStore.open(str(workspace), watch=False) as other:
        sent = [await _send(store, str(number)) for number in range(30)]
        _lose_indexes(workspace)
        (held,) = await store.claim("coder")
        (taken,) = await other.claim("coder", ids=[sent[1]])
        complete, step = False, 0
        while not complete:
            complete = await store.run(lambda tx: _sweep(tx, changed))
            step += 1
            if step == 3:
                # Its place is before that of messages which are in the index by now.
                await other.release("coder", taken.message.id, fence=taken.fence)
                sent.append(await _send(other, "urgent", "urgent"))
            assert step < 100, "it never ends"
        await other.release("coder", held.message.id, fence=held.fence)
        assert [each.message.id for each in await store.peek("coder")] == sent


@pytest.mark.usefixtures("large")
async def test_messages_whose_rows_could_not_be_written_are_not_taken_for_known(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await _open(workspace) as store:
        sent = [await _send(store, str(number)) for number in range(40)]
        _lose_indexes(workspace)
        with monkeypatch.context() as failing:
            failing.setattr(inbox_index.InboxIndex, "correct", lambda *_: False)
            assert not await store.run(_sweep)
            assert not await store.run(_sweep)
        assert [each.message.id for each in await store.peek("coder", limit=3)] == sent[:3]


@pytest.mark.usefixtures("large")
async def test_a_comparison_that_began_before_an_index_was_lost_does_not_complete_the_next_one(
    workspace: Path,
) -> None:
    async with await _open(workspace) as store:
        sent = [await _send(store, str(number)) for number in range(40)]
        for _ in range(8):
            assert not await store.run(_sweep)
        _lose_indexes(workspace)
        steps = 0
        while not await store.run(_sweep):
            steps += 1
            assert steps < 100, "it never ends"
        assert [each.message.id for each in await store.peek("coder")] == sent


async def test_a_settled_message_is_found_while_its_segment_is_indexed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_segments, "_BATCH", 2)
    monkeypatch.setattr(day_segments, "_CHUNK", 100)
    async with await _open(workspace) as store:
        ids = await _settle(store, 12)
        _lose_indexes(workspace)
        assert (await store.read("coder", ids[11])).message.payload == "settled11"

        def unindexed(tx: Transaction) -> int:
            day_segments.find(tx, "archive", "coder", ids[0])
            return len(tx.segment_indexes["archive", "coder"].unindexed)

        assert await store.run(unindexed) == 1, "a lookup indexes a piece, not all"

        def find_all(tx: Transaction) -> list[int]:
            found = [len(day_segments.find(tx, "archive", "coder", each)) for each in ids]
            assert not tx.segment_indexes["archive", "coder"].unindexed, "many lookups index all"
            return found

        assert await store.run(find_all) == [1] * 12
        (receipt,) = await store.receipts("lead", ids=[ids[11]])
        assert receipt.status == "done"


async def test_work_in_the_background_does_not_wait_for_segments_without_an_index(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    monkeypatch.setattr(dropped_files, "MAX_READ", 3)
    # As in a tree that was copied: every message may be a copy of a settled one.
    monkeypatch.setattr(dropped_files, "PUBLISHED_WITHIN_S", -1.0)
    async with await _open(workspace) as store:
        await _settle(store, 12)
        sent = [await _send(store, str(number)) for number in range(8)]
        _lose_indexes(workspace)
        await store.peek("coder")
        shutil.rmtree(workspace / ".switchboard" / "index" / "lead.outbox.db", ignore_errors=True)
        (workspace / ".switchboard" / "index" / "lead.outbox.db").unlink()
        monkeypatch.setattr(day_segments, "_BATCH", 2)
        monkeypatch.setattr(day_segments, "MAX_SEARCHES", 0)
        pieces = []

        def sweep(tx: Transaction) -> bool:
            inbox = dropped_files.scan(tx, "coder", listing=True, changed=set())
            index = tx.segment_indexes.get(("outbox", "lead"))
            pieces.append(sum(index.unindexed.values()) if index is not None else 0)
            return not inbox.partial

        while not await store.run(sweep):
            assert len(pieces) < 100, "it never ends"
        assert len(set(pieces)) > 5, "each piece indexes some lines"
        assert [each.message.id for each in await store.peek("coder")] == sent


async def test_segments_and_receipts_are_indexed_by_the_sweeper_in_pieces(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_segments, "_BATCH", 2)
    monkeypatch.setattr("switchboard_mcp.mail.store.maintenance.indexing.MIN_SEGMENT_BYTES", 0)
    monkeypatch.setattr(receipts, "LARGE_FOLDER_BYTES", 0)
    monkeypatch.setattr(receipts, "PIECE", 3)
    async with await _open(workspace) as store:
        await _settle(store, 6)
        newest = [await _send(store, str(number)) for number in range(10)]
        _lose_indexes(workspace)
        work, pieces = IndexingPass(), 0
        while await store.run(work.advance):
            pieces += 1
        assert pieces >= 6 // 2 + 12 // 2 + 10 // 3 - 2

        def listing(*_: object) -> Any:
            raise AssertionError("it was listed")

        monkeypatch.setattr(file_operations, "each_name", listing)
        monkeypatch.setattr(day_segments, "lines", listing)
        found = await store.receipts("lead", limit=3)
        assert [each.in_reply_to for each in found] == newest[:-4:-1]
        assert not await store.run(lambda tx: day_segments.index_piece(tx, "archive", "coder"))


async def test_the_newest_receipts_are_found_in_pieces_among_files_and_segments(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "PIECE", 3)
    monkeypatch.setattr(receipts, "KEPT", 2)
    monkeypatch.setattr(day_segments, "_TAIL", 50)
    async with await _open(workspace) as store:
        waiting = [await _send(store, str(number)) for number in range(10)]
        held = await store.claim("coder", limit=4)
        for each in held:
            await store.ack("coder", each.message.id, fence=each.fence)
        await store.run(lambda tx: packing.pack(tx, "outbox", "lead", after_s=-1))
        (segment,) = (workspace / ".switchboard" / "outbox" / "lead" / "days").iterdir()
        segment.write_text(re.sub(r'"at":\d+', '"at":9000000000', segment.read_text()))
        work = NewestReceipts("lead", None, 6)
        found, pieces = await store.run(work.advance), 0
        while found is None:
            pieces += 1
            found = await store.run(work.advance)
        assert pieces == 2
        # The settled ones are the newest, though they are in a segment.
        assert {each.in_reply_to for each in found[:4]} == set(waiting[:4])
        assert [each.status for each in found] == ["done"] * 4 + ["delivered"] * 2
        assert [each.in_reply_to for each in found[4:]] == waiting[:-3:-1]


async def test_receipts_and_searches_that_need_many_lookups_index_segments_in_pieces(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_segments, "_BATCH", 2)
    monkeypatch.setattr(message_search, "MAX_RANKED", 5)
    monkeypatch.setattr(message_search, "MAX_SEGMENT_BYTES", 0)
    query = SearchQuery(query="settled3", sender=None, action=None, places=("archive",), limit=5)
    async with await _open(workspace) as store:
        ids = await _settle(store, 10)
        _lose_indexes(workspace)
        work = NewestReceipts("lead", ids, 10)
        pieces = 0
        while (receipts_found := await store.run(work.advance)) is None:
            pieces += 1
        assert pieces == 20 // 2 - 1
        assert {each.in_reply_to for each in receipts_found} == set(ids)
        pieces = 0
        while (found := await store.run(lambda tx: message_search.search(tx, "coder", query))) is None:
            pieces += 1
        assert pieces >= 10 // 2
        assert found[0].message.id == ids[3]


async def test_words_are_indexed_in_pieces_and_a_search_waits_for_the_last(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    monkeypatch.setattr(message_search, "MAX_RANKED", 5)
    monkeypatch.setattr(message_search, "MAX_SEGMENT_BYTES", 0)
    monkeypatch.setattr(message_search, "BATCH", 4)
    query = SearchQuery(query="settled3", sender=None, action=None, places=("inbox", "archive"), limit=5)
    async with await _open(workspace) as store:
        ids = await _settle(store, 9)
        for number in range(10):
            await _send(store, f"waiting{number}")
        await store.peek("coder")
        answers = [await store.run(lambda tx: message_search.search(tx, "coder", query)) for _ in range(3)]
        assert answers == [None] * 3
        (found, *_) = await store.search("coder", "settled3")
        assert found.message.id == ids[3]
        late = await _send(store, "quaternion")
        (found, *_) = await store.search("coder", "quaternion")
        assert found.message.id == late


async def test_messages_that_were_indexed_before_are_not_read_again_by_a_search(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    monkeypatch.setattr(message_search, "MAX_RANKED", 5)
    monkeypatch.setattr(message_search, "OVERLAP_US", 0)
    async with await _open(workspace) as store:
        for number in range(20):
            await _send(store, f"waiting{number}")
        await store.peek("coder")
        assert len(await store.search("coder", "waiting")) == 20

        def position(tx: Transaction) -> tuple[int, int]:
            view = message_lookup.inbox_view(tx, "coder")
            assert view is not None
            with word_index.opened(tx.directory.path, "coder") as index:
                assert index is not None
                return index.position(), view.newest()

        found, newest = await store.run(position)
        assert found == newest


async def test_a_large_outbox_is_listed_for_packing_in_pieces(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "LISTED", 4)
    monkeypatch.setattr(packing, "KEPT", 3)
    async with await _open(workspace) as store:
        for number in range(12):
            await _send(store, str(number))
        for held in await store.claim("coder", limit=6):
            await store.ack("coder", held.message.id, fence=held.fence)

        def work(tx: Transaction) -> tuple[int, int]:
            current, pieces = PackingPass("outbox", "lead", after_s=-1), 1
            while current.pack(tx):
                pieces += 1
            return current.packed, pieces

        packed, pieces = await store.run(work)
        assert packed == 12
        assert pieces > 4


async def test_a_settled_message_is_read_by_id_without_listing_a_large_inbox(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    async with await _open(workspace) as store:
        (settled,) = await _settle(store, 1)
        for number in range(5):
            await _send(store, str(number))
        await store.peek("coder")
        names = Transaction.names

        def listing(tx: Transaction, *parts: str) -> list[str]:
            assert parts != ("inbox", "coder"), "it was listed"
            return names(tx, *parts)

        monkeypatch.setattr(Transaction, "names", listing)
        assert (await store.read("coder", settled)).place == "archive"


async def test_a_lost_counter_continues_above_the_numbers_of_files_and_segments(workspace: Path) -> None:
    async with await _open(workspace) as store:
        (settled,) = await _settle(store, 1)
        segment = next((workspace / ".switchboard" / "archive" / "coder" / "days").iterdir())
        number = settled.split("_")[1]
        segment.write_text(segment.read_text().replace(number, "7999999999999999"))
        (workspace / ".switchboard" / "locks" / "order").write_bytes(b"")
        assert (await _send(store, "next")).startswith("msg_8000000000000000_")


async def test_the_process_that_sweeps_prepares_the_indexes(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "LARGE_FOLDER_BYTES", 0)
    async with await _open(workspace) as store:
        await _send(store, "hello")
    _lose_indexes(workspace)
    async with await MessageStore.open(str(workspace)), asyncio.timeout(patience.PATIENCE_S):
        while not list((workspace / ".switchboard").glob("index/lead.receipts.*")):  # noqa: ASYNC110 - files
            await asyncio.sleep(0.02)
