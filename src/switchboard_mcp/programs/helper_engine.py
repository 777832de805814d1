"""The engine of programs on the gateway's side: checks and steps of programs, carried out by helper processes.

A step has no effect outside of the helper. So it is repeated once if a helper dies, from the snapshot of the program;
without one the program is lost, and whoever runs it begins again with the results that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import TypeVar

import msgspec

from switchboard_mcp.programs.checking.stubs import BUILTIN_STUBS
from switchboard_mcp.programs.engine import (
    LIMIT_SETTINGS,
    CheckReport,
    Diagnostic,
    Failed,
    Limits,
    Module,
    Settled,
    Step,
    Suspension,
    Waiting,
)
from switchboard_mcp.programs.helper import frames
from switchboard_mcp.programs.helper_client import HelperLostError, HelperProcess, HelperTimeoutError
from switchboard_mcp.programs.helper_pool import HelperPool
from switchboard_mcp.transport.process.launcher import Launcher, SpawnError

# Beyond the limit of a program's own time: loading, dumping and encoding, on a machine that is busy.
GRACE_S = 10.0
CHECK_TIMEOUT_S = 30.0
# Code and modules of a program that is checked.
MAX_STUB_BYTES = 8 * 1024 * 1024
LOST = "The helper process that held the program has ended"

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_value = msgspec.json.Decoder(msgspec.Raw).decode

Body = TypeVar("Body", frames.Checked, frames.Stepped)
StepRequest = frames.StartRequest | frames.ResumeRequest


class HelperEngine:
    """Checks and runs programs in helper processes."""

    def __init__(self, launcher: Launcher, limits: Limits) -> None:
        self._pool = HelperPool(launcher, limits.memory_mb)

    async def check(self, code: str, modules: Sequence[Module]) -> CheckReport:
        """Check a program against the stubs of its modules. Nothing of it runs."""
        if sum(len(module.stub) for module in modules) > MAX_STUB_BYTES:
            return CheckReport(
                failure=Failed("limit", "The stubs of the program's modules are larger than 8 MiB.")
            )
        parts = [_module(module, stub=True) for module in modules]
        request = frames.CheckRequest(code, parts, BUILTIN_STUBS)
        body, _ = await self._ask(request, frames.Checked, CHECK_TIMEOUT_S)
        if isinstance(body, Failed):
            return CheckReport(failure=body)
        if body.failure is not None:
            return CheckReport(failure=body.failure)
        try:
            return _report(body, modules)
        except msgspec.ValidationError:
            return CheckReport(
                failure=Failed("crash", "The helper of programs sent no analysis. Check it again.")
            )

    async def start(
        self,
        code: str,
        modules: Sequence[Module],
        input: bytes,
        limits: Limits,
        seed: int,
        clock: float,
    ) -> Step:
        """Run a program to its first step. `input` is a JSON value, or empty if there is none."""
        if len(code) > limits.code_kb * 1024:
            return named(Failed("limit", "The program is too long.", limit="code_kb"), limits)
        parts = [_module(module) for module in modules]
        return await self._step(
            frames.StartRequest(code, parts, input, _limits(limits), seed, clock), limits, None
        )

    async def resume(
        self,
        suspension: Suspension,
        modules: Sequence[Module],
        settled: Mapping[int, Settled],
        limits: Limits,
        calls_made: int = 0,
    ) -> Step:
        """Resume with the outcome of at least one pending call; `calls_made` is the number of all calls so far."""
        outcomes = [
            frames.SettledFrame(number, call.value, call.text, call.raised, call.message)
            for number, call in settled.items()
        ]
        parts = [_module(module) for module in modules]
        request = frames.ResumeRequest(b"", parts, outcomes, _limits(limits, calls_made))
        return await self._step(request, limits, suspension)

    async def take_snapshot(self, suspension: Suspension) -> None:
        """Take the snapshot of a program that waits; its process is then free. Without success it has none."""
        await self._pool.take_snapshot(suspension)

    async def close(self) -> None:
        """End all processes of the engine."""
        await self._pool.close()

    @property
    def version(self) -> str:
        """The version of the interpreter, which snapshots depend on; empty if it is not installed."""
        try:
            return metadata.version("pydantic-monty")
        except metadata.PackageNotFoundError:
            return ""

    @property
    def parts(self) -> list[str]:
        """The mechanisms that confine the helpers, as far as one was started."""
        return next((helper.parts for helper in self._pool.helpers), [])

    async def confine(self) -> list[str]:
        """Return the mechanisms that confine a helper here. Raises as the start of one does."""
        helper = await self._pool.acquire()
        self._pool.release(helper, usable=True)
        return helper.parts

    @property
    def helpers(self) -> list[HelperProcess]:
        """The helpers that run."""
        return self._pool.helpers

    async def _step(self, request: StepRequest, limits: Limits, suspension: Suspension | None) -> Step:
        body, helper = await self._ask(request, frames.Stepped, limits.seconds + GRACE_S, suspension)
        if isinstance(body, Failed):
            return named(body, limits)
        if not _is_sound(body):
            return Failed("crash", "The helper of programs sent invalid JSON. Run the program again.")
        if body.waiting is not None:
            following = Suspension(body.waiting.snapshot)
            if helper is not None:
                helper.held = following
            return Waiting(following, body.waiting.calls, body.waiting.pending, body.waiting.printed)
        if body.finished is not None:
            return body.finished
        if body.failed is not None:
            return named(body.failed, limits)
        return Failed("crash", "The helper of programs sent no result. Run the program again.")

    async def _ask(
        self,
        request: frames.CheckRequest | StepRequest,
        kind: type[Body],
        timeout: float,
        suspension: Suspension | None = None,
    ) -> tuple[Body | Failed, HelperProcess | None]:
        """Return the answer of a helper, and the helper. One that dies is replaced once."""
        reason = ""
        for _ in range(2):
            try:
                helper = await self._pool.acquire(suspension)
            except (HelperLostError, HelperTimeoutError, SpawnError, OSError) as problem:
                reason = str(problem) or "it did not start in time"
                continue
            holds, helper.held = suspension is not None and helper.held is suspension, None
            if suspension is not None and not holds and not suspension.snapshot:
                self._pool.release(helper, usable=True)
                why = f" before its snapshot was taken: {reason}" if reason else ""
                return suspension.failure or Failed("lost", f"{LOST}{why}."), None
            answer: frames.Answer | None = None
            try:
                frame = self._frame(request, suspension, holds=holds)
                answer = await helper.request(frame, timeout)
            except HelperLostError as problem:
                reason = str(problem)
                continue
            except HelperTimeoutError:
                return Failed("limit", "The program did not answer in time.", limit="seconds"), None
            finally:  # also when the caller is cancelled: the helper is then in the middle of a step
                self._pool.release(helper, usable=answer is not None and not answer.retires)
            if answer.retires and _is_crash(answer.body):
                reason = "its interpreter was killed"  # perhaps while it was idle
                continue
            if isinstance(answer.body, kind):
                return answer.body, helper
            reason = "it sent an answer to another request"
        return Failed("crash", f"The helper process of programs has ended: {reason}."), None

    def _frame(
        self, request: frames.CheckRequest | StepRequest, suspension: Suspension | None, *, holds: bool
    ) -> bytes:
        """Return the frame of a request: with the snapshot if the helper does not hold the program."""
        if isinstance(request, frames.CheckRequest):
            return frames.encode(request)
        # If others wait for a helper, the program is displaced next: then its snapshot comes with the answer.
        dump = self._pool.is_contended
        if suspension is not None and not holds:
            return frames.encode(msgspec.structs.replace(request, snapshot=suspension.snapshot, dump=dump))
        return frames.encode(msgspec.structs.replace(request, dump=True) if dump else request)


def _is_sound(step: frames.Stepped) -> bool:
    """Return True if arguments and values are JSON in one line: they become parts of messages as they are."""
    calls = step.waiting.calls if step.waiting is not None else []
    calls += step.finished.calls if step.finished is not None else []
    value = step.finished.value if step.finished is not None else b"0"
    try:
        for call in calls:
            _decode_object(call.arguments)
            call.arguments.decode()
        _decode_value(value)
        value.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return not any(b"\n" in text or b"\r" in text for text in (value, *(call.arguments for call in calls)))


def named(failed: Failed, limits: Limits) -> Failed:
    """Return a failure whose text names the setting of the limit that was exceeded, and its value."""
    if failed.limit not in LIMIT_SETTINGS:
        return failed
    setting, value = LIMIT_SETTINGS[failed.limit], getattr(limits, failed.limit)
    return replace(failed, message=f"{failed.message} The setting {setting} is {value:g}.")


def _is_crash(body: frames.Checked | frames.Stepped | frames.Dumped | frames.Ready) -> bool:
    failed = body.failure if isinstance(body, frames.Checked) else getattr(body, "failed", None)
    return failed is not None and failed.kind == "crash"


def _module(module: Module, *, stub: bool = False) -> frames.ModuleFrame:
    return frames.ModuleFrame(module.name, list(module.functions), module.stub if stub else "")


def _limits(limits: Limits, calls_made: int = 0) -> frames.LimitsFrame:
    """Return the limits for the rest of a program that has made some calls."""
    left = max(0, limits.calls - calls_made)
    return frames.LimitsFrame(
        float(limits.seconds), limits.memory_mb, left, limits.answer_kb, limits.recursion
    )


class _Finding(msgspec.Struct):
    code: str
    message: str
    line: int
    column: int


class _Analysis(msgspec.Struct):
    calls: list[tuple[str, str]]
    refusals: list[_Finding]
    hints: list[_Finding]


def _report(body: frames.Checked, modules: Sequence[Module]) -> CheckReport:
    """Return the report of a check. Raises `msgspec.ValidationError` if its analysis has another shape."""
    analysis = msgspec.convert(body.analysis, _Analysis)
    functions = {(module.name, function) for module in modules for function in module.functions}
    return CheckReport(
        diagnostics=body.diagnostics,
        manifest=sorted(functions.intersection(analysis.calls)),
        hints=[finding.message for finding in analysis.hints],
        refusals=[
            Diagnostic(finding.code, finding.message, finding.line, finding.column)
            for finding in analysis.refusals
        ],
        syntax_error=body.syntax_error,
        failure=body.failure,
        analysis=body.analysis,
    )
