"""Scenario: what a sandbox costs: starts of a program that ends at once, in each preset and without, interleaved."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time

from bench.report import Goal, Options, Report, Table, cell
from switchboard_mcp.config.sandbox import OFF, PRESETS, SandboxWords
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.runner import Launch, SandboxRunner
from switchboard_mcp.transport.process.launcher import Launcher

PROGRAM = "/bin/true"
LIMIT_MS = 5.0


def run(options: Options) -> Report:
    """One table, one goal for each preset."""
    if sys.platform != "linux":
        return Report(notes=["sandbox: sandboxes are measured on Linux only"])
    rounds = options.pick(200, 40)
    found = asyncio.run(measure(rounds))
    medians = {name: statistics.median(values) for name, values in found.items()}
    rows = [[name, cell(medians[name], 2), cell(medians[name] - medians["off"], 2)] for name in found]
    title = f"Start of {PROGRAM} until it has ended, ms, median of {rounds} interleaved rounds"
    goals = [
        Goal(
            f"a sandbox ({name}) adds to a start", medians[name] - medians["off"], "at most", LIMIT_MS, " ms"
        )
        for name in found
        if name != "off"
    ]
    return Report(
        [Table(title, ["sandbox", "start", "more than off"], rows)],
        goals,
        {name: {"start": value} for name, value in medians.items()},
    )


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each round by preset."""
    words = {name: PRESETS[name] for name in ("off", "strict", "workspace", "browser")}
    hosts = ["api.example.com", "*.example.org"]
    words["workspace, hosts"] = SandboxWords(
        preset="workspace", write=["${workspace}", "${cache}"], network="hosts", hosts=hosts
    )
    found: dict[str, list[float]] = {name: [] for name in words}
    launcher = Launcher(asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as folder:
        runner = SandboxRunner(launcher, folder, os.environ, os.path.join(folder, "cache"))
        for name in words:  # the launcher, the probe and the module are started once
            await once(runner, launcher, words[name], folder)
        for _ in range(rounds):
            for name, own in words.items():
                found[name].append(await once(runner, launcher, own, folder))
    await launcher.aclose()
    return found


async def once(runner: SandboxRunner, launcher: Launcher, words: SandboxWords, folder: str) -> float:
    """Return the milliseconds from the request to the end of the program."""
    began = time.perf_counter()
    if words is OFF:
        process, sandbox = await launcher.spawn([PROGRAM], os.environ, folder), None
    else:
        launch = Launch([PROGRAM], dict(os.environ), folder)
        started = await runner.start("bench", words, launch, os.environ, lambda _denial: None)
        assert not isinstance(started, Failure), started
        process, sandbox = started
    await process.exited
    spent = (time.perf_counter() - began) * 1000
    for fd in (process.stdin, process.stdout, process.stderr):
        os.close(fd)
    if sandbox is not None:
        sandbox.close()
    return spent
