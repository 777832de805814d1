"""Scenario: the cost of one operation as a mailbox grows, with as many messages settled as waiting.

The trees are written by a generator, as the store would have left them: files, segments, and the small records of
order numbers and quotas; no index. Each is measured by a process of its own: first the acts while nothing is indexed
yet, then single acts once the indexes are built. Processor time is what is compared, since it depends less on what
else the machine does: the median of single acts, with all threads of the process. The disk's part is in `mail`. The
largest size is BENCH_LARGEST (100,000): a million takes 10 GB of disk and some minutes. What a settled message takes on
the disk is measured too.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import Quotas, StoreDirectory, Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.maintenance import indexing, packing, sweeper

from bench import durable
from bench.durable import PAYLOAD
from bench.report import Goal, Options, Report, Table, cell
from switchboard_mcp.cli.mail import hook
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import Draft, MailMessage
from switchboard_mcp.mail.store import (
    dropped_files,
    file_operations,
    quotas,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.filenames import Stem, parse, receipt_name, settled_name, waiting_name
from switchboard_mcp.mail.store.store import MessageStore

BASE = 1_000
EACH = 50
# Acts that take longer.
FEW = 10
AGENT, SENDER = "reader", "sender"
# The order of a message in the middle of those that wait.
MIDDLE = "middle"
ROOM = Quotas(waiting=10**8, waiting_bytes=10**13, stored=10**8, stored_bytes=10**13)
WORDS = ("apple", "river", "stone", "cloud", "tiger", "paper", "light", "ocean")


def generate(workspace: Path, count: int) -> None:
    """Write a tree with `count` messages waiting for one agent, and as many settled."""
    directory = StoreDirectory(str(workspace), system_clocks(), ROOM)
    directory.make()
    with directory.transaction() as tx:
        key = tx.signing_key()
        order = tx.next_number()
        inbox, outbox = tx.folder("inbox", AGENT, make=True), tx.folder("outbox", SENDER, make=True)
        settled = _settled(tx, key, count, order - 2 * 86_400_000_000)
        waiting = 0
        for number in range(count):
            # A message is published as soon as it has its number; one that came later is looked for in segments.
            order = max(order + 1, time.time_ns() // 1000)
            stem, data = _message(key, number, order)
            waiting += len(data)
            _write(inbox, waiting_name(stem), data)
            receipt = receipts.delivered_receipt(stem.id, AGENT, "2026-01-01T00:00:00.000Z")
            _write(outbox, receipt_name(stem.id), receipts.encode(receipt))
            if number == count // 2:
                (workspace / MIDDLE).write_text(str(order))
        stored = quotas.Usage(2 * count, waiting + settled, time.time())
        with tx.locked(AGENT), tx.record(quotas.STORED) as record:
            _record(tx.mailbox_record(AGENT), quotas.Usage(count, waiting, time.time()))
            _record(record, stored)
        if file_operations.can_sync_all():
            file_operations.sync_all(tx.root)
    directory.close()


def _record(descriptor: int, usage: quotas.Usage) -> None:
    os.pwrite(descriptor, msgspec.json.encode(usage).ljust(192), 0)


def _write(folder: int, name: str, data: bytes) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
    os.write(file, data)
    os.close(file)


def _message(key: bytes, number: int, order: int) -> tuple[Stem, bytes]:
    stem = Stem(order, f"{number:016x}")
    message = MailMessage(
        id=stem.id,
        action="delegate_task",
        sender=SENDER,
        recipient=AGENT,
        payload=f"{WORDS[number % 8]} number{number} {PAYLOAD[:200]}",
        created_at="2026-01-01T00:00:00.000Z",
        metadata={"verified": True},
    )
    return stem, signing.sign(key, stem, message)


def _settled(tx: Transaction, key: bytes, count: int, since: int) -> int:
    """Write the segments of one day; returns the bytes of the messages."""
    segment = day_segments.day_of(since / 1e6)
    at = since // 1_000_000
    archive = os.open(
        segment, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=tx.folder("archive", AGENT, "days", make=True)
    )
    outbox = os.open(
        segment, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=tx.folder("outbox", SENDER, "days", make=True)
    )
    size = 0
    with open(archive, "wb") as messages, open(outbox, "wb") as written:
        for number in range(count):
            stem, data = _message(key, number, since + number)
            name = settled_name(stem, since + number, "done")
            size += messages.write(_line(name, at, data))
            receipt = receipts.encode(receipts.delivered_receipt(stem.id, AGENT, "2026-01-01T00:00:00.000Z"))
            written.writelines(
                _line(receipt_name(stem.id, outcome), at, receipt) for outcome in (None, "done")
            )
    return size


def _line(name: str, at: int, data: bytes) -> bytes:
    return msgspec.json.encode(day_segments.SegmentLine(name, at, msgspec.Raw(data.strip()))) + b"\n"


async def measure(workspace: Path, count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return CPU milliseconds of each operation, and times and memory while the indexes are built."""
    # Packing lists the outbox in the background, and would be counted with the operations.
    sweeper.FIRST_PACK_S = 3_600.0
    dropped = asyncio.Event()
    async with await MessageStore.open(str(workspace), quotas=ROOM, report=lambda _: dropped.set()) as store:
        draft = Draft(action="delegate_task", payload=PAYLOAD)
        urgent = Draft(action="delegate_task", payload=PAYLOAD, priority="urgent")
        building = await _first_acts(store, workspace, draft)
        held = await store.claim(AGENT, limit=EACH, lease_s=3600)
        page = int((workspace / MIDDLE).read_text())
        settled = await store.run(_settled_ids)

        async def drop(number: int) -> None:
            """Write a file as any program may, and wait until it is delivered."""
            dropped.clear()
            await asyncio.to_thread(_drop, workspace, number)
            await dropped.wait()

        async def claim_urgent(_: int) -> None:
            """Claim while an urgent message raises all others of its sender."""
            await store.claim(AGENT, lease_s=3600)

        acts: dict[str, Callable[[int], Awaitable[object]]] = {
            "look at the first 20": lambda _: store.peek(AGENT, limit=20),
            "look at 20 in the middle": lambda _: store.peek(AGENT, limit=20, after=page),
            "look, in a new store": lambda _: _look(workspace),
            "send": lambda _: store.send(draft, sender=SENDER, recipient=AGENT),
            "claim": lambda _: store.claim(AGENT, lease_s=3600),
            "settle": lambda n: store.ack(AGENT, held[n].message.id, fence=held[n].fence),
            "read by id": lambda n: store.read(AGENT, held[n].message.id),
            "read a settled one by id": lambda n: store.read(AGENT, settled[n]),
            "newest 20 receipts": lambda _: store.receipts(SENDER, limit=20),
            "search, one match": lambda n: store.search(AGENT, f"number{n * (count // EACH)}", limit=20),
            "search, one in 8 matches": lambda n: store.search(AGENT, WORDS[n % 8], limit=20),
            "search, beginning of a word": lambda _: store.search(AGENT, "numb", limit=20),
            "search, newest of a sender": lambda _: store.search(AGENT, "", sender=SENDER, limit=20),
            "list agents": lambda _: store.agents(),
            "register": lambda n: store.register(f"agent-{n % 5}"),
            "hook": lambda _: asyncio.to_thread(_hook, workspace),
            "file dropped by a program, delivered": drop,
            "claim, an urgent one came last": claim_urgent,
        }
        cpu_ms, urgent_id = {}, ""
        for name, act in acts.items():
            if act is claim_urgent:
                urgent_id = (await store.send(urgent, sender=SENDER, recipient=AGENT)).id
            await act(0)
            each = []
            for number in range(1, FEW if act is drop else EACH):
                begin = time.process_time()
                await act(number)
                each.append((time.process_time() - begin) * 1000)
            cpu_ms[name] = statistics.median(each)
        await store.withdraw(AGENT, urgent_id, outcome="recalled", sender=SENDER)
        building["memory at the end, MiB"] = _memory("VmRSS")
        building["most memory, MiB"] = _memory("VmHWM")
        return cpu_ms, building


