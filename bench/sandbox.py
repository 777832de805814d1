"""Scenario: the cost of a sandbox: starts, lifetimes and calls of a program in each preset and without, interleaved.

A start ends when the program runs; a life ends when its exit is reported, with all that the kernel clears up.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time

from bench.report import Goal, Options, Report, Table, cell
from switchboard_mcp.config.sandbox import OFF, PRESETS, SandboxWords
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.runner import Launch, RunningSandbox, SandboxRunner
from switchboard_mcp.transport.process.launcher import ChildProcess, Launcher
from switchboard_mcp.transport.process.reaper import children_by_parent, descendants_of

PROGRAM, ECHO = "/bin/true", "/bin/cat"
LIMIT_MS = 5.0
LINE = b"x" * 200 + b"\n"
CALLS_IN_BATCH = 200
# Two programs without a sandbox differ by as much on a loaded machine.
CALL_RATIO = 1.25

Times = dict[str, list[float]]


def run(options: Options) -> Report:
    """Two tables; a goal for each preset, one for calls and one for processes."""
    if sys.platform != "linux":
        return Report(notes=["sandbox: sandboxes are measured on Linux only"])
    starts, lives, calls, processes = asyncio.run(measure(options.pick(200, 40), options.pick(40, 10)))
    rows = [
        [name, cell(_p50(starts[name]), 2), cell(_p50(starts[name]) - _p50(starts["off"]), 2),
         cell(_p50(lives[name]), 2), cell(_p50(calls[name]) * 1000, 1),
         cell(_p50(calls[name]) / _p50(calls["off"]), 2), str(processes[name])]
        for name in starts
    ]  # fmt: skip
    title = f"{PROGRAM}, ms, median of {len(starts['off'])} interleaved rounds; lines through {ECHO}"
    heads = ["sandbox", "start", "more than off", "whole life", "call, µs", "× off", "processes"]
    own = [name for name in starts if name not in ("off", "bubblewrap")]
    goals = [
        Goal(f"a start, {name}: more", _p50(starts[name]) - _p50(starts["off"]), "at most", LIMIT_MS, " ms")
        for name in own
    ]
    worst = max(_p50(calls[name]) / _p50(calls["off"]) for name in own)
    goals.append(Goal("a call in a sandbox", worst, "at most", CALL_RATIO, " × off"))
    more = max(processes[name] for name in own) - processes["off"]
    goals.append(Goal("more processes for each child", float(more), "at most", 0.0, ""))
    return Report(
        [Table(title, heads, rows)],
        goals,
        {name: {"start": _p50(starts[name]), "call": _p50(calls[name])} for name in starts},
    )


def _p50(values: list[float]) -> float:
    return statistics.median(values)


async def measure(rounds: int, batches: int) -> tuple[Times, Times, Times, dict[str, int]]:
    """Return the milliseconds of starts, lives and calls by preset, and the number of processes of a child."""
    words = {name: PRESETS[name] for name in ("off", "strict", "workspace", "browser")}
    own = {"preset": "workspace", "write": ["${workspace}", "${cache}"]}
    hosts = ["api.example.com", "*.example.org"]
    words["workspace, hosts"] = SandboxWords(**own, network="hosts", hosts=hosts)  # type: ignore[arg-type]
    if shutil.which("bwrap") is not None:
        words["bubblewrap"] = SandboxWords(**own, network="loopback", mechanism="bubblewrap")  # type: ignore[arg-type]
    starts, lives, calls = ({name: list[float]() for name in words} for _ in range(3))
    launcher = Launcher(asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as folder:
        runner = SandboxRunner(launcher, folder, os.environ, os.path.join(folder, "cache"))
        for _ in range(2):  # the launcher, the probe and the module are started once
            for own_words in words.values():
                await once(runner, launcher, own_words, folder)
        for _ in range(rounds):
            for name, own_words in words.items():
                start, life = await once(runner, launcher, own_words, folder)
                starts[name].append(start)
                lives[name].append(life)
        processes = await _measure_calls(runner, launcher, words, folder, batches, calls)
    await launcher.aclose()
    return starts, lives, calls, processes


async def once(
    runner: SandboxRunner, launcher: Launcher, words: SandboxWords, folder: str
) -> tuple[float, float]:
    """Return the milliseconds until a program runs, and until it has ended."""
    began = time.perf_counter()
    process, sandbox = await _start(runner, launcher, words, folder, PROGRAM)
    start = (time.perf_counter() - began) * 1000
    await process.exited
    life = (time.perf_counter() - began) * 1000
    _close(process, sandbox)
    return start, life


async def _start(
    runner: SandboxRunner, launcher: Launcher, words: SandboxWords, folder: str, program: str
) -> tuple[ChildProcess, RunningSandbox | None]:
    if words is OFF:
        return await launcher.spawn([program], os.environ, folder), None
    launch = Launch([program], dict(os.environ), folder)
    started = await runner.start("bench", words, launch, os.environ, lambda _denial: None)
    assert not isinstance(started, Failure), started
    return started


def _close(process: ChildProcess, sandbox: RunningSandbox | None) -> None:
    for fd in (process.stdin, process.stdout, process.stderr):
        os.close(fd)
    if sandbox is not None:
        sandbox.close()


async def _measure_calls(
    runner: SandboxRunner,
    launcher: Launcher,
    words: dict[str, SandboxWords],
    folder: str,
    batches: int,
    calls: Times,
) -> dict[str, int]:
    """Send lines through a program in each sandbox in turn, and count its processes."""
    running = {name: await _start(runner, launcher, own, folder, ECHO) for name, own in words.items()}
    known = children_by_parent()
    processes = {name: 1 + len(descendants_of([one[0].pid], known)) for name, one in running.items()}
    for _ in range(batches):
        for name, (process, _sandbox) in running.items():
            calls[name] += [_call(process) for _ in range(CALLS_IN_BATCH)]
    for process, sandbox in running.values():
        process.end()
        await process.exited
        _close(process, sandbox)
    return processes


def _call(process: ChildProcess) -> float:
    began = time.perf_counter()
    os.write(process.stdin, LINE)
    left = len(LINE)
    while left:
        left -= len(os.read(process.stdout, left))
    return (time.perf_counter() - began) * 1000
