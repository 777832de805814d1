"""Runs of programs: calls within their limits, cancellation, and runs that are continued after a crash."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.programs import run_log
from switchboard_mcp.programs.engine import (
    CheckReport,
    Finished,
    Limits,
    Module,
    Program,
    ProgramCall,
    Settled,
    Step,
    Suspension,
    Waiting,
)
from switchboard_mcp.programs.run_log import RunLogError, RunStore
from switchboard_mcp.programs.run_loop import Outcome, open_log, recover, run
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.unit.programs import ten_calls
from tests.unit.programs.ten_calls import CrashError, CrashingLog, Server

MODULES = [Module("m", {"f": "f"})]
WANTED = [number * 10 for number in range(10)]


def crash() -> None:
    raise CrashError


async def ended(work: Coroutine[Any, Any, Outcome]) -> None:
    with pytest.raises(CrashError):
        await asyncio.wait_for(work, PATIENCE_S)


def assert_once(server: Server, outcome: Outcome) -> None:
    """Each call was carried out exactly once, or is reported as uncertain; none was carried out twice."""
    assert outcome.failure is None, outcome
    assert len(server.effects) == len(set(server.effects)), server.effects
    seen = json.loads(outcome.value)
    assert seen.count("uncertain") == len(outcome.uncertain)
    certain = [one for one in seen if one != "uncertain"]
    assert set(certain) <= set(WANTED)
    assert len(certain) + len(outcome.uncertain) == 10
    assert {one * 10 for one in server.effects} >= set(certain)
    assert len(outcome.calls) == 10
    assert outcome.printed.startswith("half 0.3238")  # the first number of the seed


async def test_a_run_crashed_at_any_record_is_continued_and_makes_no_call_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # for power cuts only
    complete = uncertain = 0
    async with ten_calls.opened(str(tmp_path)) as (store, engine):
        for before in (True, False):
            for at in range(1, 100):
                server = Server()
                log = CrashingLog(ten_calls.begin(store, engine), at, before=before, crash=crash)
                try:
                    await asyncio.wait_for(ten_calls.start(engine, server, log), PATIENCE_S)
                except CrashError:
                    pass
                else:
                    break  # it has fewer records
                if not store.unfinished():  # after the end
                    break
                # Every third one as by another version of the interpreter: replayed, not loaded.
                version = "another" if at % 3 == 0 else ""
                outcome = await ten_calls.resume(store, engine, server, version)
                (tmp_path / f"{outcome.run}.run").unlink()
                assert_once(server, outcome)
                complete += not outcome.uncertain
                uncertain += bool(outcome.uncertain)
            assert at > 18
        for number in range(1, 11):
            server = Server()
            server.crash_after = number
            await ended(ten_calls.start(engine, server, ten_calls.begin(store, engine)))
            server.crash_after = -1
            outcome = await ten_calls.resume(store, engine, server)
            assert_once(server, outcome)
            assert outcome.uncertain
    assert complete > 15
    assert uncertain > 15


async def test_a_call_that_may_be_repeated_is_sent_again(tmp_path: Path) -> None:
    async with ten_calls.opened(str(tmp_path)) as (store, engine):
        server = Server()
        server.crash_after = 3
        await ended(ten_calls.start(engine, server, ten_calls.begin(store, engine)))
        server.crash_after = -1
        [number] = store.unfinished()
        log, recorded = store.reopen(number)
        outcome = await recover(
            engine, recorded, engine.version, server.call, log, may_repeat=lambda module, subtool: True
        )
        assert json.loads(outcome.value) == WANTED
        assert server.effects == [0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9]
        assert outcome.uncertain == []


async def test_a_run_whose_helper_died_goes_on_from_its_log(tmp_path: Path) -> None:
    async with ten_calls.opened(str(tmp_path)) as (store, engine):
        for may_repeat in (True, False):
            server, victims = Server(), ["pid", "worker", "pid"]

            async def call(
                module: str, subtool: str, arguments: bytes, server: Server = server, victims: Any = victims
            ) -> Settled:
                settled = await server.call(module, subtool, arguments)
                if victims and len(server.effects) in (1, 4, 7):
                    os.kill(getattr(engine.helpers[0], victims.pop()), signal.SIGKILL)
                return settled

            log = ten_calls.begin(store, engine)
            outcome = await run(
                engine,
                ten_calls.PROGRAM,
                call,
                log,
                Limits(),
                may_repeat=lambda *_, allowed=may_repeat: allowed,
            )
            assert json.loads(outcome.value) == WANTED, outcome
            assert server.effects == list(range(10))
            assert not victims


async def test_a_call_that_is_slow_leaves_a_snapshot_and_no_process(tmp_path: Path) -> None:
    async with ten_calls.opened(str(tmp_path)) as (store, engine):
        gauge = Gauge()
        log = open_log(store, Program("import m\n(await m.f(a=5))['a']", MODULES), Limits(), engine.version)
        program = Program("import m\n(await m.f(a=5))['a']", MODULES)
        task = asyncio.create_task(run(engine, program, gauge.call, log, Limits()))
        async with asyncio.timeout(PATIENCE_S):
            while not store.read(log.run).waits or not store.read(log.run).waits[-1].snapshot:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert [one.held for one in engine.helpers] == [None]
        gauge.gate.set()
        assert (await task).value == b"5"


def run_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    return subprocess.run(
        [sys.executable, ten_calls.__file__, str(folder), *arguments],
        capture_output=True,
        text=True,
        env=environ,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_process_killed_in_a_run_leaves_a_run_for_the_next(tmp_path: Path) -> None:
    killed = run_process(tmp_path, "11")
    assert killed.returncode == -9, killed.stderr
    pids = json.loads((tmp_path / "pids").read_text())
    assert len(pids) == 2
    gone = time.monotonic() + PATIENCE_S
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):  # helper and worker end with the gateway
        assert time.monotonic() < gone
        time.sleep(0.01)
    continued = run_process(tmp_path)
    assert continued.returncode == 0, continued.stderr
    value, uncertain, failure = json.loads(continued.stdout)
    effects = (tmp_path / "effects").read_text().split()
    assert failure == "None"
    assert len(effects) == len(set(effects)) >= 10 - uncertain
    assert [one for one in json.loads(value) if one != "uncertain"] == sorted(
        {int(one) * 10 for one in effects} & set(json.loads(value))
    )
    assert RunStore(str(tmp_path)).unfinished() == []


async def test_a_log_that_was_changed_is_not_continued(tmp_path: Path) -> None:
    async with ten_calls.opened(str(tmp_path)) as (store, engine):
        server = Server()
        server.crash_after = 2
        await ended(ten_calls.start(engine, server, ten_calls.begin(store, engine)))
    [number] = store.unfinished()
    path = tmp_path / f"{number}.run"
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for changed in (
        whole.replace(b"range(4)", b"range(9)", 1),
        b"".join([lines[0], *lines[2:]]),  # a record is missing
        b"".join([lines[0], lines[2], lines[1], *lines[3:]]),
        whole + lines[-1],
    ):
        path.write_bytes(changed)
        with pytest.raises(RunLogError, match="was changed"):
            store.reopen(number)
    # A line that was cut off by a crash is as if it was never written.
    path.write_bytes(whole + lines[-1][:40])
    log, recorded = store.reopen(number)
    with pytest.raises(BlockingIOError):
        RunStore(str(tmp_path)).reopen(number)
    assert store.unfinished() == []  # it is being executed
    assert len(recorded.waits) == 2
    log.close()
    assert path.read_bytes() == whole
    path.chmod(0o644)
    with pytest.raises(OSError, match="only you"):
        store.reopen(number)
    for name in ("../key", "", "a/b", "x" * 65):
        with pytest.raises(OSError, match="no run"):
            store.read(name)


async def test_old_logs_are_removed_but_never_one_that_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(str(tmp_path))
    program = Program("1", [])
    kept, old, large = [open_log(store, program, Limits(), "1") for _ in range(3)]
    old.close()
    large.close()
    os.utime(tmp_path / f"{old.run}.run", (1, 1))
    os.utime(tmp_path / f"{kept.run}.run", (1, 1))
    last = open_log(store, program, Limits(), "1")
    assert set(store.runs()) == {kept.run, large.run, last.run}
    monkeypatch.setattr(run_log, "MAX_FOLDER_BYTES", 1)
    last.close()
    newest = open_log(store, program, Limits(), "1")
    assert set(store.runs()) == {kept.run, newest.run}
    kept.close()
    newest.close()


class Gauge:
    """A subtool whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.running = self.most = self.total = 0
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()

    async def call(self, module: str, subtool: str, arguments: bytes) -> Settled:
        """Wait for the gate."""
        self.total += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.entered.set()
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return Settled(value=arguments)


