"""Scenario: what one act costs as a mailbox grows: so many messages wait, and as many are settled.

The trees are written by a generator, as the store would have left them. Processor time is what is compared, since it
does not depend on what else the machine does; the disk's part is in `mail`. The largest size is BENCH_LARGEST
(100,000): a million takes some minutes and 5 GB.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bench import durable
from bench.durable import PAYLOAD
from bench.report import Goal, Options, Report, Table, cell
from switchboard_mcp.cli.mail import hook
from switchboard_mcp.mail.messages import Draft, MailMessage
from switchboard_mcp.mail.store import (
    receipts,
    signing,
)
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import Quotas, StoreDirectory, Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import Stem, receipt_name, settled_name, waiting_name
from switchboard_mcp.mail.store.store import MessageStore

BASE = 1_000
EACH = 50
AGENT, SENDER = "reader", "sender"
ROOM = Quotas(waiting=10**8, waiting_bytes=10**13, stored=10**8, stored_bytes=10**13)
WORDS = ("apple", "river", "stone", "cloud", "tiger", "paper", "light", "ocean")


def generate(workspace: Path, count: int) -> None:
    """Write a tree in which so many messages wait for one agent, and so many more are settled."""
    directory = StoreDirectory(str(workspace), system_clocks(), ROOM)
    directory.make()
    now = system_clocks().microseconds()
    with directory.transaction() as tx:
        key = tx.signing_key()
        inbox = tx.folder("inbox", AGENT, make=True)
        for number in range(count):
            stem, data = _message(key, number, now - 3 * 86_400_000_000 + number)
            file = os.open(waiting_name(stem), os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=inbox)
            os.write(file, data)
            os.close(file)
        _settled(tx, key, count, now - 2 * 86_400_000_000)
        tx.folder("outbox", SENDER, make=True)
    directory.close()


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


def _settled(tx: Transaction, key: bytes, count: int, since: int) -> None:
    """Write the segments of one day."""
    segment = day_segments.day_of(since / 1e6)
    at = since // 1_000_000
    archive = os.open(
        segment, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=tx.folder("archive", AGENT, "days", make=True)
    )
    outbox = os.open(
        segment, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=tx.folder("outbox", SENDER, "days", make=True)
    )
    with open(archive, "wb") as messages, open(outbox, "wb") as written:
        for number in range(count):
            stem, data = _message(key, number, since + number)
            name = settled_name(stem, since + number, "done")
            messages.write(_line(name, at, data))
            receipt = receipts.encode(receipts.delivered_receipt(stem.id, AGENT, "2026-01-01T00:00:00.000Z"))
            written.writelines(
                _line(receipt_name(stem.id, outcome), at, receipt) for outcome in (None, "done")
            )


def _line(name: str, at: int, data: bytes) -> bytes:
    return msgspec.json.encode(day_segments.SegmentLine(name, at, msgspec.Raw(data.strip()))) + b"\n"


async def measure(workspace: Path, count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Processor milliseconds of each act; and seconds until the index was built, and of the longest look meanwhile."""
    async with await MessageStore.open(str(workspace), watch=False, quotas=ROOM) as store:
        await store.register(AGENT)
        draft = Draft(action="delegate_task", payload=PAYLOAD)
        building = await _build(store)
        await store.send(draft, sender=SENDER, recipient=AGENT)  # counts what is stored, once
        held = await store.claim(AGENT, limit=EACH, lease_s=3600)
        begin = time.perf_counter()
        await store.search(AGENT, "number7")
        building["first search, s"] = time.perf_counter() - begin
        acts: dict[str, Callable[[int], Awaitable[object]]] = {
            "look at the first 20": lambda _: store.peek(AGENT, limit=20),
            "look, in a new store": lambda _: _look(workspace),
            "send": lambda _: store.send(draft, sender=SENDER, recipient=AGENT),
            "claim": lambda _: store.claim(AGENT, lease_s=3600),
            "settle": lambda n: store.ack(AGENT, held[n].message.id, fence=held[n].fence),
            "read by id": lambda n: store.read(AGENT, held[n].message.id),
            "search": lambda n: store.search(AGENT, f"number{n * (count // EACH)}", limit=20),
            "list agents": lambda _: store.agents(),
            "register": lambda n: store.register(f"agent-{n % 5}"),
            "hook": lambda _: asyncio.to_thread(_hook, workspace),
        }
        taken = {}
        for name, act in acts.items():
            await act(0)
            begin = time.process_time()
            for number in range(1, EACH):
                await act(number)
            taken[name] = (time.process_time() - begin) * 1000 / (EACH - 1)
        return taken, building


async def _build(store: MessageStore) -> dict[str, float]:
    """Look until the index is there, which reads every message once."""
    begin, longest = time.perf_counter(), 0.0
    before = -1
    while True:
        start = time.perf_counter()
        found = await store.run(_count)
        longest = max(longest, time.perf_counter() - start)
        if found == before:
            return {"index built, s": time.perf_counter() - begin, "longest piece, s": longest}
        before = found


def _count(tx: Transaction) -> int:
    from switchboard_mcp.mail.store import dropped_files

    inbox = dropped_files.scan(tx, AGENT)
    return -1 - inbox.count() if inbox.partial else inbox.count()


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
    with durable.disk("growth") as folder:
        for size in sizes:
            workspace = folder / str(size)
            workspace.mkdir()
            generate(workspace, size)
            found[size], building[size] = asyncio.run(measure(workspace, size))
    rows = [
        [name, *(cell(found[size][name], 2) for size in sizes), f"{found[largest][name] / ms:.1f} ×"]
        for name, ms in found[BASE].items()
    ]
    heads = ["processor ms per act", *(f"{size:,}" for size in sizes), "growth"]
    table = Table("One agent, so many messages waiting and as many settled", heads, rows)
    build = Table(
        "The first index, seconds",
        ["", *(f"{size:,}" for size in sizes)],
        [[name, *(cell(building[size][name], 2) for size in sizes)] for name in building[BASE]],
    )
    worst = max(found[largest][name] / ms for name, ms in found[BASE].items())
    goals = [Goal(f"growth of the dearest act, {BASE:,} to {largest:,}", worst, "at most", 2)]
    if 100_000 in building:
        goals.append(Goal("index of 100,000 built", building[100_000]["index built, s"], "at most", 20, "s"))
    figures = {f"{size} messages, ms": each for size, each in found.items()}
    notes = [f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"]
    return Report([table, build], goals, figures, notes)
