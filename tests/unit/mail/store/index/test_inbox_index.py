"""The index of an inbox agrees with its files, whatever happens to either."""

from __future__ import annotations

import functools
import json
import os
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import dropped_files, file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.disk.day_segments import SegmentLine
from switchboard_mcp.mail.store.file_operations import RejectedFile
from switchboard_mcp.mail.store.filenames import Stem, waiting_name
from switchboard_mcp.mail.store.index import inbox_comparison, inbox_index, recent_changes, word_index
from switchboard_mcp.mail.store.index.inbox_index import InboxIndex, IndexRow, first_names
from switchboard_mcp.mail.store.index.word_index import IndexedMessage
from switchboard_mcp.mail.store.ordering import QueuedPosition, claim_order
from switchboard_mcp.mail.store.store import MessageStore

LOG_BYTES = recent_changes.MAX_BYTES


@pytest.fixture(autouse=True)
def exact_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        if not inbox_index.has_exact_stamps(folder, "probe"):
            pytest.skip("this kernel does not give every change of a folder its own time")
    finally:
        os.close(folder)


async def _store(workspace: Path) -> MessageStore:
    store = await MessageStore.open(str(workspace), watch=False)
    for agent in ("lead", "coder"):
        await store.register(agent)
    return store


async def _send(store: MessageStore, text: str = "hello", priority: str = "normal") -> str:
    draft = Draft(action="status_update", payload=text, priority=priority)  # type: ignore[arg-type]
    return (await store.send(draft, sender="lead", recipient="coder")).id


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every listing of an inbox."""
    listed: list[str] = []
    entries = file_operations.entries

    def listing(folder: int) -> list[tuple[str, int]]:
        listed.append(os.readlink(f"/proc/self/fd/{folder}"))
        return entries(folder)

    monkeypatch.setattr(file_operations, "entries", listing)
    return listed


async def _is_right(store: MessageStore) -> None:
    """The index, if it is trusted, shows what a listing shows."""

    def compare(tx: Transaction) -> None:
        while (indexed := dropped_files.scan(tx, "coder")).partial:
            pass
        listed = dropped_files._list(tx, "coder", sys.maxsize).inbox()
        assert [e.name for e in indexed.first(10**6)] == [e.name for e in listed.first(10**6)]
        assert sorted(indexed.dropped) == sorted(listed.dropped)
        assert indexed.count() == listed.count()
        assert indexed.newest() == listed.newest()

    await store.run(compare)


async def test_look_claim_ack_and_send_list_no_folder(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await _store(workspace) as store:
        for number in range(20):
            await _send(store, str(number))
        await store.peek("coder")
        listed = counting(monkeypatch)
        assert len(await store.peek("coder", limit=5)) == 5
        for _ in range(3):
            await _send(store)
            (claimed,) = await store.claim("coder")
            await store.ack("coder", claimed.message.id, fence=claimed.fence)
            (released,) = await store.claim("coder")
            await store.release("coder", released.message.id, fence=released.fence)
        assert len(await store.peek("coder")) == 20
    async with await MessageStore.open(str(workspace), watch=False) as fresh:
        assert len(await fresh.peek("coder")) == 20
    assert listed == []


@pytest.mark.parametrize(
    ("piece", "log_bytes", "priorities", "large"),
    [
        (3, LOG_BYTES, ["low", "normal", "high", "urgent"], inbox_index.LARGE),
        (dropped_files.MAX_READ, LOG_BYTES, ["low", "normal", "high", "urgent"], 0),
        (dropped_files.MAX_READ, LOG_BYTES, ["normal"], inbox_index.LARGE),
        (dropped_files.MAX_READ, 400, ["normal"] * 20 + ["high"], inbox_index.LARGE),
        (3, 400, ["normal"] * 20 + ["high"], 0),
    ],
)
async def test_whatever_is_done_the_index_agrees_with_the_files(
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    piece: int,
    log_bytes: int,
    priorities: list[str],
    large: int,
) -> None:
    monkeypatch.setattr(inbox_index, "LARGE", large)
    monkeypatch.setattr(inbox_comparison, "PIECE", 4)
    monkeypatch.setattr(dropped_files, "MAX_READ", piece)
    monkeypatch.setattr(inbox_index, "MAX_BYTES", log_bytes)
    monkeypatch.setattr(inbox_index, "READ_AHEAD", 4)
    source = random.Random(8)
    inbox = workspace / ".switchboard" / "inbox" / "coder"
    async with await _store(workspace) as one, await MessageStore.open(str(workspace), watch=False) as two:
        held = []
        for step in range(150):
            store = source.choice([one, two])
            what = source.randrange(8)
            if what <= 2:
                await _send(store, priority=source.choice(priorities))
            elif what == 3:
                held += await store.claim("coder", limit=2)
            elif what == 4 and held:
                claimed = held.pop()
                await store.ack("coder", claimed.message.id, fence=claimed.fence)
            elif what == 5 and held:
                claimed = held.pop()
                await store.release("coder", claimed.message.id, fence=claimed.fence)
            elif what == 6:
                message = {"id": f"msg_d{step}", "action": "status_update", "sender": "lead"}
                message |= {"recipient": "coder", "payload": "x", "createdAt": "2025-01-01T00:00:00.000Z"}
                (inbox / f"msg_d{step}.json").write_text(json.dumps(message))
                if source.random() < 0.5:
                    await store.deliver("coder")
            elif what == 7 and os.listdir(inbox) and source.random() < 0.3:
                (inbox / min(os.listdir(inbox))).unlink()  # by hand
            if piece > 3 or step % 5 == 0:
                await _is_right(source.choice([one, two]))
            if step % 10 == 0:
                _harm(workspace / ".switchboard" / "index", source, database=piece == 3)


def _harm(index: Path, source: random.Random, *, database: bool) -> None:
    """Remove or cut a file of the index."""
    for file in index.glob("coder.db" if database else "coder.changes"):
        if database or source.random() < 0.5:
            file.unlink()
        else:
            os.truncate(file, file.stat().st_size // 2)


def corrupt(index: Path) -> None:
    for file in index.iterdir():
        file.write_bytes(b"not a database" * 100)


def truncated(index: Path) -> None:
    for file in index.iterdir():
        os.truncate(file, 5000)


def removed(index: Path) -> None:
    for file in index.iterdir():
        file.unlink()


def emptied(index: Path) -> None:
    for file in index.iterdir():
        os.truncate(file, 0)


def a_folder(index: Path) -> None:
    removed(index)
    (index / "coder.db").mkdir()


def a_link(index: Path) -> None:
    removed(index)
    (index / "coder.db").symlink_to(index.parent.parent / "outside")


@pytest.mark.parametrize("harm", [corrupt, truncated, removed, emptied, a_folder, a_link])
@pytest.mark.parametrize("fresh", [True, False])
async def test_an_index_that_is_harmed_costs_time_and_nothing_else(
    workspace: Path, harm: Callable[[Path], None], fresh: bool
) -> None:
    async with await _store(workspace) as store:
        ids = [await _send(store, str(number)) for number in range(5)]
        await store.peek("coder")
        if not fresh:
            harm(workspace / ".switchboard" / "index")
            await _check(store, ids)
    if fresh:
        harm(workspace / ".switchboard" / "index")
        async with await MessageStore.open(str(workspace), watch=False) as store:
            await _check(store, ids)
    assert not (workspace / "outside").exists()


async def _check(store: MessageStore, ids: list[str]) -> None:
    assert [each.message.id for each in await store.peek("coder")] == ids
    ids.append(await _send(store))
    assert [each.message.id for each in await store.peek("coder")] == ids
    claimed = await store.claim("coder", limit=2)
    assert [each.message.id for each in claimed] == ids[:2]
    assert [each.message.id for each in await store.peek("coder")] == ids[2:]
    assert (await store.verify()).sound


def test_messages_come_from_the_index_in_claim_order(tmp_path: Path) -> None:
    source = random.Random(3)
    for seed in range(60):
        index = InboxIndex(str(tmp_path / str(seed)), "boot")
        rows, positions = [], []
        for order in range(1, source.randrange(2, 25)):
            sender = source.choice("abc")
            priority = source.choice(["low", "normal", "normal", "high", "urgent"])
            rows.append(IndexRow(waiting_name(Stem(order, f"{order:016x}")), order, sender, priority))
            positions.append(QueuedPosition(order, sender, priority))
        index.write("coder", 1, rows)
        view = index.view("coder", 1)
        assert view is not None
        expected = [rows[place].name for place in claim_order(positions)]
        assert [entry.name for entry in first_names(view, 100)] == expected
        index.close_thread()


def _priorities(shape: str, count: int) -> list[tuple[str, str]]:
    """The sender and priority of so many messages, in order."""
    normal = [("a", "normal")] * count
    return {
        "all normal": normal,
        "an urgent one after many from its sender": [*normal, ("a", "urgent")],
        "an urgent one from another sender": [*normal, ("b", "urgent")],
        "many low ones before a normal one": [("a", "low")] * count + [("b", "normal")],
        "many low ones that a normal one raises": [("a", "low")] * count + [("a", "normal")],
        "a high one after many low ones": [("a", "low")] * count + [("a", "high")],
        "many urgent ones": [("a", "urgent")] * count,
    }[shape]


@pytest.mark.parametrize(
    "shape",
    [
        "all normal",
        "an urgent one after many from its sender",
        "an urgent one from another sender",
        "many low ones before a normal one",
        "many low ones that a normal one raises",
        "a high one after many low ones",
        "many urgent ones",
    ],
)
def test_the_first_messages_cost_the_same_however_many_wait_and_whatever_their_priorities(
    tmp_path: Path, shape: str
) -> None:
    steps: dict[int, dict[str, int]] = {}
    for count in (600, 6_000):
        index = InboxIndex(str(tmp_path / str(count)), "boot")
        described = _priorities(shape, count)
        rows = [
            IndexRow(waiting_name(Stem(order, f"{order:016x}")), order, sender, priority)
            for order, (sender, priority) in enumerate(described, start=1)
        ]
        index.write("coder", 1, rows)
        view = index.view("coder", 1)
        assert view is not None
        positions = [QueuedPosition(order, *each) for order, each in enumerate(described, start=1)]
        expected = [rows[place].name for place in claim_order(positions)]
        # The index whose instructions are counted: the time of an act is in proportion to them.
        opened = index._opened("coder")
        assert opened is not None
        connection, done = opened.connection, [0]
        first, later = functools.partial(first_names, view, 5), count - 10

        def count_step(done: list[int] = done) -> int:
            done[0] += 1
            return 0

        connection.set_progress_handler(count_step, 1)
        steps[count] = {}
        acts: dict[str, Callable[[], object]] = {
            "first": first,
            "page": functools.partial(first, after=later),
            "newest": view.newest,
            "oldest": view.oldest,
        }
        for name, act in acts.items():
            done[0] = 0
            act()
            steps[count][name] = done[0]
        connection.set_progress_handler(None, 0)
        assert [entry.name for entry in first()] == expected[:5]
        page = [name for name in expected if name >= rows[later].name]
        assert [entry.name for entry in first(after=later)] == page[:5]
        index.close_thread()
    few, many = steps[600], steps[6_000]
    # Some instructions more: what was read ahead may suffice in one case and not in the other.
    assert [name for name in few if many[name] > 2 * few[name] + 200] == []


def test_an_index_is_not_used_for_another_state_boot_or_after_long(tmp_path: Path) -> None:
    index = InboxIndex(str(tmp_path), "boot")
    index.write("coder", 5, [])
    now = os.stat(tmp_path).st_mtime
    assert index.view("coder", 5, now=now) is not None
    assert index.view("coder", 6, now=now) is None
    assert index.view("coder", 5, now=now + 2 * inbox_index.RELIST_S) is None
    assert InboxIndex(str(tmp_path), "other").view("coder", 5, now=now) is None


async def test_an_index_is_built_in_pieces_while_messages_are_claimed_and_sent(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await _store(workspace) as store:
        sent = [await _send(store, str(number)) for number in range(35)]
        unsigned = [f"msg_{number:016d}_{number:016x}.json" for number in range(12)]
        for name in unsigned:
            (workspace / ".switchboard" / "inbox" / "coder" / name).write_text("{}")
    monkeypatch.setattr(dropped_files, "MAX_READ", 10)
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    for database in (workspace / ".switchboard").glob("index/*"):
        database.unlink()
    async with await _store(workspace) as store:
        # The first piece has files that are no messages.
        assert await store.claim("coder") == []
        (held,) = await store.claim("coder")
        assert held.message.id == sent[0]
        sent.append(await _send(store, "new"))
        looks = 0
        while len(await store.peek("coder")) < len(sent) - 1:
            looks += 1
            assert looks < 20, "it never ends"
        assert [each.message.id for each in await store.peek("coder")][-2:] == sent[-2:]
        await _is_right(store)


@pytest.mark.parametrize("pieces", [2, 12])
async def test_building_an_index_lists_once_and_reads_every_file_once_however_many_pieces_it_takes(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    async with await _store(workspace) as store:
        for number in range(5 * pieces):
            await _send(store, str(number))
    root = workspace / ".switchboard"
    for place, agent in (("archive", "coder"), ("outbox", "lead")):
        (root / place / agent / "days").mkdir(parents=True)
        (root / place / agent / "days" / "2026-01-01.jsonl").write_text('{"name":"x","at":1,"content":{}}\n')
    for database in root.glob("index/*"):
        database.unlink()
    monkeypatch.setattr(dropped_files, "MAX_READ", 5)
    # Every message counts as moved here later, as in a tree that was copied, so its copies are searched.
    monkeypatch.setattr(dropped_files, "PUBLISHED_WITHIN_S", -1.0)
    read: Counter[str] = Counter()
    original_read, original_lines = file_operations.read, day_segments.lines

    def reading(folder: int, name: str, limit: int) -> file_operations.FileContent | RejectedFile:
        read[name] += name.startswith("msg_")
        return original_read(folder, name, limit)

    def segment_lines(folder: int, segment: str, start: int = 0) -> Iterator[tuple[int, int, SegmentLine]]:
        read["segments"] += 1
        return original_lines(folder, segment, start)

    def waiting(tx: Transaction) -> int:
        return len(dropped_files.scan(tx, "coder", listing=True).first(1000))

    async with await MessageStore.open(str(workspace), watch=False) as store:
        monkeypatch.setattr(file_operations, "read", reading)
        monkeypatch.setattr(day_segments, "lines", segment_lines)
        listed = counting(monkeypatch)
        shown = [await store.run(waiting) for _ in range(pieces)]
        assert shown == [5 * number for number in range(1, pieces + 1)]
        assert sum(name.endswith("inbox/coder") for name in listed) == 2, "without and under the lock"
        assert read.pop("segments") == 2, "the segment of the archive and that of the receipts"
        assert {name: times for name, times in read.items() if times > 1} == {}
        await _is_right(store)


async def test_a_message_sent_while_an_index_is_built_waits_for_the_unread_ones_before_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await _store(workspace) as store:
        sent = [await _send(store, str(number)) for number in range(20)]
    for database in (workspace / ".switchboard").glob("index/*"):
        database.unlink()
    monkeypatch.setattr(dropped_files, "MAX_READ", 5)
    async with await _store(workspace) as store:
        claimed = [each.message.id for each in await store.claim("coder", limit=3)]
        sent.append(await _send(store, "new", "urgent"))
        while len(claimed) < 10:
            claimed += [each.message.id for each in await store.claim("coder", limit=2)]
            sent.append(await _send(store, "new"))
        while found := await store.claim("coder", limit=4):
            claimed += [each.message.id for each in found]
        assert claimed == sent
        await _is_right(store)


def test_two_processes_that_write_an_index_at_the_same_time_leave_none_that_lacks_a_message(
    tmp_path: Path,
) -> None:
    """The first has listed a message that the second, which began before it, has not; then both write."""
    first, second = (InboxIndex(str(tmp_path), "boot") for _ in range(2))
    early, late = (IndexRow(waiting_name(Stem(n, f"{n:016x}")), n, "lead", "normal") for n in (1, 2))
    first.write("coder", -7, [early, late])
    second.write("coder", -8, [early])
    first.update("coder", -7, 5, [], [])
    assert first.view("coder", 5) is None
    second.update("coder", -8, 5, [late], [])
    for index in (first, second):
        view = index.view("coder", 5)
        assert view is not None
        assert list(view.ordered()) == [early.name, late.name]
        index.close_thread()


def test_an_index_that_another_process_has_locked_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_index, "_BUSY_S", 0.01)
    index, row = InboxIndex(str(tmp_path), "boot"), IndexRow(waiting_name(Stem(1, "0" * 16)), 7, unread=True)
    index.write("coder", 5, [row])
    other = sqlite3.connect(tmp_path / inbox_index.FOLDER / "coder.db", isolation_level=None)
    with word_index.opened(str(tmp_path), "coder") as words:
        assert words is not None
        words.add([IndexedMessage(1, "msg_1", "lead", "execute", "apple")])
    more = sqlite3.connect(tmp_path / inbox_index.FOLDER / "coder.words.db", isolation_level=None)
    for each in (other, more):
        each.execute("BEGIN EXCLUSIVE")
    assert index.view("coder", 5, partial=True) is None
    index.update("coder", 5, 6, [], [row.name])
    index.mark_read("coder", [IndexRow(row.name, 7, "lead", "normal")])
    with word_index.opened(str(tmp_path), "coder") as words:
        assert words is None
    for each in (other, more):
        each.execute("ROLLBACK")
        each.close()
    view = index.view("coder", 5, partial=True)
    assert view is not None
    assert view.unread(10) == [(row.name, 7)]
    assert index.view("coder", 6) is None
    with word_index.opened(str(tmp_path), "coder") as words:
        assert words is not None
        assert words.search("apple", None, None, 5) == [(1, "msg_1")]
    index.close_thread()


def test_the_words_of_a_segment_and_how_far_it_was_read_are_one_transaction(tmp_path: Path) -> None:
    statements: list[str] = []
    with word_index.opened(str(tmp_path), "coder") as words:
        assert words is not None
        words._connection.set_trace_callback(statements.append)
        messages = [IndexedMessage(n, f"msg_{n}", "lead", "execute", f"word{n}") for n in range(1, 40)]
        words.add_segment("2026-01-01.jsonl", [(10 * each.order, each) for each in messages] + [(395, None)])
        assert words.segment_bytes("2026-01-01.jsonl") == 395
        assert words.search("word39", None, None, 5) == [(39, "msg_39")]
    assert statements.count("COMMIT") == 1


async def test_a_claim_syncs_nothing_and_uses_no_database(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await _store(workspace) as store:
        for number in range(8):
            await _send(store, str(number))
        for _ in range(2):  # The second one reads ahead.
            await store.claim("coder")
        work: list[str] = []
        for name in ("sync_folders", "sync_file"):
            monkeypatch.setattr(Transaction, name, lambda *_, name=name: work.append(name))

        def trace(tx: Transaction) -> None:
            opened = tx.directory.index._opened("coder")
            assert opened is not None
            opened.connection.set_trace_callback(work.append)

        await store.run(trace)
        for _ in range(5):
            assert len(await store.claim("coder")) == 1
        assert work == []
        await _is_right(store)


@pytest.mark.parametrize(
    ("query", "sender"),
    [
        ("apple", None),
        ("apple number", None),
        ("numb", None),
        ("apple", "rare"),
        ("", "rare"),
    ],
)
def test_a_search_costs_the_same_however_many_messages_have_its_words(
    tmp_path: Path, query: str, sender: str | None
) -> None:
    steps = []
    for count in (400, 4_000):
        with word_index.opened(str(tmp_path / str(count)), "coder") as words:
            assert words is not None
            words.add(
                IndexedMessage(n, f"msg_{n}", who, "execute", f"{who} execute  apple number{n}")
                for n in range(1, count)
                for who in ["rare" if n in (1, count - 1) else "lead"]
            )
            done = [0]

            def step(done: list[int] = done) -> int:
                done[0] += 1
                return 0

            words._connection.set_progress_handler(step, 1)
            found = words.search(query, sender, None, 20)
            steps.append(done[0])
            newest = [count - 1, 1] if sender else list(range(count - 1, 0, -1))[:20]
            assert [order for order, _ in found] == newest
    assert steps[1] <= 2 * steps[0] + 200


def test_a_word_index_of_an_earlier_version_is_written_again(tmp_path: Path) -> None:
    (tmp_path / inbox_index.FOLDER).mkdir()
    old = sqlite3.connect(tmp_path / inbox_index.FOLDER / "coder.words.db")
    old.execute("CREATE TABLE messages (ord INTEGER PRIMARY KEY)")
    old.close()
    os.chmod(tmp_path / inbox_index.FOLDER / "coder.words.db", 0o600)
    with word_index.opened(str(tmp_path), "coder") as words:
        assert words is not None
        words.add([IndexedMessage(1, "msg_1", "lead", "execute", "apples")])
        assert words.search("appl", None, None, 5) == [(1, "msg_1")]
