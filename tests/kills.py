"""Runs a scenario again and again, and kills its process one step later each time.

A step is a statement of the database, a sync, a wake-up, or a change of a folder. The processes are forked from one
that has imported everything, so a kill costs milliseconds. A scenario is `module:function`; the function is a coroutine
function that gets the target of a database, a folder, and a function to report what it was told.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.databases import Targets

REPO = Path(__file__).resolve().parent.parent
_FOLDER_CALLS = ("rename", "link", "unlink", "utime", "replace")


class Attempt(Struct):
    """One run: killed at a step, or the last one, which came to its end."""

    target: str
    step: int
    reports: list[Any]
    was_killed: bool


class Forker:
    """A process that has imported a scenario, and forks a process for each run."""

    def __init__(self, scenario: str) -> None:
        self._scenario = scenario
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kills", scenario],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
        )

    def __enter__(self) -> Forker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, target: str, folder: Path, step: int) -> Attempt:
        """Run the scenario until a step, or to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([target, str(folder), step]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"{self._scenario} failed at step {step}"
        was_killed, reports = json.loads(line)
        return Attempt(target, step, reports, was_killed)


def at_every_step(
    scenario: str, targets: Targets, folder: Path, *, stride: int = 1, first: int = 1, most: int = 2_000
) -> Iterator[Attempt]:
    """Yield the attempts; the last one was not killed."""
    with Forker(scenario) as forker:
        for step in range(first, most, stride):
            attempt = forker.run(targets(), folder, step)
            yield attempt
            if not attempt.was_killed:
                return
    raise AssertionError(f"{scenario} has more than {most} steps")


def _serve(scenario: str) -> None:
    module, _, name = scenario.partition(":")
    run = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        target, folder, last = json.loads(line)
        incoming, outgoing = os.pipe()
        child = os.fork()
        if not child:
            os.close(incoming)
            _run(functools.partial(run, target, folder), last, outgoing)
        os.close(outgoing)
        with open(incoming, encoding="utf-8") as reports:
            lines = [json.loads(each) for each in reports]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, -signal.SIGKILL):
            raise SystemExit(f"the scenario failed at step {last}")
        print(json.dumps([status != 0, lines]), flush=True)


def _run(run: Callable[..., Any], last: int, outgoing: int) -> None:
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def report(what: object) -> None:
        os.write(outgoing, json.dumps(what).encode() + b"\n")

    count_steps(step)
    try:
        asyncio.run(run(report))
    except BaseException:  # noqa: BLE001 - the forked process ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def count_steps(step: Callable[[], None]) -> None:
    """Call `step` before each statement and each change of a folder, and after syncs and commits."""
    from switchboard_mcp.database import postgresql, sqlite

    def counted(function: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            step()
            result = function(*arguments, **options)
            if after:
                step()
            return result

        return call

    for owner in (sqlite.SqliteConnection, postgresql.PostgresConnection):
        for name in ("rows", "run"):
            setattr(owner, name, counted(getattr(owner, name)))
    for engine in (sqlite.SqliteEngine, postgresql.PostgresEngine):
        setattr(engine, "commit", counted(vars(engine)["commit"], after=True))  # noqa: B010
    sqlite.sync_data = counted(sqlite.sync_data, after=True)
    for name in _FOLDER_CALLS:
        setattr(os, name, counted(getattr(os, name)))


if __name__ == "__main__":
    _serve(sys.argv[1])