async def test_calls_stay_within_their_limits_and_end_with_the_run(tmp_path: Path) -> None:
    async with ten_calls.opened(str(tmp_path)) as (store, engine):
        gauge = Gauge()
        gauge.gate.set()
        gather = "import m, asyncio\nlen(await asyncio.gather(*[m.f(a=i) for i in range({})]))"
        outcome = await run(engine, Program(gather.format(20), MODULES), gauge.call, None, Limits(at_once=3))
        assert (outcome.value, gauge.total, gauge.most) == (b"20", 20, 3)
        assert {one.outcome for one in outcome.calls} == {"ok"}
        assert [one.bytes for one in outcome.calls][:2] == [7, 7]

        loop = "import m\nfor i in range(100):\n    await m.f(a=i)"
        gauge = Gauge()
        gauge.gate.set()
        outcome = await run(engine, Program(loop, MODULES), gauge.call, None, Limits(calls=7))
        assert outcome.failure is not None
        assert "programs.limits.calls is 7" in outcome.failure.message
        assert gauge.total == 7

        big = Settled(text="x" * 600_000)

        async def answer(module: str, subtool: str, arguments: bytes) -> Settled:
            return big

        outcome = await run(engine, Program(loop, MODULES), answer, None, Limits(memory_mb=1))
        assert outcome.failure is not None
        assert outcome.failure.limit == "memory_mb"
        assert len(outcome.calls) <= 2

        gauge = Gauge()
        log = open_log(store, Program(loop, MODULES), Limits(), engine.version)
        task = asyncio.create_task(run(engine, Program(loop, MODULES), gauge.call, log, Limits()))
        await asyncio.wait_for(gauge.entered.wait(), PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (gauge.total, gauge.cancelled, gauge.running) == (1, 1, 0)
        assert store.unfinished() == []  # a run that its user cancelled is not continued


async def test_calls_that_are_open_at_the_end_are_waited_for(tmp_path: Path) -> None:
    async with ten_calls.opened(str(tmp_path)) as (_, engine):
        code = (
            "import m, asyncio\nasync def bad():\n    await m.f(a=0)\n    raise ValueError('no')\n"
            "await asyncio.gather(bad(), m.f(a=1))"
        )
        second = asyncio.Event()

        async def answer(module: str, subtool: str, arguments: bytes) -> Settled:
            if b"1" in arguments:
                await asyncio.sleep(0.01)  # ends after the program has failed
                second.set()
            return Settled(value=arguments)

        outcome = await run(engine, Program(code, MODULES), answer, None, Limits())
        assert outcome.failure is not None
        assert "ValueError: no" in outcome.failure.message
        assert second.is_set()
        assert [one.outcome for one in outcome.calls] == ["ok", "ok"]
        outcome = await run(engine, Program("import m\nx = m.f(a=1)\n5", MODULES), answer, None, Limits())
        assert outcome.value == b"5"
        assert [(one.outcome, one.message) for one in outcome.calls] == [
            ("cancelled", "The program ended before the call was sent.")
        ]


class LyingEngine:
    """An engine whose helper announces a call that the program was not checked for."""

    async def check(self, code: str, modules: Sequence[Module]) -> CheckReport:
        return CheckReport()

    async def start(self, *arguments: Any) -> Step:
        return Waiting(
            Suspension(b"snapshot"),
            [ProgramCall(1, "m", "f", b"{}"), ProgramCall(2, "m", "delete_all", b"{}")],
            [1, 2],
        )

    async def resume(self, *arguments: Any) -> Step:
        return Finished(b"1")

    async def take_snapshot(self, suspension: Suspension) -> None:
        return None

    async def close(self) -> None:
        return None


async def test_a_call_outside_of_the_manifest_is_not_made_whatever_the_helper_says() -> None:
    gauge = Gauge()
    gauge.gate.set()
    outcome = await run(LyingEngine(), Program("", MODULES), gauge.call, None, Limits())
    assert outcome.failure is not None
    assert "m.delete_all" in outcome.failure.message
    assert gauge.total == 0


CALLS = [ProgramCall(number, "m", "f", b"{}") for number in range(3)]
# Steps of a helper that was taken over, and the failure of its run.
LIES: dict[str, tuple[Sequence[Step], str]] = {
    "more calls than allowed": ([Waiting(Suspension(b"s"), CALLS, [0, 1, 2])], "too many calls"),
    "the same id again and again": ([Waiting(Suspension(b"s"), CALLS[:1], [0])] * 9, "made a call twice"),
    "a wait for nothing": ([Waiting(Suspension(b"s"), [], [])], "waits for no call"),
}


@each_case("lie", LIES)
async def test_no_lie_of_a_helper_makes_more_calls_or_an_endless_wait(lie: str) -> None:
    steps, message = LIES[lie]

    left = list(steps)

    class Scripted(LyingEngine):
        async def start(self, *arguments: Any) -> Step:
            return left.pop(0)

        resume = start

    gauge = Gauge()
    gauge.gate.set()
    work = run(Scripted(), Program("", MODULES), gauge.call, None, Limits(calls=2))
    outcome = await asyncio.wait_for(work, PATIENCE_S)
    assert outcome.failure is not None
    assert message in outcome.failure.message
    assert gauge.total <= 1
