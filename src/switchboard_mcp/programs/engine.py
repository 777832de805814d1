"""The types between the parts of programs: limits, modules, calls, steps, and the engine that checks and runs code.

An engine runs a program one step at a time. A step ends when the program waits for calls, has ended, or has failed. A
program that waits stays in the memory of a process until another program needs that, and is then a snapshot. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

# The settings of the limits, for refusals.
LIMIT_SETTINGS = {
    "seconds": "programs.limits.seconds",
    "memory_mb": "programs.limits.memoryMb",
    "calls": "programs.limits.calls",
    "at_once": "programs.limits.atOnce",
    "code_kb": "programs.limits.codeKb",
    "answer_kb": "programs.limits.answerKb",
    "recursion": "programs.limits.recursion",
}

# Exceptions that may be raised inside a program. The interpreter knows them by these names.
Raised = Literal[
    "Exception",
    "KeyError",
    "LookupError",
    "NameError",
    "PermissionError",
    "RuntimeError",
    "TimeoutError",
    "TypeError",
    "ValueError",
]
FailureKind = Literal["syntax", "error", "limit", "value", "crash", "snapshot", "lost"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one program, as in `programs.limits`."""

    seconds: float = 10.0
    memory_mb: int = 64
    calls: int = 100
    at_once: int = 8
    code_kb: int = 200
    answer_kb: int = 32
    recursion: int = 200


@dataclass(frozen=True, slots=True)
class Module:
    """A suite as a module of a program: its functions with the subtools they call, and its stub for the checker.

    For a check it has all functions that the program may name, for a run only those of the manifest.
    """

    name: str
    functions: Mapping[str, str]
    stub: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program: its code, and modules that hold the functions of its manifest only."""

    code: str
    modules: Sequence[Module]
    input: bytes = b""
    seed: int = 0
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call that a program has made. Its id is unique within the run; its arguments are a JSON object."""

    id: int
    module: str
    function: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a call for the program: a value in JSON, a text, or an exception to raise."""

    value: bytes = b""
    text: str | None = None
    raised: Raised | None = None
    message: str = ""


@dataclass(slots=True, eq=False)
class Suspension:
    """A program that waits. Until its snapshot was taken it is in the memory of an engine's process only."""

    snapshot: bytes = b""
    failure: Failed | None = None  # it could not be kept


@dataclass(frozen=True, slots=True)
class Waiting:
    """The program waits for at least one call. `calls` are those made in this step, `pending` all that are open."""

    suspension: Suspension
    calls: Sequence[ProgramCall]
    pending: Sequence[int]
    printed: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The program has ended. `calls` were made in this step and never awaited; `open_calls` are all that are open."""

    value: bytes
    printed: str = ""
    calls: Sequence[ProgramCall] = ()
    open_calls: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The program has failed. `limit` names the limit that it exceeded, `line` counts from 1, 0 if it is unknown."""

    kind: FailureKind
    message: str
    line: int = 0
    traceback: str = ""
    printed: str = ""
    limit: str = ""


Step = Waiting | Finished | Failed


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of the type checker, with positions of the program from 1."""

    code: str
    message: str
    line: int
    column: int
    severity: str = "error"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check, before any rule about which diagnostics refuse.

    `analysis` is the JSON of the source analysis (manifest, refusals, hints), as the helper returned it.
    """

    diagnostics: Sequence[Diagnostic] = ()
    manifest: Sequence[tuple[str, str]] = ()
    hints: Sequence[str] = ()
    refusals: Sequence[Diagnostic] = ()
    syntax_error: Diagnostic | None = None
    failure: Failed | None = None
    analysis: Mapping[str, object] = field(default_factory=dict)


class Engine(Protocol):
    """Checks and runs programs. A failure of a program is a value; `OSError` means that no engine could be started."""

    async def check(self, code: str, modules: Sequence[Module]) -> CheckReport:
        """Check a program against the stubs of its modules. Nothing of it runs."""

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

    async def resume(
        self,
        suspension: Suspension,
        modules: Sequence[Module],
        settled: Mapping[int, Settled],
        limits: Limits,
        calls_made: int = 0,
    ) -> Step:
        """Resume with the outcome of at least one pending call; `calls_made` is the number of all calls so far.

        A failure of the kind `lost` means that the process of the suspension has ended before its snapshot was taken.
        """

    async def take_snapshot(self, suspension: Suspension) -> None:
        """Take the snapshot of a program that waits; its process is then free. Without success it has none."""

    async def close(self) -> None:
        """End all processes of the engine."""
