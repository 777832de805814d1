"""The engine of programs on the gateway's side: a few helper processes, started when needed and replaced when they end.

Helpers are not trusted: what they send is decoded by type and limited in size, and snapshots are signed, since loading
one that was changed is not safe. A step has no effect outside of the helper, so it is repeated once if a helper dies.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
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
)
from switchboard_mcp.programs.helper import frames
from switchboard_mcp.system import work_thread
from switchboard_mcp.transport.process.launcher import ChildProcess, Launcher, SpawnError

HELPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper", "helper_process.py")
PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MAX_HELPERS = 2
# A second helper that has had nothing to do for this long ends.
IDLE_S = 30.0
# From the start to the first answer: 0.1 s on a quiet machine.
START_TIMEOUT_S = 60.0
# Beyond the limit of a program's own time: loading, dumping and encoding, on a machine that is busy.
GRACE_S = 10.0
CHECK_TIMEOUT_S = 30.0
# Helper and worker have 60 MiB after small programs. Memory that a large one used is given back by a new helper.
RECYCLE_BYTES = 160 * 1024 * 1024
RECYCLE_CHECK_EVERY = 16
TAG_BYTES = 32
READ_BYTES = 256 * 1024
# Code and modules of a program that is checked.
MAX_STUB_BYTES = 8 * 1024 * 1024

Body = TypeVar("Body", frames.Checked, frames.Stepped)


class HelperLostError(Exception):
    """A helper has died, or sent what is no answer."""


class HelperTimeoutError(Exception):
    """A helper did not answer in time."""


class HelperProcess:
    """A running helper: sends a request and waits for its answer, one at a time."""

    def __init__(self, process: ChildProcess, max_frame_bytes: int) -> None:
        self._process = process
        self._max_frame_bytes = max_frame_bytes
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._output = memoryview(b"")
        self._answer: asyncio.Future[frames.Answer] | None = None
        self.is_lost = False
        self.pid = process.pid
        self.worker = 0
        self.parts: list[str] = []
        self.requests = 0
        # The snapshot whose session is open in the helper, by its tag, and the number of that session.
        self.held: tuple[bytes, int] = (b"", 0)
        self._stderr = b""
        for fd in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(fd, False)
        self._loop.add_reader(process.stdout, self._read)
        self._loop.add_reader(process.stderr, self._read_stderr)

    async def ready(self) -> None:
        """Wait for the helper to be confined. Raises `HelperLostError` or `HelperTimeoutError`."""
        body = (await self._wait(START_TIMEOUT_S)).body
        if not isinstance(body, frames.Ready):
            raise HelperLostError("sent no greeting")
        self.parts, self.worker = body.parts, body.worker

    async def request(self, frame: bytes, timeout: float) -> frames.Answer:
        """Send a request and return its answer. Raises `HelperLostError` or `HelperTimeoutError`."""
        if self.is_lost:
            raise HelperLostError(self.last_words())
        self.requests += 1
        self._output = memoryview(frame)
        self._answer = self._loop.create_future()
        self._write()
        return await self._wait(timeout)

    async def _wait(self, timeout: float) -> frames.Answer:
        if self._answer is None:
            self._answer = self._loop.create_future()
            self._deliver()
        answer = self._answer
        deadline = self._loop.call_later(timeout, _expire, answer)
        try:
            return await answer
        finally:
            deadline.cancel()
            self._answer = None

    def _write(self) -> None:
        try:
            while self._output:
                self._output = self._output[os.write(self._process.stdin, self._output) :]
        except BlockingIOError:
            self._loop.add_writer(self._process.stdin, self._write)
            return
        except OSError:
            self._lose()
        self._loop.remove_writer(self._process.stdin)

    def _read(self) -> None:
        try:
            data = os.read(self._process.stdout, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._input += data
        if not data or not self._deliver():
            self._lose()

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._process.stderr, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._stderr = (self._stderr + data)[-4096:]
        if not data:
            self._loop.remove_reader(self._process.stderr)

    def _deliver(self) -> bool:
        """Hand a whole answer to the request that waits. Return False if the helper does not keep to the protocol."""
        if len(self._input) < frames.HEADER_BYTES:
            return True
        size = int.from_bytes(self._input[: frames.HEADER_BYTES], "big")
        if size > self._max_frame_bytes:
            return False
        end = frames.HEADER_BYTES + size
        if len(self._input) < end or self._answer is None:
            return len(self._input) <= end
        body = bytes(memoryview(self._input)[frames.HEADER_BYTES : end])
        del self._input[:end]
        try:
            answer = frames.decode_answer(body)
        except msgspec.MsgspecError:
            return False
        if not self._answer.done():
            self._answer.set_result(answer)
        return not self._input

    def _lose(self) -> None:
        self.is_lost = True
        self._loop.remove_reader(self._process.stdout)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(HelperLostError(self.last_words()))

    def last_words(self) -> str:
        """Return the last line that the helper wrote to its standard error."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "it ended without a word"

    def memory(self) -> int:
        """Return the resident bytes of helper and worker, 0 where they cannot be read."""
        pages = 0
        for pid in (self.pid, self.worker):
            try:
                with open(f"/proc/{pid}/statm", "rb") as file:
                    pages += int(file.read().split()[1])
            except (OSError, IndexError, ValueError):
                return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """End helper and worker, and release their descriptors."""
        self.is_lost = True
        if self._process.stdin < 0:
            return
        self._loop.remove_writer(self._process.stdin)
        self._loop.remove_reader(self._process.stdout)
        self._loop.remove_reader(self._process.stderr)
        for fd in (self._process.stdin, self._process.stdout, self._process.stderr):
            os.close(fd)
        self._process.stdin = -1
        self._process.end()

    async def exited(self) -> None:
        """Wait for the end of helper and worker."""
        await self._process.exited


