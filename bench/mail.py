"""Scenario: what it costs to store a message for good.

32 senders, each waiting for its answer before it sends the next. Beside the message desk stand the plain recipe for one
durable file (write, sync, rename, sync the folder) in as many threads, and SQLite with a write-ahead log that is synced
at every commit: the two ways somebody would otherwise take. All take turns on the same disk in the same run.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Goal, Options, Report, Samples, Table, cell, percentile
from switchboard_mcp.mail.letters import Draft
from switchboard_mcp.mail.post import Post

SENDERS = 32
RECIPIENTS = 8
PAYLOAD = "x" * 600
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
            name = f"msg_{number}_{count}.json"
            file = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=inbox)
            os.write(file, PAYLOAD.encode())
            os.fsync(file)
            os.close(file)
            os.rename(f".{name}", name, src_dir_fd=inbox, dst_dir_fd=inbox)
            os.fsync(inbox)

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
    # In the repository, not in /tmp, which may be in memory. A file system on which thousands of files were deleted
    # in the last minutes, by a run before this one for instance, makes new ones slowly (ext4 does): BENCH_FOLDER.
    folder = os.environ.get("BENCH_FOLDER") or Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix=".bench-mail-", dir=folder) as name:
        for number in range(options.pick(3, 1)):
            for key, measure in MEASURES.items():
                taken = measure(Path(name) / f"{key}-{number}", seconds)
                samples.add(key, "per_s", len(taken) / seconds)
                samples.add(key, "p50_ms", percentile(taken, 50))
                samples.add(key, "p99_ms", percentile(taken, 99))
    return report(samples)


def report(samples: Samples) -> Report:
    figures = samples.medians()
    rows = [
        [TITLES[key], cell(mine["per_s"], 0), cell(mine["p50_ms"], 1), cell(mine["p99_ms"], 1)]
        for key, mine in figures.items()
    ]
    table = Table(
        f"Durable messages, {SENDERS} senders, medians", ["", "messages/s", "p50 ms", "p99 ms"], rows
    )
    desk = figures[DESK]
    goals = [
        Goal("durable messages a second", desk["per_s"], "at least", 1_000, "/s"),
        Goal("p99 of a durable send", desk["p99_ms"], "at most", 100, "ms"),
    ]
    notes = [f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"]
    return Report([table], goals, figures, notes)
