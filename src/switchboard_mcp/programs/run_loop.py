"""Runs a program: the steps of the engine, its calls within their limits, and the log that makes it durable.

A call that may not be repeated is in the log before it leaves, with all before it, and its result is written at once.
Calls that only read are written later, several together. So a run can be continued after a crash: a call with a result
is not made again, one without is made again only if it may be repeated, and otherwise it raises in the program and is
reported as uncertain.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from switchboard_mcp.programs.engine import (
    LIMIT_SETTINGS,
    Engine,
    Failed,
    Finished,
    Limits,
    Program,
    ProgramCall,
    Settled,
    Step,
    Suspension,
    Waiting,
)
from switchboard_mcp.programs.run_log import (
    EndRecord,
    RecordBuffer,
    RecordedRun,
    ResultRecord,
    RunLog,
    RunLogError,
    RunStore,
    SentRecord,
    SnapshotRecord,
    StartRecord,
    WaitRecord,
    new_run_id,
)
from switchboard_mcp.programs.run_replay import replay

# Calls a subtool for a program: the module, the subtool, and its arguments as a JSON object.
CallSubtool = Callable[[str, str, bytes], Awaitable[Settled]]
# True for a module and a subtool whose call may be made twice: it only reads, or is idempotent.
MayRepeat = Callable[[str, str], bool]
CallOutcome = Literal["open", "ok", "error", "cancelled", "uncertain"]

# Calls that are under way when the program ends are waited for, since they may have effects.
LINGER_S = 5.0
MAX_PRINTED_STEPS = 64
# A program that waits for longer gives its process to others, and its snapshot goes to the log. A dump takes 0.1 ms.
SLOW_S = 0.02
CANCELLED = Settled(raised="RuntimeError", message="The call was cancelled.")


@dataclass(slots=True)
class CallMade:
    """A call that left the program. An uncertain one may have been carried out; it was not repeated."""

    module: str
    function: str
    subtool: str
    ms: float = 0.0
    bytes: int = 0
    outcome: CallOutcome = "open"
    message: str = ""


@dataclass(slots=True)
class Outcome:
    """The result of a run. `value` is JSON; it is empty if the program failed."""

    value: bytes = b""
    printed: str = ""
    calls: list[CallMade] = field(default_factory=list)
    failure: Failed | None = None
    run: str = ""

    @property
    def uncertain(self) -> list[CallMade]:
        """The calls of which it is not known if they were carried out."""
        return [call for call in self.calls if call.outcome == "uncertain"]


OnProgress = Callable[[CallMade], None]


def never_repeat(module: str, subtool: str) -> bool:
    """Allow no call to be repeated."""
    return False


def open_log(
    store: RunStore, program: Program, limits: Limits, version: str, note: dict[str, str] | None = None
) -> RunLog:
    """Create the log of a new run. Raises `OSError`."""
    modules = [replace(module, stub="") for module in program.modules]
    start = StartRecord(
        program.code, modules, program.input, program.seed, program.clock, limits, version, note or {}
    )
    return store.create(new_run_id(), start)


async def run(
    engine: Engine,
    program: Program,
    call: CallSubtool,
    log: RunLog | None,
    limits: Limits,
    on_progress: OnProgress | None = None,
    may_repeat: MayRepeat = never_repeat,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run a program to its end. Cancelling it cancels the calls that are open.

    A run that is cancelled has ended, unless `is_stopping` says that this process stops: then it can be continued.
    """
    task = _Run(engine, program, call, log, limits, on_progress, may_repeat, is_stopping)
    return await task.execute(task.begin)


