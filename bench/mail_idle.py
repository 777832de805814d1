"""Scenario: the cost of idle processes, by the number of agents of the workspace.

A stdio session of its own, which sweeps the mail; one more, which does not; and a broker with several sessions. Each
has registered as an agent and does nothing after that. Processor time is summed for a while and given per minute.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench import durable, processes
from bench.mail import started
from bench.report import Figures, Goal, Options, Report, Table, cell

AGENTS = (10, 200, 2_000)
SESSIONS = 20
# What a process does after its start is not counted.
SETTLE_S = 4.0


def make_agents(folder: Path, count: int) -> None:
    """Write the folders of this many agents, as registering makes them."""
    for number in range(count):
        for place in ("inbox", "outbox"):
            (folder / ".switchboard" / place / f"idle-{number}").mkdir(0o700, parents=True)


def cpu_ms(pids: list[int]) -> list[float]:
    found = [processes.lookup(pid) for pid in pids]
    return [process.cpu_ns() / 1e6 if process is not None else 0.0 for process in found]


def idle(pids: list[int], seconds: float) -> list[float]:
    """Processor milliseconds a minute of each process."""
    time.sleep(SETTLE_S)
    before, begin = cpu_ms(pids), time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - begin
    return [(after - start) * 60 / passed for start, after in zip(before, cpu_ms(pids), strict=True)]


def serving(folder: Path) -> list[int]:
    """Return the processes of all sessions in this folder, and of the broker, which is not their child."""
    mark = f"XDG_STATE_HOME={folder}/state"
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and mark in _environment(name)]


def _environment(pid: str) -> list[str]:
    try:
        return processes.read(f"/proc/{pid}/environ").split("\0")
    except OSError:  # another user's
        return []


def measure(folder: Path, agents: int, seconds: float) -> dict[str, float]:
    alone = folder / f"alone-{agents}"
    make_agents(alone, agents)
    hosts = started(alone, 2, broker=False)
    try:
        sweeping, other = idle([host.process.pid for host in hosts], seconds)
    finally:
        for host in hosts:
            host.stop()
    shared = folder / f"shared-{agents}"
    make_agents(shared, agents)
    hosts = started(shared, SESSIONS, broker=True)
    try:
        both = idle(serving(shared), seconds)
    finally:
        for host in hosts:
            host.stop()
    return {
        "stdio session that sweeps": max(sweeping, other),
        "stdio session beside it": min(sweeping, other),
        f"broker and its {SESSIONS} sessions": sum(both),
    }


def run(options: Options) -> Report:
    seconds = float(options.pick(60, 10))
    figures: Figures = {}
    with durable.disk("idle") as folder:
        for count in AGENTS:
            figures[f"{count} agents"] = measure(folder, count, seconds)
    first, last = (figures[f"{count} agents"] for count in (AGENTS[0], AGENTS[-1]))
    rows = [
        [name, *(cell(each[name], 1) for each in figures.values()), f"{last[name] / first[name]:.1f} ×"]
        for name in first
    ]
    heads = ["processor ms a minute", *(f"{count:,} agents" for count in AGENTS), "growth"]
    worst = max(last[name] / first[name] for name in first)
    goal = Goal(f"idle processor time, {AGENTS[0]} to {AGENTS[-1]:,} agents", worst, "at most", 2)
    notes = [f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"]
    return Report([Table("Idle processes, by agents of the workspace", heads, rows)], [goal], figures, notes)
