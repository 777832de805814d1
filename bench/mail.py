"""Scenario: durable messages, the way hosts reach them and inside one process, with 1, 8 and 32 clients.

Each client waits for its answer before it does the next thing: it sends a message to another agent and gets a receipt,
claims one message at a time, and settles it. Hosts are stdio servers with a process each, as MCP hosts start them.
Beside them, on the same disk and in the same run: a SQLite table with a write-ahead log that is synced at every commit,
and a Redis stream with `appendfsync always`, both with a connection per client. How often this disk can sync in a
second is printed too, since it bounds all of them.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench import durable, processes
from bench.broker_kills import SWITCHBOARD
from bench.client import BenchError
from bench.durable import PAYLOAD
from bench.report import Figures, Goal, Options, Report, Samples, Table, cell
from switchboard_mcp.mail.messages import Claimed, Draft
from switchboard_mcp.mail.store.store import MessageStore

CLIENTS = (1, 8, 32)
ACTS = ("send", "claim", "settle")
HOSTS, BROKER, INSIDE, SQLITE, REDIS = "hosts", "broker", "inside", "sqlite", "redis"
TITLES = {
    HOSTS: "Switchboard, through stdio hosts",
    BROKER: "Switchboard, stdio hosts with broker",
    INSIDE: "Switchboard, inside one process",
    SQLITE: "SQLite, WAL, synchronous=FULL",
    REDIS: "Redis stream, appendfsync always",
}
# Their processor time is not known: that of a host's process is not all of it.
NO_CPU = (BROKER, REDIS)
# The rate of each act, the milliseconds of each, and the processor time of one in microseconds.
Measured = tuple[float, list[float], float]
Measurements = dict[str, Measured]
# Each host does this much before the clock runs, with a share of the processors: it loads what it needs with its first
# calls, and an interpreter needs some hundred to be quick.
WARM_S = 0.5
WARM_PER_HOST_S = 0.1


def fsyncs_per_s(folder: Path) -> float:
    """Return how many times per second one program can append to a file and sync it."""
    descriptor = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < 1.0:
        os.write(descriptor, PAYLOAD.encode())
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count / passed


# --- hosts -----------------------------------------------------------------------------------------------------------


class Host:
    """One stdio server, and its open request."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [SWITCHBOARD],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "XDG_STATE_HOME": f"{folder}/state"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to, self.back = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.begun = 0.0
        self.buffer = b""
        self.held: list[str] = []
        self._id = 0

    def ask(self, method: str, params: object) -> None:
        self._id += 1
        self.begun = time.perf_counter()
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        os.write(self.to, msgspec.json.encode(message) + b"\n")

    def call(self, tool: str, **args: object) -> None:
        arguments = {"action": "call", "subtool": tool, "args": args}
        self.ask("tools/call", {"name": "mail_suite", "arguments": arguments})

    def answer(self) -> bytes | None:
        """Return the next answer, or None if it is not complete yet."""
        data = os.read(self.back, 1 << 20)
        if not data:
            raise BenchError(f"{self.name} has ended")
        self.buffer += data
        while (end := self.buffer.find(b"\n")) >= 0:
            line, self.buffer = self.buffer[:end], self.buffer[end + 1 :]
            if b'"id":' in line[:60] or b'"result"' in line:
                return line
        return None

    def wait(self) -> bytes:
        while (line := self.answer()) is None:
            pass
        return line

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def payload_of(line: bytes) -> dict[str, Any]:
    result = msgspec.json.decode(line)["result"]
    if result.get("isError"):
        raise BenchError(str(result)[:500])
    found: dict[str, Any] = result.get("structuredContent") or msgspec.json.decode(
        result["content"][0]["text"]
    )
    return found


