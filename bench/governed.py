"""Scenario: the cost of governed mode (policy, audit, limits, approvals and lock) compared with open mode.

Owns the governed workspace and the rounds. Both run the same child and take turns in short blocks, so that noise meets
both alike; calls a second are compared block by block, each with the one beside it. In between stands an open one with
the audit record and the limits alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec

from bench import calls, start
from bench.client import BenchError, Client
from bench.contestants import CHILD, Contestant, environment, installed, make_workspace, switchboard
from bench.report import Figures, Goal, Options, Report, Samples, Table, cell, ratio

OPEN, LIMITED, GOVERNED = "switchboard", "limited", "governed"
ENABLED = {"SWITCHBOARD_MCP_ENABLED": "true"}
# So high that nothing is refused; the sums are done all the same.
LIMITS = {"callsPerMinute": 1_000_000_000, "concurrent": 10_000, "resultBytes": 10_000_000}
SUITE = {"expose": {"allow": ["echo"]}, "limits": LIMITS}


def configured(folder: Path, config: object) -> Path:
    workspace = make_workspace(folder, 1)
    (workspace / "switchboard.config.json").write_bytes(msgspec.json.encode(config))
    return workspace


def approved(workspace: Path) -> Path:
    """Return the workspace with its child approved and locked."""
    for command in (["approve", "echo", "--yes"], ["lock"]):
        ran = subprocess.run(
            [sys.executable, "-m", "switchboard_mcp", *command],
            cwd=workspace,
            env={**environment(), **ENABLED},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise BenchError(f"switchboard {' '.join(command)}: {ran.stderr}{ran.stdout}")
    return workspace


def line_up(folder: Path, *, uvloop: bool) -> list[Contestant]:
    tail, key = (", uvloop", "-uvloop") if uvloop else ("", "")
    plain = make_workspace(folder / "open", 1)
    limited = configured(folder / "limited", {"suites": {"echo": SUITE}, "audit": {"enabled": True}})
    settings = {"suites": {"echo": SUITE}, "governance": {"mode": "governed"}}
    governed = approved(configured(folder / "governed", settings))
    made = switchboard(GOVERNED + key, f"governed{tail}", governed, uvloop=uvloop)
    return [
        switchboard(OPEN + key, f"open{tail}", plain, uvloop=uvloop),
        switchboard(LIMITED + key, f"open, audit and limits{tail}", limited, uvloop=uvloop),
        replace(made, env={**made.env, **ENABLED}),
    ]


def one_round(everybody: list[Contestant], blocks: int, samples: Samples) -> None:
    with ExitStack() as stack:
        runners = []
        for contestant in [Contestant("direct", "direct", CHILD), *everybody]:
            client = Client(contestant)
            stack.callback(client.stop)
            runners.append(calls.Runner(contestant, client))
        for _ in range(blocks):
            for runner in runners[1:]:
                with calls.quiet():
                    runner.in_flight(samples)
            compare(samples)
        for _ in range(max(blocks // 3, 1)):
            calls.sequential(runners, samples, calls.PINNED)
        for runner in runners:
            runner.memory(samples)


def compare(samples: Samples) -> None:
    """Record the last block of each as a ratio of the adjacent open one."""
    last = {key: named["calls_s"][-1] for key, named in samples.values.items() if "calls_s" in named}
    for key, rate in last.items():
        beside = OPEN + "-uvloop" if key.endswith("-uvloop") else OPEN
        samples.add(key, "calls_of_open", rate / last[beside])


def run(options: Options) -> Report:
    samples, starts = Samples(), Samples()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        everybody = line_up(folder / "plain", uvloop=False)
        if installed("uvloop"):
            everybody += line_up(folder / "uvloop", uvloop=True)
        for number in range(options.pick(11, 3) + 1):
            target = starts if number else Samples()  # the first round warms caches and does not count
            target.add(start.IMPORT, "start_ms", start.time_import())
            for contestant in everybody:
                start.measure(contestant, target)
        for _ in range(options.pick(3, 1)):
            one_round(everybody, options.pick(15, 5), samples)
    figures = samples.medians()
    for who, found in starts.medians().items():
        figures.setdefault(who, {}).update(found)
    return Report([table(figures, everybody)], goals(figures), figures)


def table(figures: Figures, everybody: list[Contestant]) -> Table:
    columns = {
        "start ms": ("start_ms", 0),
        "first call ms": ("first_call_ms", 1),
        "one core: p50 ms": ("pinned_p50_ms", 3),
        "CPU µs": ("pinned_cpu_us", 0),
        f"at {calls.WIDTH}: calls/s": ("calls_s", 0),
        "of open": ("calls_of_open", 2),
        "CPU µs ": ("flight_cpu_us", 1),
        "RSS MiB": ("rss_mib", 1),
    }
    rows = [
        [one.title, *(cell(figures[one.key].get(name), digits) for name, digits in columns.values())]
        for one in everybody
    ]
    return Table("Governed mode beside open mode, medians", ["", *columns], rows)


def goals(figures: Figures) -> list[Goal]:
    found = [
        Goal(
            f"governed: calls/s, of open mode{suffix}",
            figures[GOVERNED + key].get("calls_of_open"),
            "at least",
            0.75,
        )
        for key, suffix in (("", ""), ("-uvloop", ", both uvloop"))
        if GOVERNED + key in figures
    ]
    started = ratio(figures, (GOVERNED, "start_ms"), (start.IMPORT, "start_ms"))
    return [*found, Goal("governed: start, of the bare import", started, "at most", 2)]
