"""Runs a program: the steps of the engine, its calls within their limits, and the log that makes it durable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from switchboard_mcp.programs.engine import Engine, Failed, Limits, Module, Settled

# Calls a subtool for a program: the module, the subtool, and its arguments as a JSON object.
CallSubtool = Callable[[str, str, bytes], Awaitable[Settled]]


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program: its code, and modules that hold the functions of its manifest only."""

    code: str
    modules: Sequence[Module]
    input: bytes = b""
    seed: int = 0
    clock: float = 0.0


@dataclass(slots=True)
class CallMade:
    """A call that left the program. An uncertain one may have been carried out; it was not repeated."""

    module: str
    function: str
    subtool: str
    ms: float = 0.0
    bytes: int = 0
    outcome: Literal["open", "ok", "error", "cancelled", "uncertain"] = "open"
    message: str = ""


@dataclass(slots=True)
class Outcome:
    """The result of a run. `value` is JSON; it is empty if the program failed."""

    value: bytes = b""
    printed: str = ""
    calls: list[CallMade] = field(default_factory=list)
    failure: Failed | None = None

    @property
    def uncertain(self) -> list[CallMade]:
        """The calls of which it is not known if they were carried out."""
        return [call for call in self.calls if call.outcome == "uncertain"]


class RunRecord:
    """The durable log of one run."""


async def run(
    engine: Engine,
    program: Program,
    call: CallSubtool,
    log: RunRecord | None,
    limits: Limits,
    on_progress: Callable[[CallMade], None] | None = None,
) -> Outcome:
    """Run a program to its end. Cancelling it cancels the calls that are open."""
    raise NotImplementedError