def drive(
    hosts: list[Host], seconds: float, act: Callable[[Host], bool], check: Callable[[Host, bytes], bool]
) -> Measured:
    """Let each host repeat an operation for this many seconds."""
    latencies_ms: list[float] = []
    cpu = sum(map(cpu_ns, hosts))
    with selectors.DefaultSelector() as ready:
        begin = time.perf_counter()
        until = begin + seconds
        for host in hosts:
            if act(host):
                ready.register(host.back, selectors.EVENT_READ, host)
        while ready.get_map():
            for key, _ in ready.select():
                host = key.data
                line = host.answer()
                if line is None:
                    continue
                now = time.perf_counter()
                if check(host, line):
                    latencies_ms.append((now - host.begun) * 1000)
                if now >= until or not act(host):
                    ready.unregister(host.back)
        passed = time.perf_counter() - begin
    cpu = sum(map(cpu_ns, hosts)) - cpu
    return len(latencies_ms) / passed, latencies_ms, cpu / 1000 / max(1, len(latencies_ms))


def cpu_ns(host: Host) -> int:
    process = processes.lookup(host.process.pid)
    return process.cpu_ns() if process is not None else 0


def started(folder: Path, clients: int, broker: bool) -> list[Host]:
    folder.mkdir(exist_ok=True)
    config = {"mail": {"enabled": True}, "broker": {"enabled": broker, "lingerMs": 0}}
    (folder / "switchboard.config.json").write_bytes(msgspec.json.encode(config))
    hosts = [Host(folder, f"agent-{number}") for number in range(clients)]
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    for host in hosts:
        host.ask("initialize", hello)
    for host in hosts:
        host.wait()
        host.call("register_chat_agent", name=host.name)
    for host in hosts:
        payload_of(host.wait())
    return hosts


def measure_hosts(folder: Path, clients: int, seconds: float, *, broker: bool = False) -> Measurements:
    hosts = started(folder, clients, broker)
    turn = {host.name: number for number, host in enumerate(hosts)}

    def send(host: Host) -> bool:
        turn[host.name] += 1
        recipient = hosts[turn[host.name] % clients].name
        host.call("send_message", recipient=recipient, action="delegate_task", payload=PAYLOAD)
        return True

    def sent(host: Host, line: bytes) -> bool:
        if b"delivered" not in line:
            raise BenchError(line[:500].decode())
        return True

    def claim(host: Host) -> bool:
        host.call("claim_messages", max=1, leaseSeconds=3600)
        return True

    def claimed(host: Host, line: bytes) -> bool:
        found = [message["id"] for message in payload_of(line)["messages"]]
        host.held += found
        return bool(found)

    def settle(host: Host) -> bool:
        if host.held:
            host.call("ack_message", id=host.held.pop(), outcome="done")
            return True
        return False

    def settled(host: Host, line: bytes) -> bool:
        payload_of(line)
        return True

    try:
        drive(hosts, WARM_S + clients * WARM_PER_HOST_S, send, sent)
        sending = drive(hosts, seconds, send, sent)
        drive(hosts, WARM_S / 4, claim, claimed)
        claiming = drive(hosts, seconds / 2, claim, claimed)
        drive(hosts, WARM_S / 8, settle, settled)
        return {"send": sending, "claim": claiming, "settle": drive(hosts, seconds, settle, settled)}
    finally:
        for host in hosts:
            host.stop()


# --- inside one process ----------------------------------------------------------------------------------------------


def measure_inside(folder: Path, clients: int, seconds: float) -> Measurements:
    folder.mkdir()
    held: list[list[Claimed]] = [[] for _ in range(clients)]
    names = [f"agent-{number}" for number in range(clients)]
    draft = Draft(action="delegate_task", payload=PAYLOAD)

    async def timed(act: Callable[[int], Any], limit: float) -> Measured:
        latencies_ms: list[float] = []
        start, cpu = time.perf_counter(), time.process_time()

        async def one(number: int) -> None:
            while (begin := time.perf_counter()) < start + limit and await act(number):
                latencies_ms.append((time.perf_counter() - begin) * 1000)

        await asyncio.gather(*map(one, range(clients)))
        cpu = time.process_time() - cpu
        return (
            len(latencies_ms) / (time.perf_counter() - start),
            latencies_ms,
            cpu * 1e6 / max(1, len(latencies_ms)),
        )

    async def work() -> Measurements:
        async with await MessageStore.open(str(folder), watch=False) as store:
            for name in names:
                await store.register(name)
            turns = list(range(clients))

            async def send(number: int) -> bool:
                turns[number] += 1
                recipient = names[turns[number] % clients]
                await store.send(draft, sender=names[number], recipient=recipient)
                return True

            async def claim(number: int) -> bool:
                held[number] += (found := await store.claim(names[number], lease_s=3600))
                return bool(found)

            async def settle(number: int) -> bool:
                if not held[number]:
                    return False
                one = held[number].pop()
                await store.ack(names[number], one.message.id, fence=one.fence)
                return True

            results = {
                "send": await timed(send, seconds),
                "claim": await timed(claim, seconds / 2),
                "settle": await timed(settle, seconds),
            }
            verdict = await store.verify()
            if not verdict.is_sound:
                raise BenchError(str(verdict.problems[:3]))
            return results

    return asyncio.run(work())


