"""Scenario: from starting the process to the first answers.

Owns the rounds of starts. One round starts everybody once, in turn, so that noise meets all alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.client import Client
from bench.contestants import Contestant, environment, has_switchboard, line_up, make_workspace, switchboard
from bench.report import Goal, Options, Report, Samples, Table, cell, ratio

IMPORT = "import"
FEW, MANY = 3, 200


def time_import() -> float:
    """Return the milliseconds of a Python process that imports what any asyncio relay needs."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio, msgspec"], check=True, env=environment())
    return (time.perf_counter() - begin) * 1000


def measure(contestant: Contestant, samples: Samples) -> None:
    client = Client(contestant)
    try:
        samples.add(contestant.key, "start_ms", client.handshake() / 1e6)
        samples.add(contestant.key, "first_call_ms", client.sequential(1, 60)[0] / 1e6)
    finally:
        client.stop()


def run(options: Options) -> Report:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        present, missing = line_up(make_workspace(folder / "one", 1), options)
        extra: list[Contestant] = []
        if has_switchboard() and options.wants("switchboard"):
            for count in (FEW, MANY):
                workspace = make_workspace(folder / str(count), count)
                title = f"Switchboard, {count} children"
                extra.append(switchboard(f"children-{count}", title, workspace, uvloop=False))
        samples = Samples()
        for number in range(options.pick(11, 3) + 1):
            # The first round warms file cache, bytecode and whatever a contestant remembers; it does not count.
            target = samples if number else Samples()
            target.add(IMPORT, "start_ms", time_import())
            for contestant in [*present, *extra]:
                measure(contestant, target)
    return report(samples, [*present, *extra], missing)


def report(samples: Samples, present: list[Contestant], missing: list[str]) -> Report:
    figures = samples.medians()
    rows = [["python -c 'import asyncio, msgspec'", cell(figures[IMPORT]["start_ms"], 0), "–"]]
    for contestant in present:
        mine = figures[contestant.key]
        rows.append([contestant.title, cell(mine["start_ms"], 0), cell(mine["first_call_ms"], 2)])
    table = Table("Start, medians in ms", ["", "to tools/list", "first call"], rows)
    start = "start_ms"
    few, many = f"children-{FEW}", f"children-{MANY}"
    goals = [
        Goal(
            "start, of the bare import", ratio(figures, ("switchboard", start), (IMPORT, start)), "at most", 2
        ),
        Goal(
            "start, FastMCP's of ours",
            ratio(figures, ("fastmcp", start), ("switchboard", start)),
            "at least",
            8,
        ),
        Goal(
            f"start with {MANY} children, of {FEW}",
            ratio(figures, (many, start), (few, start)),
            "at most",
            1.5,
        ),
    ]
    notes = [f"missing here: {title}" for title in missing]
    notes.append(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return Report([table], goals, figures, notes)
