"""Scenario: messages from one machine to another, over a Redis that is append-only and synced every second.

Beside Switchboard stands what one would write with redis-py, at the same durability: a producer that has each message
on its disk before it hands it to Redis, and a consumer that has it on its own before it acknowledges. And, to know what
the disks cost, the same without any files, which loses what either side held when it dies. Two processes and one Redis
each, 32 senders, every message waits for its answer; a message counts when the receiver has it for good.

Then a backlog that drains when the relay reaches Redis again, and one relay among up to 1,000 idle machines.

And calls while their events are published: with a bus and no mail, beside open mode without and with the audit log.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import bus_scale, calls
from bench.bus_peer import STREAM
from bench.client import BenchError
from bench.contestants import switchboard
from bench.durable import PAYLOAD, SENDERS, disk, note, report, store
from bench.governed import OPEN, configured, one_round
from bench.report import Figures, Goal, Options, Report, Samples, Table, cell

# Messages one at a time, for their latency: enough that one of them does not make the 99th percentile.
ALONE = 300
DESK, BARE, PLAIN = "switchboard", "bare", "plain"
AUDITED, EVENTS = "audited", "events"
TITLES = {
    DESK: "Switchboard: message, receipt, order, once",
    BARE: "redis-py, each message a synced file on both sides",
    PLAIN: "redis-py, nothing on disk but Redis itself",
}
PEER = Path(__file__).resolve().parent / "bus_peer.py"


@contextmanager
def redis_server(folder: Path, sync: str = "everysec") -> Iterator[str]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise BenchError("redis-server is missing (Debian: apt-get install redis-server)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", sync]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def peer(how: str, folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(PEER), how, str(folder), url], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def measure_desk(folder: Path, url: str, count: int) -> tuple[float, list[float]]:
    """Return messages per second, and the latency in ms of messages sent one at a time."""
    from switchboard_mcp.bus.redis_client import BusClient
    from switchboard_mcp.bus.relay import BusRelay
    from switchboard_mcp.config.sections import BusSettings
    from switchboard_mcp.mail.messages import Draft
    from switchboard_mcp.mail.store.store import MessageStore
    from switchboard_mcp.observability.log import Log

    near, far = folder / "near", folder / "far"
    near.mkdir(parents=True)
    far.mkdir()
    draft = Draft(action="delegate_task", payload=PAYLOAD)

    async def arrived(wanted: int, pause_s: float = 0.002) -> None:
        inbox = far / ".switchboard" / "inbox" / "bob"
        while True:
            if len(os.listdir(inbox)) >= wanted:
                return
            await asyncio.sleep(pause_s)

    async def work(post: MessageStore) -> tuple[float, list[float]]:
        while True:
            if "bob" in await post.agents():
                break
            await asyncio.sleep(0.05)
        latencies_ms = []
        for number in range(ALONE):
            begin = time.perf_counter()
            await post.send(draft, sender="ada", recipient="bob")
            await arrived(number + 1)
            latencies_ms.append((time.perf_counter() - begin) * 1000)
        begin = time.perf_counter()

        async def send(mine: int) -> None:
            for _ in range(mine):
                await post.send(draft, sender="ada", recipient="bob")

        await asyncio.gather(*(send(count // SENDERS) for _ in range(SENDERS)))
        total = count // SENDERS * SENDERS
        # Listing a large folder takes as long as sending a few messages.
        await arrived(ALONE + total, pause_s=0.05)
        return total / (time.perf_counter() - begin), latencies_ms

    async def main() -> tuple[float, list[float]]:
        async with await MessageStore.open(str(near)) as post:
            await post.register("ada")
            async with asyncio.TaskGroup() as tasks:
                relay = tasks.create_task(
                    BusRelay(post, BusClient(BusSettings(url=url)), Log(level="error")).run()
                )
                try:
                    return await work(post)
                finally:
                    relay.cancel()

    with peer("relay", far, url):
        return asyncio.run(main())


def measure_bare(folder: Path, url: str, count: int, *, durable: bool) -> tuple[float, list[float]]:
    from redis import Redis

    (folder / "near").mkdir(parents=True)
    (folder / "far").mkdir()
    outbox = os.open(folder / "near", os.O_RDONLY)

    def producer(number: int) -> Callable[[int], None]:
        client: Any = Redis.from_url(url)

        def send(each: int) -> None:
            if durable:
                store(outbox, f"msg_{number}_{each}.json")
            client.xadd(STREAM, {"message": PAYLOAD})

        return send

    def work(number: int, mine: int) -> None:
        send = producer(number)
        for each in range(mine):
            send(each)

    with peer("bare" if durable else "plain", folder / "far", url) as process:
        assert process.stdout is not None
        process.stdout.readline()

        def arrived(wanted: int) -> None:
            assert process.stdout is not None
            while int(process.stdout.readline()) < wanted:
                pass

        latencies_ms = []
        alone = producer(SENDERS)
        for number in range(ALONE):
            begin = time.perf_counter()
            alone(number)
            arrived(number + 1)
            latencies_ms.append((time.perf_counter() - begin) * 1000)
        threads = [threading.Thread(target=work, args=[n, count // SENDERS]) for n in range(SENDERS)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = count // SENDERS * SENDERS
        arrived(ALONE + total)
        rate = total / (time.perf_counter() - begin)
    os.close(outbox)
    return rate, latencies_ms


def run(options: Options) -> Report:
    count = options.pick(6_400, 1_280)
    samples = Samples()
    with disk("bus") as folder:
        for turn in range(options.pick(3, 1)):
            for key in TITLES:
                place = folder / f"{key}-{turn}"
                with redis_server(folder / f"redis-{key}-{turn}") as url:
                    if key == DESK:
                        rate, latencies_ms = measure_desk(place, url, count)
                    else:
                        rate, latencies_ms = measure_bare(place, url, count, durable=key == BARE)
                note(samples, key, rate, latencies_ms)
        scale_tables, scale_goals, scale_figures = measure_scale(folder, options)
        calls_table, calls_goal, calls_figures = measure_calls(folder, options)
    figures = samples.medians()
    ratio = figures[DESK]["per_s"] / figures[BARE]["per_s"]
    goals = [
        Goal("messages a second, of redis-py's at the same durability", ratio, "at least", 0.5),
        Goal("messages a second between two machines", figures[DESK]["per_s"], "at least", 1_200, "/s"),
        *scale_goals,
        calls_goal,
    ]
    title = f"From machine to machine over Redis Streams, {SENDERS} senders, medians"
    found = report(title, "p50 ms, one at a time", TITLES, figures, goals)
    tables = [*found.tables, *scale_tables, calls_table]
    return Report(tables, found.goals, {**found.figures, **scale_figures, **calls_figures}, found.notes)


def measure_scale(folder: Path, options: Options) -> tuple[list[Table], list[Goal], Figures]:
    """Measure a backlog, and an idle relay among many machines."""
    count = options.pick(100_000, 8_000)
    with redis_server(folder / "redis-backlog") as url:
        drained = asyncio.run(bus_scale.drain_backlog(folder / "backlog", url, count))
    backlog = Table(
        "A backlog, from the relay's start until the receiver has all of it on disk",
        ["messages waiting", "messages/s"],
        [[cell(count, 0), cell(drained, 0)]],
    )
    found = {}
    for nodes in (2, 500) if options.quick else (2, 10, 100, 1_000):
        with redis_server(folder / f"redis-{nodes}") as url:
            seconds = options.pick(60, 8)
            found[nodes] = bus_scale.measure_idle(folder / f"nodes-{nodes}", url, nodes, seconds)
    columns = {
        "relay: CPU ms/s": ("relay_ms", 1),
        "Redis: CPU ms/s": ("redis_ms", 1),
        "commands/s": ("commands", 1),
        "KiB/s read": ("kib", 1),
        "keys in Redis, KiB": ("memory_kib", 0),
    }
    idle = Table(
        "One idle relay among other machines, each with one agent; the others are simulated",
        ["machines", *columns],
        [
            [cell(nodes, 0), *(cell(figures[name], digits) for name, digits in columns.values())]
            for nodes, figures in found.items()
        ],
    )
    most = max(found)
    growth = found[most]["relay_ms"] / found[2]["relay_ms"]
    goals = [
        Goal("messages a second of a backlog", drained, "at least", 1_500, "/s"),
        Goal(f"an idle relay among {most:,} machines, of one among 2", growth, "at most", 2),
    ]
    figures = {"backlog": {"per_s": drained}, **{f"nodes-{nodes}": each for nodes, each in found.items()}}
    return [backlog, idle], goals, figures


def measure_calls(folder: Path, options: Options) -> tuple[Table, Goal, Figures]:
    """Measure calls per second and their latency, with every call published as an event."""
    samples = Samples()
    with redis_server(folder / "redis-events") as url:
        plain = configured(folder / "calls-plain", {})
        audited = configured(folder / "calls-audit", {"audit": {"enabled": True}})
        events = configured(folder / "calls-events", {"bus": {"url": url}})
        everybody = [
            switchboard(OPEN, "open", plain, uvloop=False),
            switchboard(AUDITED, "open, audit log", audited, uvloop=False),
            switchboard(EVENTS, "open, events over Redis", events, uvloop=False),
        ]
        for _ in range(options.pick(3, 1)):
            one_round(everybody, options.pick(15, 5), samples)
    figures = samples.medians()
    columns = {
        "one core: p50 ms": ("pinned_p50_ms", 3),
        "CPU µs": ("pinned_cpu_us", 0),
        f"at {calls.WIDTH}: calls/s": ("calls_s", 0),
        "of open": ("calls_of_open", 2),
        "RSS MiB": ("rss_mib", 1),
    }
    rows = [
        [one.title, *(cell(figures[one.key].get(name), digits) for name, digits in columns.values())]
        for one in everybody
    ]
    table = Table("Calls while their events are published, medians", ["", *columns], rows)
    goal = Goal("calls/s with events, of open mode", figures[EVENTS].get("calls_of_open"), "at least", 0.75)
    return table, goal, {f"calls-{key}": found for key, found in figures.items()}