class HelperEngine:
    """Checks and runs programs in helper processes."""

    def __init__(self, launcher: Launcher, key: bytes, limits: Limits) -> None:
        self._launcher = launcher
        self._key = key
        self._memory_mb = limits.memory_mb
        self._idle: list[HelperProcess] = []
        self._all: set[HelperProcess] = set()
        self._starting = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._trimming: asyncio.TimerHandle | None = None
        self._closed = False

    async def check(self, code: str, modules: Sequence[Module]) -> CheckReport:
        """Check a program against the stubs of its modules. Nothing of it runs."""
        if sum(len(one.stub) for one in modules) > MAX_STUB_BYTES:
            return CheckReport(
                failure=Failed("limit", "The stubs of the program's modules are larger than 8 MiB.")
            )
        parts = [_module(one, stub=True) for one in modules]
        request = frames.CheckRequest(code, parts, BUILTIN_STUBS)
        body, _ = await self._ask(frames.encode(request), frames.Checked, CHECK_TIMEOUT_S)
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
        request = frames.StartRequest(
            code, [_module(one) for one in modules], input, _limits(limits), seed, clock
        )
        return await self._step(frames.encode(request), limits)

    async def resume(
        self, snapshot: bytes, modules: Sequence[Module], settled: Mapping[int, Settled], limits: Limits
    ) -> Step:
        """Run on from a snapshot, with the outcome of at least one pending call."""
        if not await self._is_ours(snapshot):
            return Failed("snapshot", "The snapshot of the program was not written by this workspace.")
        tag = snapshot[:TAG_BYTES]
        outcomes = [
            frames.SettledFrame(number, one.value, one.text, one.raised, one.message)
            for number, one in settled.items()
        ]
        request = frames.ResumeRequest(
            0, snapshot[TAG_BYTES:], [_module(one) for one in modules], outcomes, _limits(limits)
        )
        return await self._step(request, limits, tag)

    async def close(self) -> None:
        """End all processes of the engine."""
        self._closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        while self._waiters:
            _wake(self._waiters.popleft())
        ending = list(self._all)
        self._all.clear()
        self._idle.clear()
        for helper in ending:
            helper.end()
        for helper in ending:
            await helper.exited()

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
        return next((one.parts for one in self._all), [])

    async def confine(self) -> list[str]:
        """Return the mechanisms that confine a helper here. Raises as the start of one does."""
        helper = await self._acquire(b"")
        self._release(helper, usable=True)
        return helper.parts

    @property
    def helpers(self) -> list[HelperProcess]:
        """The helpers that run."""
        return list(self._all)

    # Steps

    async def _step(self, request: bytes | frames.ResumeRequest, limits: Limits, tag: bytes = b"") -> Step:
        body, helper = await self._ask(request, frames.Stepped, limits.seconds + GRACE_S, tag)
        if isinstance(body, Failed):
            return named(body, limits)
        if body.waiting is not None:
            served = helper.requests if helper is not None else 0
            snapshot = await self._sign(body.waiting.snapshot)
            if helper is not None and helper.requests == served:
                helper.held = (snapshot[:TAG_BYTES], body.session)
            return replace(body.waiting, snapshot=snapshot)
        if body.finished is not None:
            return body.finished
        if body.failed is not None:
            return named(body.failed, limits)
        return Failed("crash", "The helper of programs sent no result. Run the program again.")

    async def _ask(
        self, request: bytes | frames.ResumeRequest, kind: type[Body], timeout: float, tag: bytes = b""
    ) -> tuple[Body | Failed, HelperProcess | None]:
        """Return the answer of a helper. A helper that dies is replaced once."""
        reason = ""
        for _ in range(2):
            try:
                helper = await self._acquire(tag)
            except (HelperLostError, HelperTimeoutError, SpawnError, OSError) as problem:
                reason = str(problem) or "it did not start in time"
                continue
            answer: frames.Answer | None = None
            try:
                answer = await helper.request(_frame_for(helper, request, tag), timeout)
            except HelperLostError as problem:
                reason = str(problem)
                continue
            except HelperTimeoutError:
                return Failed("limit", "The program did not answer in time.", limit="seconds"), None
            finally:  # also when the caller is cancelled: the helper is then in the middle of a step
                helper.held = (b"", 0)
                self._release(helper, usable=answer is not None and not answer.retires)
            if answer.retires and _is_crash(answer.body):
                reason = "its interpreter was killed"  # perhaps while it was idle
                continue
            if isinstance(answer.body, kind):
                return answer.body, helper
            reason = "it sent an answer to another request"
        return Failed("crash", f"The helper process of programs has ended: {reason}."), None

    async def _sign(self, snapshot: bytes) -> bytes:
        return await self._tag(snapshot) + snapshot

    async def _is_ours(self, snapshot: bytes) -> bool:
        tag = await self._tag(snapshot[TAG_BYTES:])
        return hmac.compare_digest(tag, snapshot[:TAG_BYTES])

    async def _tag(self, data: bytes) -> bytes:
        if len(data) <= READ_BYTES:
            return hmac.digest(self._key, data, hashlib.sha256)
        return await work_thread.run_alone(lambda: hmac.digest(self._key, data, hashlib.sha256))

    # Helpers

    async def _acquire(self, tag: bytes) -> HelperProcess:
        """Return a helper for one request: the one that holds a session, an idle one, or a new one."""
        while True:
            if self._closed:
                raise OSError("Switchboard is stopping.")
            self._forget_lost()
            if self._idle:
                chosen = next((one for one in self._idle if tag and one.held[0] == tag), self._idle[-1])
                self._idle.remove(chosen)
                return chosen
            if len(self._all) + self._starting < MAX_HELPERS:
                return await self._start()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_next()
                raise

    def _release(self, helper: HelperProcess, *, usable: bool) -> None:
        too_large = usable and helper.requests % RECYCLE_CHECK_EVERY == 0 and helper.memory() > RECYCLE_BYTES
        if usable and not too_large and not helper.is_lost and not self._closed:
            self._idle.append(helper)
            if len(self._idle) > 1 and self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(IDLE_S, self._trim)
        else:
            self._all.discard(helper)
            helper.end()
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _trim(self) -> None:
        """End idle helpers but one."""
        self._trimming = None
        while len(self._idle) > 1:
            helper = self._idle.pop(0)
            self._all.discard(helper)
            helper.end()

    def _forget_lost(self) -> None:
        for helper in [one for one in self._idle if one.is_lost]:
            self._idle.remove(helper)
            self._all.discard(helper)
            helper.end()

    async def _start(self) -> HelperProcess:
        """Start a helper. Raises `SpawnError`, `OSError`, `HelperLostError` or `HelperTimeoutError`."""
        self._starting += 1
        helper: HelperProcess | None = None
        try:
            process = await self._launcher.spawn(_argv(self._memory_mb), {}, "/")
            helper = HelperProcess(process, frames.max_frame_bytes(self._memory_mb))
            await helper.ready()
        except BaseException:
            if helper is not None:
                helper.end()
            self._wake_next()
            raise
        finally:
            self._starting -= 1
        self._all.add(helper)
        if self._closed:
            self._release(helper, usable=False)
            raise OSError("Switchboard is stopping.")
        return helper


