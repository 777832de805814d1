"""A pytest plugin: records how long tests and fixtures take, and prints a short summary instead of dots.

`--durations-file FILE` writes the durations of all tests and fixtures as JSON, and turns the summary on; xdist is fine.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SLOWEST = 10
# Progress is printed each time this share of the tests has ended.
PROGRESS_STEP = 0.1
# More tests than this with one reason for being skipped are counted instead of named.
MAX_SKIPS_NAMED = 3

# Name, seconds, and 1 for a set-up or 0 for a teardown.
Fixtures = list[tuple[str, float, int]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-file",
        metavar="FILE",
        help="write the durations of tests and fixtures, and print the slowest",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--durations-file"):
        return
    config.pluginmanager.register(FixtureTimer(), "fixture-timer")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(config), "durations-summary")


class FixtureTimer:
    """Measures set-up and teardown of each fixture, and adds them to the report of the test that caused them."""

    def __init__(self) -> None:
        self._spent: Fixtures = []
        self._teardowns: dict[int, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            self._spent.append((_name_of(fixturedef), time.perf_counter() - began, 1))
            # The last finalizer to be added is the first to run.
            fixturedef.addfinalizer(lambda: self._teardowns.update({id(fixturedef): time.perf_counter()}))

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if began := self._teardowns.pop(id(fixturedef), None):
            self._spent.append((_name_of(fixturedef), time.perf_counter() - began, 0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.fixtures = [spent for spent in self._spent if spent[0]]  # type: ignore[attr-defined]
        self._spent = []
        return report


class FixtureTime:
    """The seconds that a fixture took in all, and how often it was set up."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0


class Summary:
    """Collects the reports of all workers; prints progress, the slowest tests and fixtures, and skips."""

    def __init__(self, config: pytest.Config) -> None:
        self._path = Path(config.getoption("--durations-file"))
        self._began = time.monotonic()
        self._tests: dict[str, dict[str, float]] = defaultdict(dict)
        self._fixtures: dict[str, FixtureTime] = defaultdict(FixtureTime)
        self._skips: dict[str, list[str]] = defaultdict(list)
        self._failed = 0
        self._ended = 0
        self._next_step = PROGRESS_STEP
        self._session: pytest.Session | None = None
        self._terminal: pytest.TerminalReporter | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letters: a line of its own names what fails."""
        if hasattr(report, "wasxfail"):
            return None
        if report.failed:
            return ("failed" if report.when == "call" else "error", "", "")
        if report.when == "call" and report.passed:
            return ("passed", "", "")
        return ("skipped", "", "") if report.skipped else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid][report.when] = round(report.duration, 4)
        for name, seconds, count in getattr(report, "fixtures", ()):
            self._fixtures[name].seconds += seconds
            self._fixtures[name].count += count
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._skips[reason.removeprefix("Skipped: ")].append(report.nodeid)
        if report.failed:
            self._failed += 1
            self._print(f"  ✗ {report.nodeid}")
        if report.when == "teardown":
            self._ended += 1
            self._print_progress()

    def _print_progress(self) -> None:
        total = getattr(self._session, "testscollected", 0)
        if not total or self._ended / total < self._next_step:
            return
        self._next_step = self._ended / total + PROGRESS_STEP
        failed = f", {self._failed} failed" if self._failed else ""
        self._print(f"  {self._ended / total:4.0%}  {_clock(time.monotonic() - self._began)}{failed}")

    def _print(self, line: str) -> None:
        if self._terminal is not None:
            self._terminal.ensure_newline()
            self._terminal.write_line(line)

    def pytest_sessionfinish(self) -> None:
        tests = {test: {**phases, "total": _total(phases)} for test, phases in self._tests.items()}
        fixtures = {
            name: {"count": spent.count, "total": round(spent.seconds, 4)}
            for name, spent in self._fixtures.items()
        }
        record = {
            "seconds": round(time.monotonic() - self._began, 1),
            "tests": dict(sorted(tests.items(), key=lambda item: -item[1]["total"])),
            "fixtures": dict(sorted(fixtures.items(), key=lambda item: -float(item[1]["total"]))),
            "skipped": self._skips,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.ensure_newline()
        slowest = sorted(((_total(phases), test) for test, phases in self._tests.items()), reverse=True)
        write("Slowest tests (seconds)")
        for seconds, test in slowest[:SLOWEST]:
            write(f"  {seconds:7.2f}  {test}")
        write("Slowest fixtures (seconds, times)")
        spent = sorted(
            ((each.seconds, each.count, name) for name, each in self._fixtures.items()), reverse=True
        )
        for seconds, count, name in spent[:SLOWEST]:
            write(f"  {seconds:7.2f} {count:6d}  {name}")
        if self._skips:
            write("Skipped")
        for reason, tests in sorted(self._skips.items()):
            named = tests if len(tests) <= MAX_SKIPS_NAMED else [*tests[:1], f"and {len(tests) - 1} more"]
            write(f"  {reason}: {', '.join(named)}")


def _total(phases: dict[str, float]) -> float:
    return round(sum(phases.values()), 4)


def _name_of(fixture: pytest.FixtureDef[Any]) -> str:
    """Return where a fixture is defined and its name; empty for the values of a parameter."""
    if fixture.func.__module__.startswith("_pytest.python"):
        return ""
    return f"{fixture.baseid}::{fixture.argname}" if fixture.baseid else fixture.argname


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
