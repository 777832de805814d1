"""Scenario: the cost of running programs: checks, steps, calls, memory, and many programs that wait.

The helper process is the real one, confined as in service. `call` answers at once, so the time of a program with calls
is that of the helper, of the gateway's part, and of the log. A plain call of the same function is the direct one.
Then the same through a whole gateway with a real child: calls of its suite, and the same calls from inside a program.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from bench.program_start import ABSENT, OFF, measure_starts
from bench.program_start import table as start_table
from bench.report import Goal, Options, Report, Table, cell, percentile
from switchboard_mcp.app import CommandOptions, load, running
from switchboard_mcp.cli.local_client import connected
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.gateway.programs.program_calls import ProgramRun
from switchboard_mcp.observability.log import Log
from switchboard_mcp.programs.engine import Finished, Limits, Module, Program, Settled, Waiting
from switchboard_mcp.programs.helper_engine import HelperEngine
from switchboard_mcp.programs.run_log import RunStore
from switchboard_mcp.programs.run_loop import open_log
from switchboard_mcp.programs.run_loop import run as run_program
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport.process.launcher import Launcher

CHILD = Path(__file__).resolve().parent / "echo_child.py"
STUB = "import builtins as _b\n" + "".join(
    f"async def f{n}(*, a: _b.str, b: _b.int = ...) -> _b.dict[_b.str, _b.int]: ...\n" for n in range(30)
)
MODULES = [Module("m", {f"f{n}": f"f{n}" for n in range(30)}, STUB)]
# A run gets the functions of its manifest alone.
RUN_MODULES = [Module("m", {"f1": "f1"})]
CALLS = "import m\nx = 0\nfor i in range({}):\n    r = await m.f1(a='abc', b=i)\n    x += r['n']\nx"
CHECKED = "import m, asyncio, json\nx = await m.f1(a='1')\ny = await asyncio.gather(m.f2(a='b'), m.f3(a='c'))\nlen(y)"
PLAIN = "suite call, programs off"
WAITING = 100
INNER = 100


async def answer(module: str, subtool: str, arguments: bytes) -> Settled:
    """Carry out a call of the program."""
    return Settled(value=b'{"n": 1}')


async def times_ms(work: Callable[[], Awaitable[object]], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        found.append((time.perf_counter() - began) * 1000)
    return found


async def measure(options: Options) -> dict[str, list[float]]:
    """Return the times of each thing, in milliseconds, and memory in MiB."""
    rounds = options.pick(200, 40)
    limits = Limits(calls=1000)
    launcher = Launcher(asyncio.get_running_loop())
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(folder)
        engine = HelperEngine(launcher, limits)
        try:
            began = time.perf_counter()
            await engine.check("1", [])
            found["start of a helper"] = [(time.perf_counter() - began) * 1000]
            began = time.perf_counter()
            await engine.check(CHECKED, MODULES)
            found["first check"] = [(time.perf_counter() - began) * 1000]
            found["check"] = await times_ms(lambda: engine.check(CHECKED, MODULES), rounds // 4)
            empty = Program("1 + 1", [])
            found["run without calls"] = await times_ms(
                lambda: run_program(engine, empty, answer, None, limits), rounds
            )
            found["memory"] = [max(one.memory() for one in engine.helpers) / 2**20]
            await _measure_calls(engine, store, limits, max(5, rounds // 20), found)
            found["helpers"] = [await _wait_many(engine, limits, found)]
        finally:
            await engine.close()
            await launcher.aclose()
    return found


async def _measure_calls(
    engine: HelperEngine, store: RunStore, limits: Limits, rounds: int, found: dict[str, list[float]]
) -> None:
    """Take the time from each call of a program to its next, one by one: a busy machine spoils some of them only."""
    program = Program(CALLS.format(INNER), RUN_MODULES)
    found["plain call of the function"] = await times_ms(lambda: answer("m", "f1", b"{}"), 1000)
    for name, has_log, may_repeat in (
        ("inner call, no log", False, True),
        ("inner call, read", True, True),
        ("inner call, write: synced before it leaves", True, False),
    ):
        between: list[float] = []
        for _ in range(rounds):
            began: list[float] = []

            async def timed(
                module: str, subtool: str, arguments: bytes, began: list[float] = began
            ) -> Settled:
                began.append(time.perf_counter())
                return await answer(module, subtool, arguments)

            def allowed(module: str, subtool: str, may_repeat: bool = may_repeat) -> bool:
                return may_repeat

            log = open_log(store, program, limits, engine.version) if has_log else None
            await run_program(engine, program, timed, log, limits, may_repeat=allowed)
            between += [(later - sooner) * 1000 for sooner, later in pairwise(began)]
        found[name] = between


async def _wait_many(engine: HelperEngine, limits: Limits, found: dict[str, list[float]]) -> float:
    """Return the number of helpers while many programs wait, after they have all ended."""
    code = "import m\nfor i in range(5):\n    x = await m.f1(a='abc')\nx"
    most = 0

    async def one() -> None:
        nonlocal most
        step = await engine.start(code, RUN_MODULES, b"", limits, 1, 1e9)
        while isinstance(step, Waiting):
            most = max(most, len(engine.helpers))
            await asyncio.sleep(0.02)
            step = await engine.resume(
                step.suspension, RUN_MODULES, {step.pending[0]: Settled(value=b"1")}, limits
            )
        if not isinstance(step, Finished):
            raise RuntimeError(step)

    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(WAITING)])
    found[f"{WAITING} programs, five calls of 20 ms each"] = [(time.perf_counter() - began) * 1000]
    return most


async def measure_gateway(options: Options) -> dict[str, list[float]]:
    """Return the times of calls of a real child through the whole gateway, plain and from inside a program."""
    rounds = options.pick(20, 5)
    found: dict[str, list[float]] = {
        "suite call": [],
        PLAIN: [],
        "suite call in a program": [],
        "run again": [],
    }
    began: list[float] = []
    call = ProgramRun.call

    async def timed(self: ProgramRun, child: str, subtool: str, arguments: bytes) -> Settled:
        began.append(time.perf_counter())
        return await call(self, child, subtool, arguments)

    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as other,
        patch.object(ProgramRun, "call", timed),
    ):
        redactor = Redactor()
        log = Log(level="error", redactor=redactor)
        async with (
            running(_workspace(folder), log, redactor) as switchboard,
            running(_workspace(other, enabled=False), log, redactor) as without,
            connected(switchboard.gateway) as host,
            connected(without.gateway) as plain_host,
        ):

            async def program(calls: int) -> None:
                code = f"import echo\nfor i in range({calls}):\n    x = await echo.echo(message='abc')\n1"
                arguments = {"action": "call", "subtool": "run", "args": {"code": code}}
                result = await host.call("program_suite", arguments)
                if result.is_error:
                    raise RuntimeError(result)

            echo = {"action": "call", "subtool": "echo", "args": {"message": "abc"}}
            await program(0)
            for _ in range(rounds):
                for _ in range(INNER):  # in turn, so that both meet the same machine
                    found["suite call"] += await times_ms(lambda: host.call("echo_suite", echo), 1)
                    found[PLAIN] += await times_ms(lambda: plain_host.call("echo_suite", echo), 1)
                found["run again"] += await times_ms(lambda: program(0), 5)
                began.clear()
                await program(INNER)
                found["suite call in a program"] += [(b - a) * 1000 for a, b in pairwise(began)]
    return found


def _workspace(folder: str, *, enabled: bool = True) -> Workspace:
    """Return a workspace, with programs or without, and a child whose tool only reads."""
    start = (
        f"import sys; sys.path.insert(0, {str(CHILD.parent.parent)!r}); from bench import echo_child as child; "
        'reads = b\'"annotations":{"readOnlyHint":true},"inputSchema"\'; '
        "child.TOOLS = child.TOOLS.replace(b'\"inputSchema\"', reads); "
        "child.main()"
    )
    config = {
        "mcpServers": {"echo": {"command": sys.executable, "args": ["-c", start]}},
        "programs": {"enabled": enabled},
    }
    Path(folder, "switchboard.config.json").write_text(json.dumps(config))
    return load(CommandOptions(workspace=folder))


def run(options: Options) -> Report:
    """Measure, and hold the goals."""
    found = asyncio.run(measure(options)) | asyncio.run(measure_gateway(options))
    starts = measure_starts(options)
    off, absent = starts[OFF], starts[ABSENT]
    p50 = {name: statistics.median(values) for name, values in found.items()}
    times = [name for name in found if name not in ("memory", "helpers")]
    rows = [
        [name, cell(p50[name], 3), cell(percentile(found[name], 99), 3), str(len(found[name]))]
        for name in times
    ]
    rows.append(["memory of helper and worker, MiB", cell(p50["memory"], 1), "", "1"])
    rows.append([f"helpers while {WAITING} programs wait", cell(p50["helpers"], 0), "", "1"])
    engine = p50["inner call, read"] - p50["plain call of the function"]
    added = p50["suite call in a program"] - p50["suite call"]
    return Report(
        tables=[
            Table("Programs: the engine (milliseconds)", ["", "p50", "p99", "n"], rows),
            start_table(starts),
        ],
        goals=[
            Goal("added by the engine to each inner call", engine, "at most", 0.5, "ms"),
            Goal("added to a suite call by a program around it", added, "at most", 0.5, "ms"),
            Goal("a suite call with programs on", p50["suite call"] / p50[PLAIN], "at most", 1.05, "×"),
            Goal("a whole run of a program that was checked before", p50["run again"], "at most", 5, "ms"),
            Goal("a warm run without calls", p50["run without calls"], "at most", 5, "ms"),
            Goal("a first check", p50["first check"], "at most", 50, "ms"),
            Goal("helpers for 100 programs that wait", p50["helpers"], "at most", 2, ""),
            Goal("helper and worker after small programs", p50["memory"], "at most", 60, "MiB"),
            Goal(
                "CPU time of a start with programs off", off["cpu_ms"] / absent["cpu_ms"], "at most", 1.1, "×"
            ),
            Goal(
                "memory added by programs that are off",
                off["rss_mib"] - absent["rss_mib"],
                "at most",
                0.5,
                "MiB",
            ),
        ],
        figures={"programs": p50, **starts},
    )