def _argv(memory_mb: int) -> list[str]:
    folders = [PACKAGE_ROOT]
    for name in ("msgspec", "pydantic_monty", "typing_extensions"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise OSError(f"The Python package {name} is not installed. Install the extra programs.")
        folder = os.path.dirname(spec.origin)
        folders.append(folder if spec.submodule_search_locations is None else os.path.dirname(folder))
    # -P and -s with -E: like -I, but a helper finds packages where the gateway did.
    return [sys.executable, "-I", "-X", "utf8", HELPER, str(memory_mb), *dict.fromkeys(folders)]


def _frame_for(helper: HelperProcess, request: bytes | frames.ResumeRequest, tag: bytes) -> bytes:
    """Return the frame of a request, without the snapshot if the helper holds its session."""
    if isinstance(request, bytes):
        return request
    if tag and helper.held[0] == tag:
        return frames.encode(msgspec.structs.replace(request, session=helper.held[1], snapshot=b""))
    return frames.encode(request)


def named(failed: Failed, limits: Limits) -> Failed:
    """Return a failure whose text names the setting of the limit that was exceeded, and its value."""
    if failed.limit not in LIMIT_SETTINGS:
        return failed
    setting, value = LIMIT_SETTINGS[failed.limit], getattr(limits, failed.limit)
    return replace(failed, message=f"{failed.message} The setting {setting} is {value:g}.")


def _is_crash(body: frames.Checked | frames.Stepped | frames.Ready) -> bool:
    failed = body.failure if isinstance(body, frames.Checked) else getattr(body, "failed", None)
    return failed is not None and failed.kind == "crash"


def _module(module: Module, *, stub: bool = False) -> frames.ModuleFrame:
    return frames.ModuleFrame(module.name, list(module.functions), module.stub if stub else "")


def _limits(limits: Limits) -> frames.LimitsFrame:
    return frames.LimitsFrame(
        float(limits.seconds), limits.memory_mb, limits.calls, limits.answer_kb, limits.recursion
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
    known = {(one.name, function) for one in modules for function in one.functions}
    return CheckReport(
        diagnostics=body.diagnostics,
        manifest=sorted(known.intersection(analysis.calls)),
        hints=[one.message for one in analysis.hints],
        refusals=[Diagnostic(one.code, one.message, one.line, one.column) for one in analysis.refusals],
        syntax_error=body.syntax_error,
        failure=body.failure,
        analysis=body.analysis,
    )


def _expire(answer: asyncio.Future[frames.Answer]) -> None:
    if not answer.done():
        answer.set_exception(HelperTimeoutError())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
