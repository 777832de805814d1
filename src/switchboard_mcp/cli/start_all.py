"""Starts every child, as many at once as the machine carries, and reports how each start went.

`--dry-run` and `doctor` show the same reports in two ways. A report holds plain values, so all children are stopped
before anything is printed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec import UNSET, Struct, UnsetType, structs

from switchboard_mcp.app import Switchboard
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.inventory import PROMPTS
from switchboard_mcp.children.waiter import FutureWaiter
from switchboard_mcp.cli.console import Screen, Styled, one_line, plural
from switchboard_mcp.cli.live import LiveDisplay
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.system.processes import descendants_memory, usable_processors

# A start waits for the disk as often as for a processor. Beyond two for each processor, all would only take longer.
STARTS_PER_PROCESSOR = 2
# Remote servers do their work elsewhere.
REMOTE_AT_ONCE = 16
# Failures of a start that may be due to the other starts beside it.
CROWDED = frozenset({"child_start_timeout", "child_start_failed"})
# Prompts and resources usually arrive within milliseconds of the tools.
LISTS_S = 5.0
# Often enough to see a process at its largest, and rare enough to cost no time.
MEASURE_S = 0.1
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
    starts_at_once: int = 1  # the most starts in progress at one moment of this one


class Turn:
    """A start in progress, and the most starts that there were at one moment of it."""

    starts_at_once = 1


class Crowd:
    """Admits as many starts at once as the machine carries."""

    def __init__(self) -> None:
        local = max(STARTS_PER_PROCESSOR, math.floor(STARTS_PER_PROCESSOR * usable_processors()))
        self._local, self._remote = asyncio.Semaphore(local), asyncio.Semaphore(REMOTE_AT_ONCE)
        self._turns: set[Turn] = set()

    @asynccontextmanager
    async def turn(self, kind: str) -> AsyncIterator[Turn]:
        """Wait for a place among the starts, and hold it meanwhile."""
        if kind != "stdio":
            async with self._remote:
                yield Turn()
            return
        async with self._local:
            turn = Turn()
            self._turns.add(turn)
            for other in self._turns:
                other.starts_at_once = max(other.starts_at_once, len(self._turns))
            try:
                yield turn
            finally:
                self._turns.discard(turn)


class PeakMemory:
    """The most memory that all processes below one used at one moment, in bytes; 0 if the system does not say."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Measure until the end of the block."""
        measuring = asyncio.create_task(self._measure())
        try:
            yield
        finally:
            measuring.cancel()

    async def _measure(self) -> None:
        while True:
            self.peak = max(self.peak, descendants_memory(self._pid))
            await asyncio.sleep(MEASURE_S)


class StartProgress:
    """The status lines shown meanwhile: one per child."""

    def __init__(self, names: Sequence[str]) -> None:
        self._width = max(map(len, names), default=0)
        self._began: dict[str, float] = {}
        self._lines: dict[str, Styled | None] = dict.fromkeys(names)

    def started(self, name: str) -> None:
        """Record that the start of a child begins."""
        self._began[name] = time.monotonic()

    def postponed(self, name: str) -> None:
        """Record that the start of a child is repeated once the others are done."""
        del self._began[name]

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
    lists_s: float = LISTS_S,
    on_report: Callable[[StartReport], object] | None = None,
) -> list[StartReport]:
    """Connect to every child that is not skipped; return the reports in the order of the suites.

    Each child is stopped after its visit, so the number of processes does not grow with that of the children. A start
    that failed beside others is repeated alone, and only that counts.
    `within_s` limits each start from the moment it begins; by default the child's own limit applies. `lists_s` limits
    the wait for prompts and resources, which arrive after a start.
    `on_report` receives each report as soon as it is known, so that an interrupted run keeps those it has.
    """
    suites = [suite for suite in switchboard.gateway.suites.values() if suite.child.name not in skip]
    board = StartProgress([suite.child.name for suite in suites])
    crowd = Crowd()
    reports: dict[str, StartReport] = {}

    def settle(report: StartReport) -> None:
        reports[report.child] = report
        board.finished(report)
        if on_report is not None:
            on_report(report)

    async def visit(suite: ChildSuite, *, again: bool = False) -> StartReport:
        async with crowd.turn(suite.child.spec.kind) as turn:
            board.started(suite.child.name)
            report = await connect(suite, within_s, lists_s, again=again)
            return structs.replace(report, starts_at_once=turn.starts_at_once)

    async def first_visit(suite: ChildSuite) -> ChildSuite | None:
        report = await visit(suite)
        if report.starts_at_once > 1 and isinstance(report.error, Failure) and report.error.code in CROWDED:
            board.postponed(suite.child.name)
            return suite
        settle(report)
        return None

    with LiveDisplay(screen, board.frame, enabled=draw):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(first_visit(suite)) for suite in suites]
        for suite in filter(None, [task.result() for task in tasks]):
            settle(await visit(suite, again=True))
    return [reports[suite.child.name] for suite in suites]


async def connect(
    suite: ChildSuite, within_s: float | None = None, lists_s: float = LISTS_S, *, again: bool = False
) -> StartReport:
    """Start one child, report the outcome and stop it. `again` ignores that an earlier start failed."""
    child = suite.child
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiter = FutureWaiter(loop)
    if again:
        for process in child.processes():
            process.lift_backoff()
    child.acquire(waiter)
    await asyncio.wait([waiter.outcome], timeout=within_s)
    if waiter.outcome.done():
        problem = waiter.outcome.result()
    else:
        child.cancel_wait(waiter)
        message = f"Child '{child.name}' was not ready within {within_s:g} s."
        problem = failure("child_start_timeout", message, child=child.name)
        await asyncio.gather(*(process.abort_start(problem) for process in child.processes()))
    outcome = StartReport(
        child=child.name,
        suite=suite.name,
        source=child.spec.source,
        ok=problem is None,
        error=problem or UNSET,
    )
    if problem is not None:
        return outcome
    connected = describe(suite, round((loop.time() - began) * 1000))
    await _stop(child, lists_s)
    return structs.replace(outcome, connected=connected)


async def _stop(child: Child, lists_s: float) -> None:
    """Stop a child once its prompts and resources have arrived, which the catalog keeps."""
    for process in child.processes():
        fetched = asyncio.Event()
        process.inventory.when_fetched(PROMPTS, fetched.set, refetch=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(lists_s):
                await fetched.wait()
        await process.stop_now("the command")


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
