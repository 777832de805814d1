"""Starting every child at once and writing down how it went.

`--dry-run` and `doctor` show the same survey in two ways. The report holds values only, so that all children have been
stopped before anything is printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.app import Switchboard
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.cli.console import Screen, Styled, one_line, plural
from switchboard_mcp.cli.live import LiveDisplay
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.summary import summarise

# Enough to keep any machine busy. With more at once, slow starters would miss their limit for want of a processor.
AT_ONCE = 16
SUMMARY_CHARS = 160


class SubtoolLine(Struct, frozen=True, omit_defaults=True):
    """One tool of a child, in a line."""

    name: str
    summary: str = ""
    denied: bool = False


class Connected(Struct, frozen=True, rename="camel"):
    """What a child said of itself, and how soon."""

    handshake_ms: int
    protocol: str
    server: str
    subtools: list[SubtoolLine]

    def allowed(self) -> list[SubtoolLine]:
        """Those a host can use."""
        return [subtool for subtool in self.subtools if not subtool.denied]


class StartReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One child: connected, or why not."""

    child: str
    suite: str
    source: str
    ok: bool
    connected: Connected | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class StartWaiter(ReadyWaiter):
    """Waits until the child is ready or will not become so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: asyncio.Future[Failure | None] = loop.create_future()

    def on_ready(self, child: Child) -> None:
        """It is ready."""
        self._settle(None)

    def on_failed(self, problem: Failure) -> None:
        """It will not."""
        self._settle(problem)

    def _settle(self, outcome: Failure | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class StartProgress:
    """What a terminal shows meanwhile: one line a child."""

    def __init__(self, names: Sequence[str]) -> None:
        self._width = max(map(len, names), default=0)
        self._began: dict[str, float] = {}
        self._lines: dict[str, Styled | None] = dict.fromkeys(names)

    def started(self, name: str) -> None:
        """Its turn has come."""
        self._began[name] = time.monotonic()

    def finished(self, report: StartReport) -> None:
        """It has answered, or failed."""
        name = report.child.ljust(self._width)
        if isinstance(report.error, Failure):
            self._lines[report.child] = Styled(f"✗ {name}  {one_line(report.error.message)}", "red")
        elif isinstance(report.connected, Connected):
            count = plural(len(report.connected.subtools), "subtool")
            self._lines[report.child] = Styled(f"✓ {name}  {count}", "green")

    def frame(self, spin: str) -> list[Styled]:
        """The lines now, those still under way first, so that they are in view however many there are."""
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
) -> list[StartReport]:
    """Connect to every child that is not skipped; reports in the order of the suites' names.

    Each has `within_s` from when its turn comes, where that is given; else as long as its start may take.
    """
    suites = [suite for suite in switchboard.gateway.suites.values() if suite.child.name not in skip]
    board = StartProgress([suite.child.name for suite in suites])
    turns = asyncio.Semaphore(AT_ONCE)

    async def visit(suite: ChildSuite) -> StartReport:
        async with turns:
            board.started(suite.child.name)
            report = await connect(suite, within_s)
            board.finished(report)
            return report

    with LiveDisplay(screen, board.frame, enabled=draw):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(visit(suite)) for suite in suites]
    return [task.result() for task in tasks]


async def connect(suite: ChildSuite, within_s: float | None = None) -> StartReport:
    """Start one child, or be told why it does not start."""
    child = suite.child
    loop = asyncio.get_running_loop()
    began = loop.time()
    visit = StartWaiter(loop)
    child.acquire(visit)
    try:
        async with asyncio.timeout(within_s):
            problem = await visit.outcome
    except TimeoutError:
        child.cancel_wait(visit)
        message = f"Child '{child.name}' was not ready within {within_s:g} s."
        problem = failure("child_start_timeout", message, child=child.name)
    if problem is not None:
        return StartReport(
            child=child.name, suite=suite.name, source=child.spec.source, ok=False, error=problem
        )
    seen = describe(suite, round((loop.time() - began) * 1000))
    return StartReport(child=child.name, suite=suite.name, source=child.spec.source, ok=True, connected=seen)


def describe(suite: ChildSuite, handshake_ms: int) -> Connected:
    """What is known of a child that has just started."""
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
