"""Starts every child at once and reports how each start went.

`--dry-run` and `doctor` show the same reports in two ways. A report holds plain values, so all children are stopped
before anything is printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.app import Switchboard
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.cli.console import Screen, Styled, one_line, plural
from switchboard_mcp.cli.live import LiveDisplay
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.summary import summarise

# Enough to keep any machine busy. With more, slow starters would time out for lack of a processor.
AT_ONCE = 16
SUMMARY_CHARS = 160


class SubtoolLine(Struct, frozen=True, omit_defaults=True):
    """One tool of a child, in one line."""

    name: str
    summary: str = ""
    denied: bool = False


class Connected(Struct, frozen=True, rename="camel"):
    """The handshake and the tools of a child that started."""

    handshake_ms: int
    protocol: str
    server: str
    subtools: list[SubtoolLine]

    def allowed(self) -> list[SubtoolLine]:
        """Return the tools that a host can use."""
        return [subtool for subtool in self.subtools if not subtool.denied]


class StartReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The start of one child: connected, or the error."""

    child: str
    suite: str
    source: str
    ok: bool
    connected: Connected | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class StartWaiter(ReadyWaiter):
    """Waits until the child is ready or has failed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: asyncio.Future[Failure | None] = loop.create_future()

    def on_ready(self, child: Child) -> None:
        """Record that the child is ready."""
        self._settle(None)

    def on_failed(self, problem: Failure) -> None:
        """Record that the child failed."""
        self._settle(problem)

    def _settle(self, outcome: Failure | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class StartProgress:
    """The status lines shown meanwhile: one per child."""

    def __init__(self, names: Sequence[str]) -> None:
        self._width = max(map(len, names), default=0)
        self._began: dict[str, float] = {}
        self._lines: dict[str, Styled | None] = dict.fromkeys(names)

    def started(self, name: str) -> None:
        """Record that the start of a child begins."""
        self._began[name] = time.monotonic()

    def finished(self, report: StartReport) -> None:
        """Record the result of a child."""
        name = report.child.ljust(self._width)
        if isinstance(report.error, Failure):
            self._lines[report.child] = Styled(f"✗ {name}  {one_line(report.error.message)}", "red")
        elif isinstance(report.connected, Connected):
            count = plural(len(report.connected.subtools), "subtool")
            self._lines[report.child] = Styled(f"✓ {name}  {count}", "green")

    def frame(self, spin: str) -> list[Styled]:
        """Return the lines; unfinished starts come first, so they stay in view."""
        now = time.monotonic()
        waiting: list[Styled] = []
        for name, line in self._lines.items():
            if line is None:
                began = self._began.get(name)
                state = "waiting" if began is None else f"starting, {now - began:.0f} s"
                waiting.append(Styled(f"{spin} {name.ljust(self._width)}  {state}"))
        return waiting + [line for line in self._lines.values() if line is not None]


async def start_all(
    switchboard: Switchboard,
    screen: Screen,
    *,
    draw: bool,
    skip: frozenset[str] = frozenset(),
    within_s: float | None = None,
    on_report: Callable[[StartReport], object] | None = None,
) -> list[StartReport]:
    """Connect to every child that is not skipped; return the reports in the order of the suites.

    `within_s` limits each start from the moment it begins; by default the child's own limit applies.
    `on_report` receives each report as soon as it is known, so that an interrupted run keeps those it has.
    """
    suites = [suite for suite in switchboard.gateway.suites.values() if suite.child.name not in skip]
    board = StartProgress([suite.child.name for suite in suites])
    turns = asyncio.Semaphore(AT_ONCE)

    async def visit(suite: ChildSuite) -> StartReport:
        async with turns:
            board.started(suite.child.name)
            report = await connect(suite, within_s)
            board.finished(report)
            if on_report is not None:
                on_report(report)
            return report

    with LiveDisplay(screen, board.frame, enabled=draw):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(visit(suite)) for suite in suites]
    return [task.result() for task in tasks]


async def connect(suite: ChildSuite, within_s: float | None = None) -> StartReport:
    """Start one child and report the outcome."""
    child = suite.child
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiter = StartWaiter(loop)
    child.acquire(waiter)
    try:
        async with asyncio.timeout(within_s):
            problem = await waiter.outcome
    except TimeoutError:
        child.cancel_wait(waiter)
        message = f"Child '{child.name}' was not ready within {within_s:g} s."
        problem = failure("child_start_timeout", message, child=child.name)
    if problem is not None:
        return StartReport(
            child=child.name, suite=suite.name, source=child.spec.source, ok=False, error=problem
        )
    connected = describe(suite, round((loop.time() - began) * 1000))
    return StartReport(
        child=child.name, suite=suite.name, source=child.spec.source, ok=True, connected=connected
    )


def describe(suite: ChildSuite, handshake_ms: int) -> Connected:
    """Describe a child that has just started."""
    knowledge = suite.child.snapshot
    assert knowledge is not None
    return Connected(
        handshake_ms=handshake_ms,
        protocol=knowledge.protocol,
        server=f"{knowledge.server.name} {knowledge.server.version}".strip(),
        subtools=[
            SubtoolLine(
                tool.name,
                summarise(tool.sanitized().description or "", SUMMARY_CHARS),
                not suite.access.permits(tool.name),
            )
            for tool in suite.child.inventory.known_tools()
        ],
    )
