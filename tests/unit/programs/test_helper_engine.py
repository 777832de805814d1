"""The real helper process: steps, limits, hostile programs, and helpers that die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from switchboard_mcp.programs import helper_client, helper_pool
from switchboard_mcp.programs.engine import (
    Failed,
    Finished,
    Limits,
    Module,
    ProgramCall,
    Settled,
    Step,
    Waiting,
)
from switchboard_mcp.programs.helper import frames
from switchboard_mcp.programs.helper_engine import HelperEngine
from switchboard_mcp.programs.helper_pool import MAX_HELPERS
from switchboard_mcp.transport.process.launcher import Launcher
from tests.patience import PATIENCE_S
from tests.unit.programs.hostile_programs import ESCAPES, EXHAUSTIONS

MODULES = [
    Module(
        "m",
        {"f": "f", "g": "g"},
        "async def f(*, a: object) -> int: ...\nasync def g(*, a: str) -> int: ...\n",
    )
]
QUICK = Limits(seconds=0.05, memory_mb=32, calls=20)


@asynccontextmanager
async def opened_engine() -> AsyncIterator[HelperEngine]:
    launcher = Launcher(asyncio.get_running_loop())
    engine = HelperEngine(launcher, Limits())
    try:
        yield engine
    finally:
        await engine.close()
        await launcher.aclose()


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[HelperEngine]:
    async with opened_engine() as opened:
        yield opened


async def start(engine: HelperEngine, code: str, limits: Limits = Limits(), **words: Any) -> Step:  # noqa: B008
    return await asyncio.wait_for(
        engine.start(code, MODULES, words.get("input", b""), limits, words.get("seed", 1), 1e9), PATIENCE_S
    )


async def waiting(engine: HelperEngine, code: str) -> Waiting:
    step = await start(engine, code)
    assert isinstance(step, Waiting), step
    return step


async def test_a_program_waits_for_its_calls_and_ends_with_its_last_expression(engine: HelperEngine) -> None:
    step = await waiting(
        engine, "import m\nprint('before')\nx = await m.f(a=[1, {'k': None}])\nprint('after')\nx['r']"
    )
    assert step.printed == "before\n"
    [call] = step.calls
    assert (call.module, call.function, call.arguments) == ("m", "f", b'{"a":[1,{"k":null}]}')
    settled = {call.id: Settled(value=b'{"r": 2}')}
    end = await engine.resume(step.suspension, MODULES, settled, Limits())
    assert end == Finished(b"2", "after\n", [], [])


async def test_calls_made_together_may_be_settled_one_by_one(engine: HelperEngine) -> None:
    code = "import m, asyncio\nawait asyncio.gather(*[m.f(a=i) for i in range(3)])"
    step: Step = await waiting(engine, code)
    assert isinstance(step, Waiting)
    ids = [call.id for call in step.calls]
    for number, one in enumerate(ids):
        assert isinstance(step, Waiting)
        assert list(step.pending) == ids[number:]
        step = await engine.resume(step.suspension, MODULES, {one: Settled(text=str(number))}, Limits())
    assert step == Finished(b'["0","1","2"]', "", [], [])


async def test_an_outcome_may_be_an_exception_that_the_program_catches(engine: HelperEngine) -> None:
    code = "import m\ntry:\n    await m.f(a=1)\nexcept PermissionError as problem:\n    x = str(problem)\nx"
    step = await waiting(engine, code)
    settled = {step.pending[0]: Settled(raised="PermissionError", message="not yours")}
    assert await engine.resume(step.suspension, MODULES, settled, Limits()) == Finished(
        b'"not yours"', "", [], []
    )


VALUES = (
    ("{'a': (1, 2.5), 'b': {3}, 4: None, True: b'x'}", b'{"a":[1,2.5],"b":[3],"4":null,"true":"eA=="}'),
    ("float('nan')", b"null"),
    ("'\\ud800é'", '"�é"'.encode()),
    ("input", b'{"q":[1,"\xc3\xa9"]}'),
    ("None", b"null"),
    ("10**30", b"1" + b"0" * 30),
)


async def test_a_value_is_written_as_json(engine: HelperEngine) -> None:
    for expression, value in VALUES:
        assert await start(engine, expression, input='{"q": [1, "é"]}'.encode()) == Finished(
            value, "", [], []
        )


NO_VALUES = (
    ("def f(): pass\nf", "is function; call it"),
    ("import m\nm.f(a=1)", "is coroutine; call it, and await"),
    ("class A: pass\nA()", "return texts, numbers, lists and dicts"),
    ("{(1, 2): 3}", "has a key of type tuple"),
    ("int", "is a class"),
)


async def test_a_value_that_is_no_data_is_refused_by_name(engine: HelperEngine) -> None:
    for code, part in NO_VALUES:
        step = await start(engine, code)
        assert isinstance(step, Failed), step
        assert step.kind == "value"
        assert part in step.message


async def test_an_error_of_a_program_names_its_line(engine: HelperEngine) -> None:
    step = await start(engine, "x = 1\nprint('seen')\ny = {}['no']\n")
    assert isinstance(step, Failed)
    assert (step.kind, step.line, step.printed) == ("error", 3, "seen\n")
    assert "KeyError" in step.message
    assert "line 3" in step.traceback
    step = await start(engine, "x = 1\ny = = 2")
    assert isinstance(step, Failed)
    assert (step.kind, step.line) == ("syntax", 2)


async def test_a_check_reports_lines_of_the_program_and_runs_nothing(engine: HelperEngine) -> None:
    report = await engine.check(
        "import m\nx = await m.g(a=1)\nprint(x + nothing)\nwhile True:\n    pass", MODULES
    )
    assert [(one.code, one.line) for one in report.diagnostics] == [
        ("invalid-argument-type", 2),
        ("unresolved-reference", 3),
    ]
    report = await engine.check(
        "import m\nx = await m.g(a='1')\n[len(str(x)), input, list(map(str, [1]))]", MODULES
    )
    assert (list(report.diagnostics), report.syntax_error, report.failure) == ([], None, None)
    report = await engine.check("x = 1\ny = (", MODULES)
    assert report.syntax_error is not None
    assert report.syntax_error.line == 2


EXCEEDED = (
    ("while True:\n    pass", Limits(seconds=0.1), "programs.limits.seconds is 0.1"),
    ("'a' * 10**8", Limits(memory_mb=32), "programs.limits.memoryMb is 32"),
    ("import m\nfor i in range(9):\n    m.f(a=1)", Limits(calls=8), "programs.limits.calls is 8"),
    ("#" + "x" * 2048, Limits(code_kb=2), "programs.limits.codeKb is 2"),
    ("'a' * 5_000_000", Limits(), "programs.limits.answerKb is 32"),
    ("def f():\n    f()\nf()", Limits(recursion=30), "programs.limits.recursion is 30"),
)


async def test_a_refusal_names_the_setting_of_its_limit(engine: HelperEngine) -> None:
    for code, limits, setting in EXCEEDED:
        step = await start(engine, code, limits)
        assert isinstance(step, Failed), step
        assert step.kind == "limit"
        assert setting in step.message


async def test_time_used_before_a_wait_counts(engine: HelperEngine) -> None:
    burn = "i = 0\nwhile i < 150_000:\n    i += 1\n"
    code = f"import m\n{burn}await m.f(a=1)\n" * 40
    limits = Limits(seconds=0.3, calls=1000)
    step = await start(engine, code, limits)
    while isinstance(step, Waiting):
        step = await engine.resume(step.suspension, MODULES, {step.pending[0]: Settled(text="")}, limits)
    assert isinstance(step, Failed)
    assert step.limit == "seconds"


async def test_clock_and_random_numbers_follow_the_seed(engine: HelperEngine) -> None:
    code = "import random, time, datetime\n[random.random(), time.time(), str(datetime.datetime.now())]"
    first, again, other = [await start(engine, code, seed=seed) for seed in (1, 1, 2)]
    assert isinstance(first, Finished)
    assert first == again != other
    assert b"2001-09-09" in first.value


async def test_a_program_that_another_displaces_goes_on_from_its_snapshot() -> None:
    async with opened_engine() as engine:
        code = "import m\nx = await m.f(a=1)\ny = await m.f(a=2)\n[x, y]"
        first = await waiting(engine, code)
        assert first.suspension.snapshot == b""  # nothing else needs the helper
        second = await waiting(engine, code)
        assert first.suspension.snapshot != b""
        await engine.take_snapshot(second.suspension)
        assert second.suspension.snapshot != b""
        assert len(engine.helpers) == 1
        for step in (first, second):
            following = await engine.resume(step.suspension, MODULES, {1: Settled(text="x")}, Limits())
            assert isinstance(following, Waiting)
            end = await engine.resume(following.suspension, MODULES, {2: Settled(text="y")}, Limits())
            assert end == Finished(b'["x","y"]', "", [], [])


async def test_a_program_is_lost_with_its_helper_unless_there_is_a_snapshot() -> None:
    async with opened_engine() as engine:
        for victim, taken in (("pid", False), ("worker", False), ("pid", True), ("worker", True)):
            step = await waiting(engine, "import m\nawait m.f(a=1)")
            [helper] = engine.helpers
            if taken:
                await engine.take_snapshot(step.suspension)
            os.kill(getattr(helper, victim), signal.SIGKILL)
            end = await engine.resume(step.suspension, MODULES, {1: Settled(text="x")}, Limits())
            if taken:
                assert end == Finished(b'"x"', "", [], [])
            else:
                assert isinstance(end, Failed)
                assert end.kind == "lost"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


async def test_no_program_reaches_files_network_or_processes(
    engine: HelperEngine, listener: socket.socket, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the-secret-text")
    port = str(listener.getsockname()[1])
    await start(engine, "1")
    helpers = {one.pid for one in engine.helpers}
    for name, code in ESCAPES.items():
        step = await start(engine, code.replace("SECRET", str(secret)).replace("PORT", port), QUICK)
        seen = repr(step)
        assert isinstance(step, (Failed, Finished)), (name, step)
        for leak in ("the-secret-text", "<class 'subprocess", os.environ["HOME"] + "/", "PYTHON", "posix"):
            assert leak not in seen.replace(str(secret), ""), (name, seen)
    assert os.listdir(tmp_path) == ["secret"]
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert {one.pid for one in engine.helpers} == helpers  # none was harmed


async def test_no_program_exhausts_helper_or_gateway(engine: HelperEngine) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(time.thread_time())
            await asyncio.sleep(0.005)

    ticking = asyncio.create_task(tick())
    for name, code in EXHAUSTIONS.items():
        step = await start(engine, code, QUICK)
        assert isinstance(step, (Failed, Finished)), (name, str(step)[:300])
        assert len(repr(step)) < 200_000, name
        assert not isinstance(step, Failed) or step.kind != "crash", (name, step)
        if len(code) > 5_000:  # the others are checked as quickly as any program
            report = await engine.check(code, MODULES)
            assert len(repr(report)) < 200_000, name
    ticking.cancel()
    assert await start(engine, "1 + 1") == Finished(b"2", "", [], [])
    # Time that this thread computed between two ticks: what a busy machine adds does not count.
    assert max(later - sooner for sooner, later in pairwise(ticks)) < 0.1
    assert all(one.memory() < 400 << 20 for one in engine.helpers)


async def test_the_first_step_after_a_death_works() -> None:
    async with opened_engine() as engine:
        await start(engine, "1")
        for victim in ("worker", "pid"):
            [helper] = engine.helpers
            os.kill(getattr(helper, victim), signal.SIGKILL)
            assert await start(engine, "1 + 1") == Finished(b"2", "", [], [])
        [helper] = engine.helpers
        step = asyncio.create_task(start(engine, "while True: pass"))
        while helper.requests < 2:  # noqa: ASYNC110 -- it is counted when it is sent
            await asyncio.sleep(0)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert await start(engine, "1 + 1") == Finished(b"2", "", [], [])
        pids = [pid for one in engine.helpers for pid in (one.pid, one.worker)]
    assert not any(pid_exists(pid) for pid in pids)


async def test_a_helper_that_has_grown_and_one_that_is_not_needed_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(helper_pool, "IDLE_S", 0.0)
    async with opened_engine() as engine:
        await asyncio.gather(*[start(engine, "1") for _ in range(4)])
        async with asyncio.timeout(PATIENCE_S):
            while len(engine.helpers) > 1:  # noqa: ASYNC110 -- a timer ends it
                await asyncio.sleep(0)
        [kept] = engine.helpers
        monkeypatch.setattr(helper_pool, "RECYCLE_CHECK_EVERY", 1)
        assert await start(engine, "2") == Finished(b"2", "", [], [])
        assert engine.helpers == [kept]
        monkeypatch.setattr(helper_pool, "RECYCLE_BYTES", 1)
        assert await start(engine, "3") == Finished(b"3", "", [], [])
        assert engine.helpers == []
        assert await start(engine, "4") == Finished(b"4", "", [], [])


async def test_a_hundred_programs_that_wait_hold_no_process() -> None:
    async with opened_engine() as engine:
        code = "import m\n[await m.f(a=input), await m.f(a=0)]"
        steps = await asyncio.gather(*[start(engine, code, input=str(i).encode()) for i in range(100)])
        assert len(engine.helpers) <= MAX_HELPERS

        async def finish(step: Step, number: int) -> Step:
            for _ in range(2):
                assert isinstance(step, Waiting)
                settled = {step.pending[0]: Settled(value=str(number).encode())}
                step = await engine.resume(step.suspension, MODULES, settled, Limits())
            return step

        ends = await asyncio.gather(*[finish(step, number) for number, step in enumerate(steps)])
        assert [end.value for end in ends if isinstance(end, Finished)] == [
            b"[%d,%d]" % (i, i) for i in range(100)
        ]


READY = frames.encode(frames.Answer(frames.Ready(["limits"], 1)))
# What a helper that was taken over may write, after its greeting or in its place.
GARBAGE = {
    "no greeting": b"",
    "a frame without end": b"\xff\xff\xff\xff",
    "no message": b"\0\0\0\3abc",
    "another message": frames.encode({"a": 1}),
    "two greetings": READY + READY,
    "an answer that nothing asked for": READY + frames.encode(frames.Answer(frames.Stepped())) * 2,
    "an analysis of another shape": READY
    + frames.encode(frames.Answer(frames.Checked(analysis={"calls": 3}))),
}


async def test_a_helper_that_was_taken_over_gets_nothing_but_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, data in GARBAGE.items():
        script = f"import os; os.write(1, {data!r}); os.read(0, 10); os.write(1, b'x' * 100)"
        argv = [sys.executable, "-IS", "-c", script]
        monkeypatch.setattr(helper_pool, "_argv", lambda memory_mb, argv=argv: argv)
        monkeypatch.setattr(helper_client, "START_TIMEOUT_S", PATIENCE_S if data else 0.1)
        async with opened_engine() as engine:
            report = await asyncio.wait_for(engine.check("1", MODULES), PATIENCE_S)
            assert report.failure is not None, name
            assert report.failure.kind == "crash", name
            assert not report.manifest, name


INJECTIONS = (
    b'{"a":1},"name":"delete_all","x":{}',  # another tool
    b'{"a":1}}\n{"jsonrpc":"2.0","method":"exit"}',  # another message
    b'{"a":\n1}',
    b'{"a":"\xff"}',
    b'{"a":',
    b"[]",
    b"",
)


async def test_arguments_and_values_that_would_change_a_message_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = [
        frames.Stepped(waiting=frames.WaitingFrame([ProgramCall(1, "m", "f", one)], [1], "", b""))
        for one in INJECTIONS
    ]
    ends = [frames.Stepped(finished=Finished(one)) for one in INJECTIONS if one != b"[]"]
    for body in [*waits, *ends]:
        answer = frames.encode(frames.Answer(body))
        script = f"import os; os.write(1, {READY!r}); os.read(0, 10); os.write(1, {answer!r})"
        argv = [sys.executable, "-IS", "-c", script]
        monkeypatch.setattr(helper_pool, "_argv", lambda memory_mb, argv=argv: argv)
        async with opened_engine() as engine:
            step = await start(engine, "1")
            assert isinstance(step, Failed), body
            assert step.kind == "crash", body


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
async def test_helper_and_worker_are_confined(engine: HelperEngine) -> None:
    await start(engine, "1")
    for helper in engine.helpers:
        for pid in (helper.pid, helper.worker):
            assert_confined(pid, has_seccomp="seccomp" in engine.parts)
        assert open_proc(helper.worker, "environ") == ""


def assert_confined(pid: int, *, has_seccomp: bool) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        status = open_proc(pid, f"task/{thread}/status")
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
        assert "Seccomp:\t2" in status or not has_seccomp
    assert "Max file size             0 " in open_proc(pid, "limits")


def open_proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def pid_exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