def _memory(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def _drop(workspace: Path, number: int) -> None:
    inbox = workspace / FOLDER / "inbox" / AGENT
    message = {"id": f"msg_drop{number}", "sender": SENDER, "recipient": AGENT, "action": "delegate_task"}
    (inbox / ".dropped").write_bytes(msgspec.json.encode({**message, "payload": PAYLOAD}))
    (inbox / ".dropped").rename(inbox / f"msg_drop{number}.json")


async def space(workspace: Path, count: int) -> dict[str, float]:
    """Return bytes on disk of a settled message of 600 bytes with its receipts, before and after packing."""
    async with await MessageStore.open(str(workspace), watch=False, quotas=ROOM) as store:
        for agent in (AGENT, SENDER):
            await store.register(agent)
        draft = Draft(action="delegate_task", payload=PAYLOAD)
        await asyncio.gather(*(store.send(draft, sender=SENDER, recipient=AGENT) for _ in range(count)))
        while held := await store.claim(AGENT, limit=100):
            await asyncio.gather(*(store.ack(AGENT, each.message.id, fence=each.fence) for each in held))
        files = _on_disk(workspace) / count
        for place, agent in (("archive", AGENT), ("outbox", SENDER)):
            await store.run(partial(packing.pack, place=place, agent=agent, after_s=-1))
        packed = _on_disk(workspace) / count
        await store.read(AGENT, (await store.receipts(SENDER, limit=1))[0].in_reply_to)
        index = sum(path.stat().st_blocks for path in (workspace / FOLDER / "index").glob("*.db"))
    return {
        "as files, the first hour": files,
        "in segments": packed,
        "index of the segments": index * 512 / count,
    }


def _on_disk(workspace: Path) -> int:
    return sum(
        path.stat().st_blocks * 512
        for place in ("archive", "outbox")
        for path in (workspace / FOLDER / place).rglob("*.json*")
    )


async def _first_acts(store: MessageStore, workspace: Path, draft: Draft) -> dict[str, float]:
    """Seconds of the first acts, when nothing is indexed, and of others while that is done in the background."""
    begun, processor = time.perf_counter(), time.process_time()
    (settled,) = await store.run(lambda tx: _settled_ids(tx, 1))

    async def claim() -> None:
        (held,) = await store.claim(AGENT, lease_s=3600)
        await store.ack(AGENT, held.message.id, fence=held.fence)

    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "send": lambda: store.send(draft, sender=SENDER, recipient=AGENT),
        "look": lambda: store.peek(AGENT, limit=20),
        "claim and settle": claim,
        "read a settled one by id": lambda: store.read(AGENT, settled),
        "newest 20 receipts": lambda: store.receipts(SENDER, limit=20),
        "hook": lambda: asyncio.to_thread(_hook, workspace),
    }
    found = {f"first {name}, s": await _seconds(act()) for name, act in acts.items()}
    longest = dict.fromkeys(acts, 0.0)
    while not await store.run(_is_built):
        for name, act in acts.items():
            longest[name] = max(longest[name], await _seconds(act()))
        await asyncio.sleep(0.1)
    found |= {f"longest {name} meanwhile, s": seconds for name, seconds in longest.items()}
    found["indexed, s"] = time.perf_counter() - begun
    found["indexed, processor s"] = time.process_time() - processor
    begun, processor = time.perf_counter(), time.process_time()
    searching = asyncio.create_task(store.search(AGENT, "number7"))
    longest = dict.fromkeys(acts, 0.0)
    while not searching.done():
        for name, act in acts.items():
            longest[name] = max(longest[name], await _seconds(act()))
        await asyncio.sleep(0.1)
    found["first search, s"] = time.perf_counter() - begun
    found["first search, processor s"] = time.process_time() - processor
    found["longest other act meanwhile, s"] = max(longest.values())
    return found