async def recover(
    engine: Engine,
    recorded: RecordedRun,
    version: str,
    call: CallSubtool,
    log: RunLog,
    on_progress: OnProgress | None = None,
    may_repeat: MayRepeat = never_repeat,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Continue a run from its log, with the limits that it began with."""
    start = recorded.start
    program = Program(start.code, start.modules, start.input, start.seed, start.clock)
    task = _Run(engine, program, call, log, start.limits, on_progress, may_repeat, is_stopping)
    return await task.execute(lambda: task.restore(recorded, version))


class _Run:
    """One run in this process."""

    def __init__(
        self,
        engine: Engine,
        program: Program,
        call: CallSubtool,
        log: RunLog | None,
        limits: Limits,
        on_progress: OnProgress | None,
        may_repeat: MayRepeat,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._program = program
        self._call = call
        self._log = log
        self._limits = limits
        self._on_progress = on_progress
        self._may_repeat = may_repeat
        self._is_stopping = is_stopping
        self._functions = {module.name: module.functions for module in program.modules}
        self._made: dict[int, CallMade] = {}
        self._queue: deque[ProgramCall] = deque()
        self._tasks: dict[asyncio.Task[Settled], int] = {}
        self._done: dict[int, Settled] = {}  # outcomes that the program has not seen
        self._began: dict[int, float] = {}
        self._recorded: RecordedRun | None = None  # until a run that is continued has made its first step
        self._records = RecordBuffer(log)
        self._snapshotting: asyncio.Task[None] | None = None
        self._bytes = 0
        self._printed: deque[str] = deque(maxlen=MAX_PRINTED_STEPS)

    async def execute(self, begin: Callable[[], Awaitable[Step]]) -> Outcome:
        """Run from the first step to the end, and write the end to the log."""
        try:
            step = await self._finish(await begin())
            await self._linger()
            outcome = self._outcome(step)
            self._records.write(EndRecord(outcome.value, outcome.printed, outcome.failure))
            return outcome
        except BaseException:
            await self._cancel_calls()
            self._write_cancelled()
            raise
        finally:
            if self._log is not None:
                self._log.close()

    async def begin(self) -> Step:
        """Run to the first step."""
        program = self._program
        step = await self._engine.start(
            program.code, program.modules, program.input, self._limits, program.seed, program.clock
        )
        return self._take(step, [])

    # A run that is continued

    async def restore(self, recorded: RecordedRun, version: str) -> Step:
        """Return the last wait of a run, from its snapshot or by a replay. The calls that may be made are queued."""
        self._recorded = recorded
        for wait in recorded.waits:
            for call in wait.calls:
                self._register(call)
            self._printed.append(wait.printed)
        for result in recorded.results.values():
            self._restore_result(result)
        if not recorded.waits:
            return await self.begin()
        step = await self._last_wait(recorded, version)
        if not isinstance(step, Waiting):
            return step
        for call in (call for wait in recorded.waits for call in wait.calls):
            if call.id in recorded.results:
                if call.id in step.pending:
                    self._done[call.id] = recorded.results[call.id].settled
            elif call.id in recorded.sent and not self._is_repeatable(call):
                self._settle_uncertain(call)
            else:
                self._queue.append(call)
        return step

    async def _last_wait(self, recorded: RecordedRun, version: str) -> Step:
        last = recorded.waits[-1]
        if last.snapshot and version == recorded.start.version:
            return Waiting(Suspension(last.snapshot), (), last.pending)
        return await replay(self._engine, self._program, self._limits, recorded)

    def _restore_result(self, result: ResultRecord) -> None:
        call_made = self._made.get(result.id)
        if call_made is not None:
            call_made.ms, call_made.bytes = result.ms, _size(result.settled)
            call_made.outcome, call_made.message = cast("CallOutcome", result.outcome), result.settled.message
            self._bytes += call_made.bytes

    def _settle_uncertain(self, call: ProgramCall) -> None:
        message = (
            f"{call.module}.{call.function}: Switchboard was restarted during the call. It may have been carried out, "
            "and was not repeated."
        )
        self._record(call.id, Settled(raised="RuntimeError", message=message), 0.0, "uncertain")

    # Steps

    async def _finish(self, step: Step) -> Step:
        """Make calls and run on until the program ends."""
        loop = asyncio.get_running_loop()
        while isinstance(step, Waiting):
            slow = loop.call_later(SLOW_S, self._start_snapshot, step.suspension)
            try:
                await self._send()
                while not self._done:
                    await self._wait_for_a_call()
                await self._send()
            finally:
                slow.cancel()
            if self._snapshotting is not None:
                await self._snapshotting
                self._snapshotting = None
            if self._bytes > self._limits.memory_mb * 1024 * 1024:
                return self._exceeded(
                    "memory_mb", "The results of the program's calls are too large together."
                )
            settled, self._done = self._done, {}
            step = self._take(await self._resume(step, settled), list(settled))
        return step

    def _start_snapshot(self, suspension: Suspension) -> None:
        self._snapshotting = asyncio.ensure_future(self._take_snapshot(suspension))

    async def _take_snapshot(self, suspension: Suspension) -> None:
        await self._engine.take_snapshot(suspension)
        fits = self._log is not None and self._log.has_room(suspension.snapshot)
        self._records.write(*[SnapshotRecord(suspension.snapshot)] if fits else [])

    async def _resume(self, step: Waiting, settled: dict[int, Settled]) -> Step:
        resume, modules, calls_made = self._engine.resume, self._program.modules, len(self._made)
        following = await resume(step.suspension, modules, settled, self._limits, calls_made)
        if isinstance(following, Failed) and following.kind in ("lost", "snapshot"):
            again = await self._replay_last(following)
            if not isinstance(again, Waiting):
                return again
            following = await resume(again.suspension, modules, settled, self._limits, calls_made)
        self._recorded = None
        return following

    async def _replay_last(self, failed: Failed) -> Step:
        """Return to the last wait from the results of the run; return the failure if they are not recorded."""
        if self._recorded is not None:
            return await replay(self._engine, self._program, self._limits, self._recorded)
        if self._log is None:
            return failed
        self._records.write()
        try:
            recorded = await self._log.read()
            return await replay(self._engine, self._program, self._limits, recorded)
        except (OSError, RunLogError):
            return failed

    def _take(self, step: Step, settled: list[int]) -> Step:
        """Take what a step has made: calls to queue, printed text, and its record."""
        self._printed.append(step.printed[-self._limits.answer_kb * 1024 :])
        if isinstance(step, Waiting):
            for call in step.calls:
                if self._subtool(call) == "":
                    return Failed("crash", f"The helper of programs asked for {call.module}.{call.function}.")
                if call.id in self._made:
                    return Failed("crash", "The helper of programs made a call twice. Run the program again.")
                self._register(call)
                self._queue.append(call)
            if not (self._queue or self._tasks or self._done):
                return Failed("crash", "The helper of programs waits for no call. Run the program again.")
            if len(self._made) > self._limits.calls:  # the helper is not trusted
                return self._exceeded("calls", "The program makes too many calls.")
            self._records.add(WaitRecord(settled, step.calls, step.pending, step.printed))
        elif isinstance(step, Finished):
            for call in step.calls:
                self._register(call)
        elif step.limit == "calls":  # the engine knows how many were left
            exceeded = self._exceeded("calls", "The program makes too many calls.")
            return replace(exceeded, line=step.line, traceback=step.traceback)
        return step

    def _subtool(self, call: ProgramCall) -> str:
        """Return the subtool of a call, empty if it is not in the manifest: the helper is not trusted."""
        return self._functions.get(call.module, {}).get(call.function, "")

    def _register(self, call: ProgramCall) -> None:
        self._made[call.id] = CallMade(call.module, call.function, self._subtool(call))

    # Calls

    async def _send(self) -> None:
        """Start calls from the queue, as many as may be under way at once. They are in the log before they leave."""
        room = self._limits.at_once - len(self._tasks)
        leaving = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        if leaving:
            self._records.add(SentRecord([call.id for call in leaving]))
            if not all(map(self._is_repeatable, leaving)):
                self._records.write()
                if self._log is not None:
                    await self._log.sync()
        if len(leaving) == 1 and not self._tasks and not self._done:
            await self._call_here(leaving[0])
            return
        for call in leaving:
            self._began[call.id] = time.monotonic()
            task = asyncio.ensure_future(self._call(call.module, self._subtool(call), call.arguments))
            self._tasks[task] = call.id

    def _is_repeatable(self, call: ProgramCall) -> bool:
        return self._may_repeat(call.module, self._subtool(call))

    async def _call_here(self, call: ProgramCall) -> None:
        """Make the only call that is open. A task of its own would cost three turns of the event loop."""
        began = time.monotonic()
        outcome: CallOutcome
        try:
            settled = await self._call(call.module, self._subtool(call), call.arguments)
            outcome = "error" if settled.raised else "ok"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._made[call.id].outcome = "cancelled"
                raise
            settled, outcome = CANCELLED, "cancelled"
        self._record(call.id, settled, (time.monotonic() - began) * 1000, outcome)

    async def _wait_for_a_call(self) -> None:
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        self._collect()

    def _collect(self) -> None:
        """Record the outcome of every call that has ended."""
        for task in [running for running in self._tasks if running.done()]:
            number = self._tasks.pop(task)
            ms = (time.monotonic() - self._began.pop(number)) * 1000
            if task.cancelled():
                self._record(number, CANCELLED, ms, "cancelled")
                continue
            problem = task.exception()
            if problem is not None:
                raise problem
            settled = task.result()
            self._record(number, settled, ms, "error" if settled.raised else "ok")

    def _record(self, number: int, settled: Settled, ms: float, outcome: CallOutcome) -> None:
        call_made = self._made[number]
        call_made.ms, call_made.bytes, call_made.outcome, call_made.message = (
            ms,
            _size(settled),
            outcome,
            settled.message,
        )
        self._bytes += call_made.bytes
        self._done[number] = settled
        self._records.add(ResultRecord(number, settled, ms, outcome))
        if self._records.is_due or not self._may_repeat(call_made.module, call_made.subtool):
            self._records.write()
        if self._on_progress is not None:
            self._on_progress(call_made)

    async def _linger(self) -> None:
        """Wait for the calls that are under way when the program has ended, then cancel them."""
        self._queue.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LINGER_S)
            self._collect()
        await self._cancel_calls()

    async def _cancel_calls(self) -> None:
        if self._snapshotting is not None:
            self._snapshotting.cancel()
            await asyncio.gather(self._snapshotting, return_exceptions=True)
            self._snapshotting = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for number in self._tasks.values():
            self._made[number].outcome = "cancelled"
        self._tasks.clear()

    # The end

    def _outcome(self, step: Step) -> Outcome:
        for call_made in self._made.values():
            if call_made.outcome == "open":
                call_made.outcome, call_made.message = (
                    "cancelled",
                    "The program ended before the call was sent.",
                )
        outcome = Outcome(printed=self._text(), calls=list(self._made.values()))
        outcome.run = self._log.run if self._log is not None else ""
        if isinstance(step, Finished):
            outcome.value = step.value
        elif isinstance(step, Failed):
            outcome.failure = step
        return outcome

    def _text(self) -> str:
        return "".join(self._printed)[-self._limits.answer_kb * 1024 :]

    def _exceeded(self, limit: str, message: str) -> Failed:
        value = getattr(self._limits, limit)
        return Failed("limit", f"{message} The setting {LIMIT_SETTINGS[limit]} is {value:g}.", limit=limit)

    def _write_cancelled(self) -> None:
        with suppress(OSError):  # the log itself may be what failed
            if self._is_stopping():
                self._records.write()
            else:
                self._records.write(EndRecord(b"", self._text(), None, cancelled=True))


def _size(settled: Settled) -> int:
    return len(settled.value) + len(settled.text or "")
