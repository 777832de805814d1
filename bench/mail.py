"""Scenario: what it costs to store a message for good.

32 senders, each waiting for its answer before it sends the next. Beside the message desk stand the plain recipe for one
durable file (write, sync, rename, sync the folder) in as many threads, and SQLite with a write-ahead log that is synced
at every commit: the two ways somebody would otherwise take. All take turns on the same disk in the same run.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench import durable
from bench.durable import PAYLOAD, SENDERS
from bench.report import Goal, Options, Report, Samples
from switchboard_mcp.mail.letters import Draft
from switchboard_mcp.mail.post import Post

RECIPIENTS = 8
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
        async with await Post.open(str(folder), watch=False) as post:
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


MEASURES = {DESK: measure_desk, BARE: measure_bare, SQLITE: measure_sqlite}


def run(options: Options) -> Report:
    seconds = options.pick(3, 1)
    samples = Samples()
    with durable.disk("mail") as folder:
        for number in range(options.pick(3, 1)):
            for key, measure in MEASURES.items():
                taken = measure(folder / f"{key}-{number}", seconds)
                durable.note(samples, key, len(taken) / seconds, taken)
    figures = samples.medians()
    desk = figures[DESK]
    goals = [
        Goal("durable messages a second", desk["per_s"], "at least", 1_000, "/s"),
        Goal("p99 of a durable send", desk["p99_ms"], "at most", 100, "ms"),
    ]
    title = f"Durable messages, {SENDERS} senders, medians"
    return durable.report(title, "p50 ms", TITLES, figures, goals)
