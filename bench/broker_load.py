"""Scenario: sessions of one broker: cost of a start and a call, fairness, an upgrade, sessions that join and leave.

`python -m bench.broker_load start|speed|fairness|upgrade|joins [COUNT]` runs one; exit code 1 if a goal is missed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import broker_fairness
from bench.broker import Server
from bench.broker_kills import MARK, REPO, SWITCHBOARD, Counts, LoadedHost, brokers, marked
from bench.client import Client
from bench.contestants import SUITE, Contestant, make_workspace

BLOCKS, SEQUENTIAL, SEQUENTIAL_S, WIDTH = 15, 600, 0.4, 50
MODULE = [sys.executable, "-P", "-m", "switchboard_mcp"]
AT_ONCE = 3


@contextmanager
def workspace(isolation: str = "auto", **env: str) -> Iterator[tuple[Path, dict[str, str], str]]:
    """Yield a workspace with the echo child whose broker ends soon, the environment of its hosts, and their mark."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder = make_workspace(Path(name) / "one", 1)
        settings = {
            "broker": {"enabled": True, "lingerMs": 200},
            "results": {"maxTokens": 0},
            "suites": {"echo": {"isolation": isolation}},
        }
        (folder / "switchboard.config.json").write_text(json.dumps(settings))
        state = {"XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache"}
        yield folder, {**state, MARK: mark, "SWITCHBOARD_BROKER": "on", **env}, mark


def broker_of(mark: str) -> int:
    (pid,) = brokers(mark)
    return pid


def client(folder: Path, env: dict[str, str]) -> Client:
    started = Client(Contestant("one", "one", MODULE, "echo_suite", SUITE, folder, env))
    started.handshake()
    started.sequential(100, 1)
    return started


def cpu_us(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1000


async def _start(count: int) -> dict[str, list[float]]:
    seen: dict[str, list[float]] = {}
    with workspace() as (folder, own, mark):
        env = {**os.environ, **own}
        alone = {**env, "SWITCHBOARD_BROKER": "off"}

        async def started(way: str, env: dict[str, str], sessions: int) -> list[Server]:
            begin = time.perf_counter()
            servers = await asyncio.gather(
                *(Server.start([SWITCHBOARD], folder, env) for _ in range(sessions))
            )
            seen.setdefault(way, []).append((time.perf_counter() - begin) * 1000)
            return servers

        for _ in range(count + 1):  # the first fills the cache
            for way, sessions in (("", 1), (f", {AT_ONCE} at once", AT_ONCE)):
                servers = await started("alone" + way, alone, sessions)
                servers += await started("cold" + way, env, sessions)
                servers += await started("warm" + way, env, sessions)
                await asyncio.gather(*(server.stop() for server in servers))
                while marked(mark):  # noqa: ASYNC110 - processes send no event
                    await asyncio.sleep(0.02)
    return {way: times[1:] for way, times in seen.items()}


def start(count: int) -> bool:
    """Compare the time to `tools/list`: alone, with a broker to be started, and with one that runs."""
    middle = {way: statistics.median(times) for way, times in asyncio.run(_start(count)).items()}
    for way, elapsed in middle.items():
        kind, _, _ = way.partition(",")
        alone = middle[way.replace(kind, "alone")]
        print(f"{way}: {elapsed:.0f} ms to tools/list of the last, {elapsed / alone:.2f} of alone")
    return middle["cold"] <= 1.5 * middle["alone"]


def speed(count: int) -> bool:
    """Compare calls of a session alone with calls by way of the broker, in turn: on all cores, and on one."""
    cores = os.sched_getaffinity(0)
    free = _speed(count, "all cores")
    os.sched_setaffinity(0, {max(cores)})  # so that the time is work
    try:
        pinned = _speed(count, "one core")
    finally:
        os.sched_setaffinity(0, cores)
    return free["p50"] <= 1.1 and min(free["rate"], pinned["rate"]) >= 0.9


def _speed(count: int, where: str) -> dict[str, float]:
    """Measure blocks of calls, print them, and return the figures of the broker as a part of those alone."""
    seen: dict[str, dict[str, list[float]]] = {}
    with workspace() as (folder, env, mark):
        alone = client(folder, {**env, "SWITCHBOARD_BROKER": "off"})
        shared = client(folder, env)
        servers = {"alone": (alone, alone.process.pid), "broker": (shared, broker_of(mark))}
        for _ in range(count):
            for name, (one, pid) in servers.items():
                figures = seen.setdefault(name, {"p50": [], "cpu": [], "rate": [], "cpu50": []})
                before = cpu_us(pid)
                times = [elapsed / 1000 for elapsed in one.sequential(SEQUENTIAL, SEQUENTIAL_S)]
                figures["p50"].append(statistics.median(times))
                figures["cpu"].append((cpu_us(pid) - before) / len(times))
                before = cpu_us(pid)
                figures["rate"].append(one.in_flight(20_000, WIDTH, SEQUENTIAL_S))
                figures["cpu50"].append((cpu_us(pid) - before) / one.done)
        for one, _ in servers.values():
            one.stop()
    ratios = {}
    for key in ("p50", "cpu", "rate", "cpu50"):
        pairs = zip(seen["alone"][key], seen["broker"][key], strict=True)
        ratios[key] = statistics.median(broker / alone for alone, broker in pairs)
    for name, figures in seen.items():
        middle = {key: statistics.median(values) for key, values in figures.items()}
        print(
            f"{where}: {name}: p50 {middle['p50']:.1f} µs, CPU {middle['cpu']:.1f} µs; {WIDTH} in flight: "
            f"{middle['rate']:.0f} calls/s, CPU {middle['cpu50']:.2f} µs"
        )
    print(f"{where}: broker, of alone: " + ", ".join(f"{key} {value:.2f}" for key, value in ratios.items()))
    return ratios


def fairness(count: int) -> bool:
    """Compare calls of one session with and without another that has many calls in flight."""
    return broker_fairness.run(workspace, client, count)


async def _upgrade(sessions: int) -> Counts:
    counts = Counts()
    with workspace() as (folder, own, mark):
        installed = folder.parent / "installed"
        package = installed / "switchboard_mcp"
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPO / "src" / "switchboard_mcp", package, ignore=skipped)
        env = {**os.environ, **own, "PYTHONPATH": str(installed)}
        hosts = [
            LoadedHost(number, folder, env, counts, 1, command=MODULE, suite="echo_suite")
            for number in range(sessions)
        ]
        running = [asyncio.create_task(host.run()) for host in hosts]
        await _until_answers(hosts)
        before = broker_of(mark)
        (package / "__init__.py").write_text('__version__ = "999.0.0"\n')
        late = await Server.start(MODULE, folder, env)
        await _until_answers(hosts)
        if broker_of(mark) == before:
            counts.problems.append("the broker was not replaced")
        for host in hosts:
            host.stopping = True
        await asyncio.gather(*running)
        await late.stop()
        while marked(mark):  # noqa: ASYNC110 - processes send no event
            await asyncio.sleep(0.1)
    return counts