async def _seconds(act: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await act
    return time.perf_counter() - begun


def _settled_ids(tx: Transaction, most: int = EACH) -> list[str]:
    """Return the ids of some settled messages, from all of the oldest segment."""
    folder = tx.folder("archive", AGENT, day_segments.DAYS)
    *_, segment = day_segments.names_in(folder)
    size = file_operations.size(folder, segment)
    found = []
    for number in range(most):
        lines = islice(day_segments.lines(folder, segment, size * number // most), 2)
        found += [entry.stem.id for _, _, line in lines if (entry := parse("archive", line.name))][-1:]
    return found


def _is_built(tx: Transaction) -> bool:
    """Return True once the sweeper has nothing to index."""
    indexed = [_is_indexed(tx, place, agent) for place, agent in (("archive", AGENT), ("outbox", SENDER))]
    return all(indexed) and not dropped_files.scan(tx, AGENT).partial


def _is_indexed(tx: Transaction, place: str, agent: str) -> bool:
    if day_segments.total_bytes(tx, place, agent) <= indexing.MIN_SEGMENT_BYTES:
        return True
    database = Path(tx.directory.path) / "index" / f"{agent}.{place}.db"
    if not database.exists():
        return False
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        (done,) = connection.execute("SELECT COALESCE(SUM(bytes), 0) FROM segments").fetchone()
    return bool(done == day_segments.total_bytes(tx, place, agent))


async def _look(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False, quotas=ROOM) as store:
        await store.peek(AGENT, limit=20)


def _hook(workspace: Path) -> str:
    return hook.reply(AGENT, "", str(workspace), {}, io.BytesIO(b"{}"))


def run(options: Options) -> Report:
    largest = int(os.environ.get("BENCH_LARGEST", "0")) or options.pick(100_000, 10_000)
    sizes = [size for size in (BASE, 100_000, 1_000_000) if size < largest] + [largest]
    found: dict[int, dict[str, float]] = {}
    building: dict[int, dict[str, float]] = {}
    written: dict[int, float] = {}
    with durable.disk("growth") as folder:
        for size in sizes:
            workspace = folder / str(size)
            workspace.mkdir()
            begun = time.perf_counter()
            generate(workspace, size)
            written[size] = time.perf_counter() - begun
            command = [sys.executable, "-m", "bench.mail_growth", str(workspace), str(size)]
            measured = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            found[size], building[size] = msgspec.json.decode(measured)
            building[size]["tree written by the generator, s"] = written[size]
            shutil.rmtree(workspace)
        (folder / "space").mkdir()
        settled = asyncio.run(space(folder / "space", 500))
    rows = [
        [name, *(cell(found[size][name], 2) for size in sizes), f"{found[largest][name] / ms:.1f} ×"]
        for name, ms in found[BASE].items()
    ]
    heads = ["CPU ms per operation", *(f"{size:,}" for size in sizes), "growth"]
    table = Table("One agent with this many messages waiting and as many settled", heads, rows)
    build = Table(
        "Before the indexes are built, and the process that has done all of this",
        ["", *(f"{size:,}" for size in sizes)],
        [[name, *(cell(building[size][name], 2) for size in sizes)] for name in building[BASE]],
    )
    kept = [[name, cell(size, 0)] for name, size in settled.items()]
    worst = max(found[largest][name] / ms for name, ms in found[BASE].items())
    goals = [Goal(f"largest growth of an operation, {BASE:,} to {largest:,}", worst, "at most", 2)]
    if 100_000 in building:
        goals.append(Goal("index of 100,000 built", building[100_000]["indexed, s"], "at most", 20, "s"))
    goals.append(Goal("a settled message of 600 bytes", settled["in segments"], "at most", 2_048, " bytes"))
    figures = {f"{size} messages, ms": each for size, each in found.items()}
    notes = [f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"]
    title = "A settled message of 600 bytes and its two receipts, bytes on the disk"
    return Report([table, build, Table(title, ["", "bytes"], kept)], goals, figures, notes)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2])))))
