"""Scenario: the cost of a call once everything runs: added latency, calls per second, CPU and memory.

Owns the rounds. In one round all contestants stay up together and take turns in short blocks, so that noise
meets all alike. Sequential calls are measured twice. Free: as the scheduler places the processes, which is what
a user gets; much of it is the waking of idle cores, and whether a contestant pays for that is luck. On one core:
client, contestant and child together, so that the time is work and nothing else, and a run repeats.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.client import Client
from bench.contestants import CHILD, Contestant, line_up, make_workspace
from bench.processes import Footprint, footprint, pin
from bench.report import Figures, Goal, Options, Report, Samples, Table, cell, percentile, ratio

WIDTH = 50
MIB = 1 << 20
WARM_UP = 100
# A block ends after this many calls or seconds: slow contestants do fewer calls, not longer blocks.
SEQUENTIAL, SEQUENTIAL_S = 300, 0.4
IN_FLIGHT, IN_FLIGHT_S = 20_000, 0.5
FREE, PINNED = "free", "pinned"


class Runner:
    """One contestant during one round."""

    def __init__(self, contestant: Contestant, client: Client) -> None:
        self.key = contestant.key
        self.client = client
        client.handshake()
        client.sequential(WARM_UP, 1)
        client.in_flight(WARM_UP * 5, WIDTH, 1)
        self.own: Footprint | None = footprint(client.process.pid, CHILD)

    def cpu_us(self) -> float:
        return self.own.cpu_ns() / 1000 if self.own else 0.0

    def sequential(self, samples: Samples, how: str) -> None:
        cores = os.sched_getaffinity(0)
        if how == PINNED:
            self.place({max(cores)})
        self.client.sequential(20, 0.1)
        before = self.cpu_us()
        times = [elapsed / 1e6 for elapsed in self.client.sequential(SEQUENTIAL, SEQUENTIAL_S)]
        if self.own:
            samples.add(self.key, f"{how}_cpu_us", (self.cpu_us() - before) / len(times))
        samples.add(self.key, f"{how}_p50_ms", statistics.median(times))
        samples.add(self.key, f"{how}_p95_ms", percentile(times, 95))
        if how == PINNED:
            self.place(cores)

    def place(self, cores: set[int]) -> None:
        os.sched_setaffinity(0, cores)
        pin(self.client.process.pid, cores)

    def in_flight(self, samples: Samples) -> None:
        before = self.cpu_us()
        samples.add(self.key, "calls_s", self.client.in_flight(IN_FLIGHT, WIDTH, IN_FLIGHT_S))
        if self.own:
            samples.add(self.key, "flight_cpu_us", (self.cpu_us() - before) / self.client.done)

    def memory(self, samples: Samples) -> None:
        if self.own:
            samples.add(self.key, "rss_mib", self.own.server.rss() / MIB)
            samples.add(self.key, "helpers_mib", sum(process.rss() for process in self.own.helpers) / MIB)
            samples.add(self.key, "helpers", len(self.own.helpers))


@contextmanager
def quiet() -> Iterator[None]:
    """Disable our own garbage collection during a block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def one_round(present: list[Contestant], blocks: int, samples: Samples) -> None:
    with ExitStack() as stack:
        runners = []
        for contestant in present:
            client = Client(contestant)
            stack.callback(client.stop)
            runners.append(Runner(contestant, client))
        for _ in range(blocks):
            sequential(runners, samples, FREE)
            for runner in runners:
                with quiet():
                    runner.in_flight(samples)
        # Last, since processes tend to stay where they have been pinned.
        for _ in range(blocks):
            sequential(runners, samples, PINNED)
        for runner in runners:
            runner.memory(samples)


def sequential(runners: list[Runner], samples: Samples, how: str) -> None:
    """Measure a block of each contestant, and its difference from the adjacent direct block."""
    for runner in runners:
        with quiet():
            runner.sequential(samples, how)
    last = {key: named[f"{how}_p50_ms"][-1] for key, named in samples.values.items()}
    for key, elapsed in last.items():
        if key != "direct":
            samples.add(key, f"{how}_added_ms", elapsed - last["direct"])


def run(options: Options) -> Report:
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        present, missing = line_up(make_workspace(Path(folder) / "one", 1), options)
        for _ in range(options.pick(3, 1)):
            one_round(present, options.pick(7, 3), samples)
    figures = samples.medians()
    return Report(
        [table(figures, present)], goals(figures), figures, [f"missing here: {title}" for title in missing]
    )


def table(figures: Figures, present: list[Contestant]) -> Table:
    columns = {
        "p50 ms": ("free_p50_ms", 3),
        "p95 ms": ("free_p95_ms", 3),
        "added p50": ("free_added_ms", 3),
        "one core: p50": ("pinned_p50_ms", 3),
        "p95": ("pinned_p95_ms", 3),
        "added": ("pinned_added_ms", 3),
        "CPU µs": ("pinned_cpu_us", 0),
        f"at {WIDTH}: calls/s": ("calls_s", 0),
        "CPU µs ": ("flight_cpu_us", 1),
        "RSS MiB": ("rss_mib", 1),
    }
    rows = []
    for contestant in present:
        mine = figures[contestant.key]
        cells = [cell(mine.get(name), digits) for name, digits in columns.values()]
        helpers = mine.get("helpers", 0)
        beside = f"{helpers:.0f} × {mine['helpers_mib'] / helpers:.1f}" if helpers else "–"
        rows.append([contestant.title, *cells, beside])
    title = f"Calls, medians of blocks: one at a time, the same on one core, {WIDTH} in flight; CPU without the child's"
    return Table(title, ["", *columns, "helpers MiB"], rows)


def goals(figures: Figures) -> list[Goal]:
    rss = figures.get("switchboard", {}).get("rss_mib")
    found = against_relay(figures, "switchboard", "relay", "")
    fast = ratio(figures, ("switchboard", "calls_s"), ("fastmcp", "calls_s"))
    found.append(Goal("calls/s, of FastMCP's proxy", fast, "at least", 30))
    found.append(Goal("RSS of the serving process", rss, "at most", 35, "MiB"))
    if "switchboard-uvloop" in figures:
        found += against_relay(figures, "switchboard-uvloop", "relay-uvloop", ", both uvloop")
    return found


def against_relay(figures: Figures, ours: str, relay: str, suffix: str) -> list[Goal]:
    added = [
        Goal(
            f"added p50 ({words}), of the bare relay{suffix}",
            ratio(figures, (ours, f"{how}_added_ms"), (relay, f"{how}_added_ms")),
            "at most",
            1.5,
        )
        for how, words in ((FREE, "free"), (PINNED, "one core"))
    ]
    rate = ratio(figures, (ours, "calls_s"), (relay, "calls_s"))
    return [*added, Goal(f"calls/s, of the bare relay{suffix}", rate, "at least", 0.5)]