# --- the others ------------------------------------------------------------------------------------------------------


def in_threads(clients: int, seconds: float, act: Callable[[int], bool]) -> Measured:
    latencies_ms: list[float] = []
    start, cpu = time.perf_counter(), time.process_time()

    def work(number: int) -> None:
        while (begin := time.perf_counter()) < start + seconds and act(number):
            latencies_ms.append((time.perf_counter() - begin) * 1000)

    threads = [threading.Thread(target=work, args=[number]) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu = time.process_time() - cpu
    return (
        len(latencies_ms) / (time.perf_counter() - start),
        latencies_ms,
        cpu * 1e6 / max(1, len(latencies_ms)),
    )


def measure_sqlite(folder: Path, clients: int, seconds: float) -> Measurements:
    folder.mkdir(exist_ok=True)
    path = folder / "mail.db"
    with sqlite3.connect(path) as first:
        first.execute("PRAGMA journal_mode=WAL")
        first.execute(
            "CREATE TABLE mail (id INTEGER PRIMARY KEY, owner INTEGER, state INTEGER, payload TEXT)"
        )
        first.execute("CREATE INDEX waiting ON mail (owner, state, id)")
    connections = [
        sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        for _ in range(clients)
    ]
    for connection in connections:
        connection.execute("PRAGMA synchronous=FULL")
    held: list[list[int]] = [[] for _ in range(clients)]
    turns = list(range(clients))

    def send(number: int) -> bool:
        turns[number] += 1
        row = (turns[number] % clients, PAYLOAD)
        connections[number].execute("INSERT INTO mail (owner, state, payload) VALUES (?, 0, ?)", row)
        return True

    def claim(number: int) -> bool:
        query = (
            "UPDATE mail SET state = 1 WHERE id = (SELECT id FROM mail WHERE owner = ? AND state = 0 "
            "ORDER BY id LIMIT 1) RETURNING id"
        )
        held[number] += (found := [id for (id,) in connections[number].execute(query, (number,)).fetchall()])
        return bool(found)

    def settle(number: int) -> bool:
        if not held[number]:
            return False
        connections[number].execute("UPDATE mail SET state = 2 WHERE id = ?", (held[number].pop(),))
        return True

    results = {
        "send": in_threads(clients, seconds, send),
        "claim": in_threads(clients, seconds / 2, claim),
        "settle": in_threads(clients, seconds, settle),
    }
    for connection in connections:
        connection.close()
    return results


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


def measure_redis(folder: Path, clients: int, seconds: float) -> Measurements:
    with redis_server(folder, sync="always") as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
        held: list[list[bytes]] = [[] for _ in range(clients)]
        turns = list(range(clients))

        def do(number: int, *words: bytes) -> bytes:
            line = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
            sockets[number].sendall(line)
            data = sockets[number].recv(65536)
            while not data.endswith(b"\r\n"):
                data += sockets[number].recv(65536)
            if data.startswith(b"-"):
                raise BenchError(data.decode())
            return data

        for number in range(clients):
            do(number, b"XGROUP", b"CREATE", b"mail%d" % number, b"g", b"0", b"MKSTREAM")

        def send(number: int) -> bool:
            turns[number] += 1
            do(number, b"XADD", b"mail%d" % (turns[number] % clients), b"*", b"p", PAYLOAD.encode())
            return True

        def claim(number: int) -> bool:
            words = (
                b"XREADGROUP",
                b"GROUP",
                b"g",
                b"c",
                b"COUNT",
                b"1",
                b"STREAMS",
                b"mail%d" % number,
                b">",
            )
            parts = do(number, *words).split(b"\r\n")
            if len(parts) < 8:
                return False
            held[number].append(next(part for part in parts if b"-" in part and part[:1].isdigit()))
            return True

        def settle(number: int) -> bool:
            if not held[number]:
                return False
            do(number, b"XACK", b"mail%d" % number, b"g", held[number].pop())
            return True

        results = {
            "send": in_threads(clients, seconds, send),
            "claim": in_threads(clients, seconds / 2, claim),
            "settle": in_threads(clients, seconds, settle),
        }
        for each in sockets:
            each.close()
    return results


MEASURES: dict[str, Callable[[Path, int, float], Measurements]] = {
    HOSTS: measure_hosts,
    BROKER: partial(measure_hosts, broker=True),
    INSIDE: measure_inside,
    SQLITE: measure_sqlite,
    REDIS: measure_redis,
}


def run(options: Options) -> Report:
    seconds = options.pick(3, 1)
    samples = Samples()
    with durable.disk("mail") as folder:
        syncs = fsyncs_per_s(folder)
        for turn in range(options.pick(3, 1)):
            for clients in CLIENTS:
                for key, measure in MEASURES.items():
                    if not options.wants(key):
                        continue
                    found = measure(folder / f"{key}-{clients}-{turn}", clients, seconds)
                    for act, (rate, latencies_ms, cpu_us) in found.items():
                        durable.note(samples, f"{key} {clients} {act}", rate, latencies_ms or [0.0])
                        samples.add(f"{key} {clients} {act}", "cpu_us", cpu_us)
    figures = samples.medians()
    tables = [_table(act, figures) for act in ACTS]
    notes = [
        f"{syncs:,.0f} syncs/s of an appended file by one program",
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    ]
    return Report(tables, _goals(figures), figures, notes)


def _table(act: str, figures: Figures) -> Table:
    heads = [""]
    for clients in CLIENTS:
        heads += [f"{clients}: /s", "p50 ms", "p99 ms", "CPU µs"]
    rows = []
    for key, title in TITLES.items():
        row = [title]
        for clients in CLIENTS:
            found = figures.get(f"{key} {clients} {act}", {})
            row += [cell(found.get("per_s"), 0), cell(found.get("p50_ms"), 1), cell(found.get("p99_ms"), 1)]
            row.append("" if key in NO_CPU else cell(found.get("cpu_us"), 0))
        rows.append(row)
    return Table(f"{act.capitalize()}, clients that wait for each answer, medians", heads, rows)


def _goals(figures: Figures) -> list[Goal]:
    def rate(key: str, clients: int, act: str) -> float | None:
        return figures.get(f"{key} {clients} {act}", {}).get("per_s")

    goals = [
        Goal("sends a second through 32 hosts", rate(HOSTS, 32, "send"), "at least", 1_500, "/s"),
        Goal("the same with a broker", rate(BROKER, 32, "send"), "at least", 1_500, "/s"),
        Goal("sends a second inside, 32 clients", rate(INSIDE, 32, "send"), "at least", 3_000, "/s"),
        Goal("claims a second inside, 1 client", rate(INSIDE, 1, "claim"), "at least", 3_000, "/s"),
        Goal("claims a second inside, 32 clients", rate(INSIDE, 32, "claim"), "at least", 3_000, "/s"),
        Goal("settled a second inside, 32 clients", rate(INSIDE, 32, "settle"), "at least", 3_000, "/s"),
    ]
    for act in ACTS:
        p99 = figures.get(f"{INSIDE} 32 {act}", {}).get("p99_ms")
        goals.append(Goal(f"p99 of a {act} inside, 32 clients", p99, "at most", 50, "ms"))
    for act in ACTS:
        mine, theirs = rate(INSIDE, 32, act), rate(SQLITE, 32, act)
        ratio = mine / theirs if mine and theirs else None
        goals.append(Goal(f"{act} inside, of SQLite's, 32 clients", ratio, "at least", 1))
    return goals
