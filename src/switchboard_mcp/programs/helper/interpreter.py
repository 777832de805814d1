"""Checks and runs programs with Monty, inside the helper process.

The synchronous snapshot API is used throughout: the asynchronous one aborts the interpreter at exit. The session of a
program that waits stays open until the next operation, which spares a dump and a load if that resumes it.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from typing import Any

import pydantic_monty as monty

from switchboard_mcp.programs.checking import manifest
from switchboard_mcp.programs.engine import Diagnostic, Failed, Finished, ProgramCall
from switchboard_mcp.programs.helper import json_values
from switchboard_mcp.programs.helper.frames import (
    Checked,
    CheckRequest,
    Dumped,
    LimitsFrame,
    ModuleFrame,
    ResumeRequest,
    SettledFrame,
    StartRequest,
    Stepped,
    WaitingFrame,
    max_snapshot_bytes,
)

# Imported in front of a program that is checked: the checker has accepted it when the program asks for this module.
CHECKED_MODULE = "switchboard_checked"
CHECK_SECONDS = 10.0
CHECK_MEMORY = 64 * 1024 * 1024
# Arguments of one call. Larger ones belong into a file or a handle.
MAX_ARGUMENT_BYTES = 1024 * 1024
# The value of a program. The host gets the beginning of a value that is larger than its limit.
MAX_VALUE_BYTES = 4 * 1024 * 1024
# The pool counts these per session, as a second line behind the limit of calls.
MAX_SUSPENSIONS = 100_000
MAX_MESSAGE_CHARS = 2000
MAX_TRACEBACK_CHARS = 8000
MAX_DIAGNOSTICS = 100
_TIME, _RECURSION = "feed time limit exceeded", "maximum recursion depth exceeded"


class WorkerLostError(Exception):
    """The worker has died, and this helper cannot start another."""


class SnapshotRefusedError(Exception):
    """The interpreter does not load a snapshot, as one of another version."""


class SnapshotSizeError(Exception):
    """A program that waits is too large to be kept."""


class CallLimitError(Exception):
    """The program made more calls than it may."""


class NotHeldError(Exception):
    """The program that the gateway wants to go on with is not held here."""


PROGRAM_ERRORS = (
    monty.MontyError, ValueError, RuntimeError, MemoryError, CallLimitError, SnapshotRefusedError, SnapshotSizeError,
    NotHeldError,
)  # fmt: skip


def _never(*args: object, **kwargs: object) -> object:
    raise RuntimeError


class Printed:
    """Keeps the end of what a program prints."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[str] = []
        self._size = 0

    def __call__(self, stream: str, text: str) -> None:
        """Take text from the interpreter. Never raises: that would end the session only at the end of a turn."""
        self._pieces.append(text[-self._most :])
        self._size += len(self._pieces[-1])
        if self._size > 4 * self._most:
            self._pieces = [self.text()]
            self._size = len(self._pieces[0])

    def restart(self) -> None:
        """Forget what was printed: it belongs to a step that has ended."""
        self._pieces, self._size = [], 0

    def text(self) -> str:
        """Return the end of the text."""
        return "".join(self._pieces)[-self._most :]


