"""Scenario: what it costs to store a message for good.

32 senders, each waiting for its answer before it sends the next. Beside the message desk stand the plain recipe for one
durable file (write, sync, rename, sync the folder) in as many threads, and SQLite with a write-ahead log that is synced
at every commit: the two ways somebody would otherwise take. All take turns on the same disk in the same run. Then
what one message costs in a mailbox where thousands wait.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench import durable
from bench.durable import PAYLOAD, SENDERS
from bench.report import Goal, Options, Report, Samples, Table, cell
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore

RECIPIENTS = 8
ROUND, EACH = 256, 50
DESK, BARE, SQLITE = "switchboard", "fsync", "sqlite"
TITLES = {
    DESK: "Switchboard: message and receipt",
    BARE: "one file: write, fsync, rename, fsync folder",
    SQLITE: "SQLite, WAL, synchronous=FULL",
}


def measure_desk(folder: Path, seconds: float) -> list[float]:
    """Milliseconds of each send."""
    folder.mkdir()

    async def work() -> list[float]:
        taken: list[float] = []
        async with await MessageStore.open(str(folder), watch=False) as post:
            for number in range(RECIPIENTS):
                await post.register(f"reader-{number}")
            until = time.perf_counter() + seconds

            async def send(number: int) -> None:
                count = number
                while (begin := time.perf_counter()) < until:
                    count += 1
                    draft = Draft(action="delegate_task", payload=PAYLOAD)
                    await post.send(
                        draft, sender=f"sender-{number}", recipient=f"reader-{count % RECIPIENTS}"
                    )
                    taken.append((time.perf_counter() - begin) * 1000)

            await asyncio.gather(*(send(number) for number in range(SENDERS)))
            verdict = await post.verify()
            if not verdict.sound or verdict.counts["inbox"] != len(taken):
                raise RuntimeError(f"{len(taken)} were accepted, and {verdict.counts} are there")
        return taken

    return asyncio.run(work())


def in_threads(seconds: float, start: Callable[[int], Callable[[int], None]]) -> list[float]:
    """Milliseconds of each store, by as many threads as there are senders."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    def send(number: int) -> None:
        store = start(number)
        count = 0
        while (begin := time.perf_counter()) < until:
            count += 1
            store(count)
            taken.append((time.perf_counter() - begin) * 1000)

    threads = [threading.Thread(target=send, args=[number]) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def measure_bare(folder: Path, seconds: float) -> list[float]:
    (folder / "inbox").mkdir(parents=True)
    inbox = os.open(folder / "inbox", os.O_RDONLY)

    def start(number: int) -> Callable[[int], None]:
        def store(count: int) -> None:
            durable.store(inbox, f"msg_{number}_{count}.json")

        return store

    try:
        return in_threads(seconds, start)
    finally:
        os.close(inbox)


def measure_sqlite(folder: Path, seconds: float) -> list[float]:
    folder.mkdir()
    path = folder / "mail.db"
    with sqlite3.connect(path) as first:
        first.execute("PRAGMA journal_mode=WAL")
        first.execute("CREATE TABLE mail (id TEXT PRIMARY KEY, payload TEXT)")

    def start(number: int) -> Callable[[int], None]:
        connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous=FULL")

        def store(count: int) -> None:
            connection.execute("INSERT INTO mail VALUES (?, ?)", (f"msg_{number}_{count}", PAYLOAD))

        return store

    return in_threads(seconds, start)


# A mailbox to compare the large one with.
SMALL = 1_000


def measure_large(folder: Path, waiting: int) -> dict[str, float]:
    """Milliseconds of each thing that is done with one message, where so many wait; all by one who waits for each."""
    folder.mkdir()
    taken: dict[str, float] = {}

    async def work() -> None:
        async with await MessageStore.open(str(folder), watch=False) as post:
            await post.register("reader")
            draft = Draft(action="delegate_task", payload=PAYLOAD)
            for _ in range(0, waiting, ROUND):
                sends = (post.send(draft, sender="sender", recipient="reader") for _ in range(ROUND))
                await asyncio.gather(*sends)
            await post.peek("reader", limit=1)  # which reads all of it, once in a process
            held = await post.claim("reader", limit=2 * EACH)
            ids = [one.message.id for one in held]
            works: dict[str, Callable[[int], Coroutine[Any, Any, object]]] = {
                "look at the first 20": lambda _: post.peek("reader", limit=20),
                "look, in a new store": lambda _: _look_anew(folder),
                "send": lambda _: post.send(draft, sender="sender", recipient="reader"),
                "claim one": lambda _: post.claim("reader"),
                "settle": lambda n: post.ack("reader", ids[n], fence=held[n].fence),
                "settle with a result": lambda n: post.ack("reader", ids[-n - 1], result="done"),
                "read by id": lambda n: post.read("reader", ids[n]),
            }
            for name, do in works.items():
                begin = time.perf_counter()
                for number in range(EACH):
                    await do(number)
                taken[name] = (time.perf_counter() - begin) * 1000 / EACH

    asyncio.run(work())
    return taken


async def _look_anew(folder: Path) -> None:
    async with await MessageStore.open(str(folder), watch=False) as post:
        await post.peek("reader", limit=20)


MEASURES = {DESK: measure_desk, BARE: measure_bare, SQLITE: measure_sqlite}


def run(options: Options) -> Report:
    seconds = options.pick(3, 1)
    samples = Samples()
    with durable.disk("mail") as folder:
        for number in range(options.pick(3, 1)):
            for key, measure in MEASURES.items():
                taken = measure(folder / f"{key}-{number}", seconds)
                durable.note(samples, key, len(taken) / seconds, taken)
        waiting = options.pick(40, 4) * ROUND
        small = measure_large(folder / "small", SMALL)
        large = measure_large(folder / "large", waiting)
    figures = samples.medians()
    desk = figures[DESK]
    goals = [
        Goal("durable messages a second", desk["per_s"], "at least", 1_000, "/s"),
        Goal("p99 of a durable send", desk["p99_ms"], "at most", 100, "ms"),
    ]
    title = f"Durable messages, {SENDERS} senders, medians"
    report = durable.report(title, "p50 ms", TITLES, figures, goals)
    rows = [
        [name, cell(small[name], 2), cell(ms, 2), f"{ms / small[name]:.1f} ×"] for name, ms in large.items()
    ]
    heads = ["ms per message", f"{SMALL:,} wait", f"{waiting:,} wait", "growth"]
    report.tables.append(Table("One at a time, as the mailbox grows", heads, rows))
    report.figures = {**figures, "small mailbox, ms": small, "large mailbox, ms": large}
    return report