async def _until_answers(hosts: list[LoadedHost]) -> None:
    wanted = [host.answers + 20 for host in hosts]
    while any(host.answers < least for host, least in zip(hosts, wanted, strict=True)):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def upgrade(count: int) -> bool:
    """Replace the broker by a newer version while sessions call."""
    counts = asyncio.run(_upgrade(count))
    print(
        f"{count} sessions, {counts.requests} requests: {counts.results} results, {counts.interrupted} interrupted, "
        f"{counts.child_failures} failures of the child, {counts.unaccounted} lost; slowest {counts.slowest_s:.1f} s"
    )
    for problem in counts.problems[:20]:
        print(problem)
    return not counts.problems and not counts.unaccounted


async def _joins(count: int) -> list[dict[str, int]]:
    samples = []
    with workspace() as (folder, own, mark):
        env = {**os.environ, **own}
        first = await Server.start([SWITCHBOARD], folder, env)
        pid = broker_of(mark)
        for number in range(count + 1):
            if number % (count // 2) == 0:
                samples.append(_footprint(pid))
            one = await Server.start([SWITCHBOARD], folder, env)
            await one.ask("tools/call", {"name": "echo_suite", "arguments": _ECHO})
            await one.stop()
        await first.stop()
    return samples


_ECHO = {"action": "call", "subtool": "echo", "args": {"message": "x"}}


def _footprint(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in status if len(line.split()) > 1}
    return {
        "memory KiB": int(fields["VmRSS"]),
        "threads": int(fields["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def joins(count: int) -> bool:
    """Let sessions join, call and leave. The second half must not add anything."""
    samples = asyncio.run(_joins(count))
    for place, sample in zip((0, count // 2, count), samples, strict=True):
        print(f"after {place}: {sample}")
    middle, last = samples[1], samples[2]
    more = last["memory KiB"] - middle["memory KiB"]
    return (
        last["descriptors"] <= middle["descriptors"] + 2
        and more < 2 * count
        and last["threads"] <= middle["threads"]
    )


SCENARIOS: dict[str, tuple[Callable[[int], bool], int]] = {
    "start": (start, 12),
    "speed": (speed, BLOCKS),
    "fairness": (fairness, 3000),
    "upgrade": (upgrade, 20),
    "joins": (joins, 1000),
}


def main(argv: list[str]) -> int:
    run, count = SCENARIOS[argv[0]]
    return 0 if run(int(argv[1]) if len(argv) > 1 else count) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