class Interpreter:
    """One worker of Monty, and the session that it holds."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._session: Any = None
        self._snapshot: Any = None
        self._printed: Printed | None = None
        self._memory_mb = 0
        self._pending: list[int] = []  # of the snapshot
        # The failure of work that was done after an answer; it is the answer to the next request.
        self._failed: Failed | None = None

    # Checks

    def check(self, request: CheckRequest) -> Checked:
        """Check a program. Nothing of it runs."""
        self._drop()
        analysis = manifest.analyse(
            request.code, {module.name: module.functions for module in request.modules}
        )
        for refusal in analysis["refusals"]:
            if refusal["code"] == "invalid-syntax":
                return Checked(analysis=analysis, syntax_error=_refusal(refusal))
        modules = {module.name: monty.ExternalModule({}, stubs=module.stub) for module in request.modules}
        modules[CHECKED_MODULE] = monty.ExternalModule({}, stubs="done: int\n")
        try:
            with self._pool.checkout(
                external_modules=modules,
                type_check=True,
                type_check_format="json",
                type_check_stubs=request.builtins,
                limits={"max_feed_duration_secs": CHECK_SECONDS, "max_memory": CHECK_MEMORY},
            ) as session:
                snapshot = session.feed_start(f"import {CHECKED_MODULE}\n{request.code}")
                while getattr(snapshot, "function_name", None) == "import_stubs":
                    snapshot = snapshot.resume_auto()
                return Checked(analysis=analysis)
        except monty.MontyTypingError as problem:
            diagnostics = _diagnostics(str(problem))
            syntax = next((error for error in diagnostics if error.code == "invalid-syntax"), None)
            return Checked(analysis=analysis, diagnostics=diagnostics, syntax_error=syntax)
        except monty.MontySyntaxError as problem:
            line, column = _position(problem)
            text = str(problem)[:MAX_MESSAGE_CHARS]
            diagnostic = Diagnostic("invalid-syntax", text, max(1, line - 1), column)
            return Checked(analysis=analysis, syntax_error=diagnostic)
        except monty.MontyCrashedError as problem:
            raise WorkerLostError(_lost(problem)) from problem
        except (monty.MontyError, ValueError, RuntimeError) as problem:
            _raise_if_lost(problem)
            failed = _failed(problem, "")
            return Checked(analysis=analysis, failure=_moved_up(failed))

    # Runs

    def start(self, request: StartRequest) -> Stepped:
        """Run a program to its first step."""
        self._drop()
        limits = request.limits
        self._printed = Printed(limits.answer_kb * 1024)
        try:
            value = json_values.decode(request.input) if request.input else None
        except ValueError as problem:
            return Stepped(failed=Failed("value", f"The input of the program is not usable: {problem}."))
        clock = datetime.datetime.fromtimestamp(request.clock, datetime.UTC)
        session = self._pool.checkout(
            script_name="program",
            external_modules=_modules(request.modules),
            limits={
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory_mb * 1024 * 1024,
                "max_recursion_depth": limits.recursion,
                "max_suspensions": MAX_SUSPENSIONS,
            },
            os_policy={"sleep": "zero", "datetime": clock, "random_start": {"seed": request.seed}},
        )
        begin = lambda: self._open(session).feed_start(  # noqa: E731 -- runs where its failures are handled
            request.code, inputs={"input": value}, print_callback=self._printed
        )
        return self._run(begin, request.modules, limits, dump=request.dump)

    def resume(self, request: ResumeRequest) -> Stepped:
        """Run on from a snapshot, or from the session that is open."""
        failed, self._failed = self._failed, None
        if failed is not None and not request.snapshot:
            return Stepped(failed=failed)
        if request.snapshot:
            self._drop()
            self._printed = Printed(request.limits.answer_kb * 1024)
            session = self._pool.checkout(external_modules=_modules(request.modules))
            begin = lambda: self._load(session, request)  # noqa: E731
        else:
            assert self._printed is not None
            self._printed.restart()
            begin = lambda: self._settle(request.settled)  # noqa: E731
        return self._run(begin, request.modules, request.limits, dump=request.dump)

    def dump(self) -> Dumped:
        """Return the snapshot of the program that is held, and let go of it."""
        failed, self._failed = self._failed, None
        if failed is not None:
            return Dumped(failed=failed)
        try:
            return Dumped(self._dump())
        except monty.MontyCrashedError as problem:
            raise WorkerLostError(_lost(problem)) from problem
        except PROGRAM_ERRORS as problem:
            _raise_if_lost(problem)
            return Dumped(failed=_failed(problem, ""))
        finally:
            self._drop()

    def work_after_answer(self) -> None:
        """Let a call that was announced early become one that is awaited, while the gateway makes it."""
        if not isinstance(self._snapshot, monty.FunctionSnapshot):
            return
        try:
            self._snapshot = self._snapshot.resume({"future": ...})
        except monty.MontyCrashedError:  # the next operation finds out
            self._drop()
        except PROGRAM_ERRORS as problem:
            self._failed = _failed(problem, "")
            self._drop()

    def _dump(self) -> bytes:
        if self._snapshot is None:
            raise NotHeldError
        dump: bytes = self._snapshot.dump()
        if len(dump) > max_snapshot_bytes(self._memory_mb):
            raise SnapshotSizeError
        return dump

    def _settle(self, settled: Iterable[SettledFrame]) -> Any:
        if self._snapshot is None:
            raise NotHeldError
        return self._resume(self._snapshot, settled)

    def _load(self, session: Any, request: ResumeRequest) -> Any:
        opened = self._open(session)
        try:
            snapshot = opened.load_snapshot(request.snapshot, print_callback=self._printed)
        except monty.MontyCrashedError:
            raise
        except (monty.MontyError, ValueError, RuntimeError) as problem:
            raise SnapshotRefusedError(str(problem)) from problem
        return self._resume(snapshot, request.settled)

    def _run(
        self, begin: Callable[[], Any], modules: list[ModuleFrame], limits: LimitsFrame, *, dump: bool
    ) -> Stepped:
        """Run to the end of a step, and turn each failure into a value."""
        assert self._printed is not None
        printed = self._printed
        calls: list[ProgramCall] = []
        self._memory_mb = limits.memory_mb
        try:
            self._snapshot = snapshot = self._drive(begin(), modules, limits, calls, early=not dump)
            if isinstance(snapshot, monty.MontyComplete):
                budget = max(MAX_VALUE_BYTES, limits.answer_kb * 1024)
                value = json_values.encode(snapshot.output, budget, lenient=True)
                finished = Finished(value, printed.text(), calls)
                self._drop()
                return Stepped(finished=finished)
            data = self._dump() if dump else b""
        except monty.MontyCrashedError as problem:
            raise WorkerLostError(_lost(problem)) from problem
        except PROGRAM_ERRORS as problem:
            _raise_if_lost(problem)
            self._drop()
            return Stepped(failed=_failed(problem, printed.text()))
        is_early = isinstance(snapshot, monty.FunctionSnapshot)
        self._pending = [calls[0].id] if is_early else sorted(snapshot.pending_call_ids)
        return Stepped(waiting=WaitingFrame(calls, self._pending, printed.text(), data))

    def _drive(
        self,
        snapshot: Any,
        modules: list[ModuleFrame],
        limits: LimitsFrame,
        calls: list[ProgramCall],
        *,
        early: bool,
    ) -> Any:
        """Answer what the program asks for, up to its end or to a wait.

        With `early`, a call is also an end if it is awaited at once and is the only one that is open: the interpreter
        has nothing else to do then, and becomes a program that waits in `work_after_answer`.
        """
        functions = {f"{module.name}.{function}" for module in modules for function in module.functions}
        while True:
            if isinstance(snapshot, (monty.MontyComplete, monty.FutureSnapshot)):
                return snapshot
            if isinstance(snapshot, monty.NameLookupSnapshot):
                snapshot = snapshot.resume()
            elif snapshot.is_os_function:
                ours = snapshot.function_name == "import"
                snapshot = snapshot.resume_auto() if ours else snapshot.resume_not_handled()
            elif snapshot.function_name in functions:
                answer = _announce(snapshot, limits, calls)
                if early and len(calls) == 1 and "future" in answer and self._awaits_only(snapshot):
                    return snapshot
                snapshot = snapshot.resume(answer)
            else:
                text = f"name '{snapshot.function_name}' is not defined"
                snapshot = snapshot.resume({"exc_type": "NameError", "message": text})

    def _awaits_only(self, snapshot: Any) -> bool:
        return snapshot.allow_eager_await and not self._pending

    def _resume(self, snapshot: Any, settled: Iterable[SettledFrame]) -> Any:
        if not isinstance(snapshot, monty.FutureSnapshot):
            raise ValueError("the snapshot does not wait for calls")
        pending = set(snapshot.pending_call_ids)
        outcomes: dict[int, Any] = {call.id: _outcome(call) for call in settled if call.id in pending}
        if not outcomes:
            raise ValueError("none of the calls is pending")
        self._pending = sorted(pending.difference(outcomes))
        return snapshot.resume(outcomes)

    # The session

    def _open(self, session: Any) -> Any:
        self._session = session
        return session.__enter__()

    def _drop(self) -> None:
        """Leave the session. The worker is then free."""
        session, self._session, self._snapshot = self._session, None, None
        self._pending = []
        if session is not None:
            try:
                session.__exit__(None, None, None)
            except monty.MontyError:  # the worker has died; the next operation finds out
                pass


def _modules(modules: Iterable[ModuleFrame]) -> dict[str, Any]:
    """Return modules with the functions of the manifest only."""
    return {module.name: monty.ExternalModule(dict.fromkeys(module.functions, _never)) for module in modules}


def _announce(snapshot: Any, limits: LimitsFrame, calls: list[ProgramCall]) -> dict[str, Any]:
    """Add a call of the program, and return the answer: a future, or the exception for arguments that are unfit."""
    module, _, function = snapshot.function_name.partition(".")
    if snapshot.args:
        return _exception("TypeError", f"{snapshot.function_name}() takes keyword arguments only")
    try:
        arguments = json_values.encode(snapshot.kwargs, MAX_ARGUMENT_BYTES)
    except json_values.UnfitValueError as problem:
        return _exception("TypeError", f"{snapshot.function_name}(): an argument {problem}")
    except json_values.TooLargeError:
        return _exception(
            "ValueError", f"{snapshot.function_name}(): the arguments are larger than 1 MiB as JSON"
        )
    if len(calls) >= limits.calls:
        raise CallLimitError
    calls.append(ProgramCall(snapshot.call_id, module, function, arguments))
    return {"future": ...}


def _exception(kind: str, message: str) -> dict[str, Any]:
    return {"exc_type": kind, "message": message}


def _outcome(settled: SettledFrame) -> dict[str, Any]:
    if settled.raised is not None:
        return _exception(settled.raised, settled.message)
    if settled.text is not None:
        return {"return_value": settled.text}
    try:
        return {"return_value": json_values.decode(settled.value)}
    except ValueError as problem:
        return _exception("ValueError", f"the result is not usable: {problem}")


# Failures


def _failed(problem: BaseException, printed: str) -> Failed:
    """Return the failure for an exception of a program, or of its value."""
    if isinstance(problem, json_values.TooLargeError):
        return Failed("limit", "The value of the program is too large.", printed=printed, limit="answer_kb")
    if isinstance(problem, json_values.UnfitValueError):
        return Failed("value", f"The value of the program {problem}.", printed=printed)
    if isinstance(problem, CallLimitError):
        return Failed("limit", "The program makes too many calls.", printed=printed, limit="calls")
    if isinstance(problem, NotHeldError):
        return Failed("lost", "The helper process does not hold the program.")
    if isinstance(problem, SnapshotSizeError):
        return Failed(
            "limit", "The program holds too much while it waits.", printed=printed, limit="memory_mb"
        )
    text = str(problem)[:MAX_MESSAGE_CHARS]
    if isinstance(problem, SnapshotRefusedError):
        return Failed("snapshot", f"The snapshot of the program cannot be loaded: {text}.")
    if isinstance(problem, monty.MontySyntaxError):
        line, _ = _position(problem)
        return Failed("syntax", text, line, printed=printed)
    if not isinstance(problem, monty.MontyRuntimeError):
        # CPython refuses integers of more than 4,300 digits when they leave the interpreter.
        return Failed("value", f"The value of the program is not usable: {text}.", printed=printed)
    line, _ = _position(problem)
    trace = problem.display()[-MAX_TRACEBACK_CHARS:]
    kind, _, message = text.partition(": ")
    limit = ""
    if kind == "TimeoutError" and message.startswith(_TIME):
        limit, text = "seconds", "The program ran too long."
    elif kind == "MemoryError":
        limit, text = "memory_mb", "The program used too much memory."
    elif kind == "RecursionError" and message.startswith(_RECURSION):
        limit, text = "recursion", "The program called itself too deeply."
    return Failed("limit" if limit else "error", text, line, trace, printed, limit)


def _raise_if_lost(problem: BaseException) -> None:
    """Raise `WorkerLostError` if the worker had died before this operation."""
    if not isinstance(problem, monty.MontyRuntimeError) and "failed to spawn" in str(problem):
        raise WorkerLostError("it was killed") from problem


def _lost(problem: BaseException) -> str:
    """Return the limit that the end of the worker shows, or its reason."""
    if getattr(problem, "timed_out", False):
        return "seconds"
    return "memory_mb" if "memory" in str(problem) else str(problem)[:MAX_MESSAGE_CHARS]


def _moved_up(failed: Failed) -> Failed:
    return Failed(failed.kind, failed.message, max(0, failed.line - 1), failed.traceback, "", failed.limit)


def _position(problem: Any) -> tuple[int, int]:
    frames = problem.traceback()
    return (frames[-1].line, frames[-1].column) if frames else (0, 0)


def _refusal(refusal: dict[str, Any]) -> Diagnostic:
    return Diagnostic(refusal["code"], refusal["message"], refusal["line"], refusal["column"])


def _diagnostics(text: str) -> list[Diagnostic]:
    """Return the diagnostics of the checker, without the line that is in front of the program."""
    diagnostics = []
    for item in json.loads(text)[:MAX_DIAGNOSTICS]:
        location = item.get("location") or {"row": 2, "column": 1}
        if location["row"] == 1:
            continue
        message = str(item["message"])[:MAX_MESSAGE_CHARS]
        line = location["row"] - 1
        diagnostics.append(
            Diagnostic(str(item["code"]), message, line, location["column"], str(item["severity"]))
        )
    return diagnostics
