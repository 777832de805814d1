#!/usr/bin/env python3
"""The official conformance suite from a shell: what passes directly, and what is left of it through Switchboard.

    run.py [SUITE …]              directly: the fixture as server, the official SDK as client; compared with expected/
    run.py --write [SUITE …]      the same, and the lists in expected/ are written anew
    run.py --through [SUITE …]    through Switchboard: what passes directly must pass
    run.py --table FILE           everything through Switchboard, with the outcome as a page
    run.py --url URL [SUITE …]    a server that runs already

Suites: 0.1, 2025-11-25 and 2026-07-28 test a server, those with `client-` in front a client, those with `auth-` the
authorization of one, which is Switchboard; all, if none is named. `--mode direct|suite` says how the fixture's tools
are shown (default: both). `--child legacy|modern|both` narrows the fixture behind Switchboard to an era (default:
legacy, then modern),
`--over stdio|http` says how Switchboard reaches it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

# It runs as a program, from any folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.conformance import processes, suite, tables
from tests.conformance.losses import reason, stale

# Most of a run is waiting, but each starts programs that are not.
AT_ONCE = 3


class Run(NamedTuple):
    """One suite on one target."""

    name: str
    child: processes.Era | None = None
    """The era of the fixture behind Switchboard."""
    over: str = "stdio"
    """How it is reached."""
    mode: processes.Mode = "direct"
    """How its tools are shown."""
    through: bool = False
    url: str = ""

    def __str__(self) -> str:
        road = f", {self.child} child over {self.over}, {self.mode}" if self.child else ""
        return f"{self.name}{' through Switchboard' if self.through else ''}{road}"

    def perform(self) -> tuple[suite.Results, float]:
        began = time.monotonic()
        return self._results(), time.monotonic() - began

    def _results(self) -> suite.Results:
        if self.name in suite.AUTH_SUITES:
            return suite.run_client(self.name, processes.auth_client_command())
        if self.name in suite.CLIENT_SUITES:
            return suite.run_client(self.name, processes.client_command(direct=not self.through))
        if self.url:
            return suite.run(self.name, self.url)
        # Each run has a server of its own, since some scenarios change its lists.
        if self.child is None:
            with processes.fixture() as url:
                return suite.run(self.name, url)
        with (
            tempfile.TemporaryDirectory(prefix="conformance-") as folder,
            processes.through_switchboard(Path(folder), self.child, self.over, self.mode) as url,
        ):
            return suite.run(self.name, url)


def planned(args: argparse.Namespace) -> list[Run]:
    names = args.suites or [*suite.SUITES, *([] if args.url else [*suite.CLIENT_SUITES, *suite.AUTH_SUITES])]
    if not args.through and not args.table:
        return [Run(name, url=args.url) for name in names]
    runs = []
    for name in names:
        if name not in suite.SUITES:
            runs.append(Run(name, through=True))
            continue
        for mode in args.mode or ("direct", "suite"):
            for era in args.child or ("legacy", "modern"):
                runs.append(Run(name, era, args.over, mode, through=True))
    return runs


def report(run: Run, results: suite.Results, took: float, args: argparse.Namespace) -> bool:
    """Say how it went; true when nothing is lost without a reason."""
    print(f"\n{run}: {suite.totals(results)} ({took:.1f} s)")
    if args.verbose:
        print(suite.table(results))
    if args.write and run.name not in suite.AUTH_SUITES:
        suite.write_expected(run.name, results)
        return True
    losses = suite.compare(suite.expected(run.name, results), results)
    well = True
    for loss in losses:
        why = reason(loss, run.name, run.child, run.mode) if run.through else None
        well = well and why is not None
        print(f"  {'·' if why else '✗'} {loss.scenario} {loss.check}: {loss.status} {why or loss.message}")
    for scenario, check in stale(losses, run.name, run.child, run.mode) if run.through else []:
        print(f"  ! {scenario} {check}: excused in losses.py, and not lost")
    if well:
        print("  all that is expected passes")
    return well


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--through", action="store_true")
    what.add_argument("--url", default="")
    what.add_argument("--write", action="store_true")
    what.add_argument("--table", metavar="FILE", default="")
    parser.add_argument("--child", action="append", choices=("legacy", "modern", "both"))
    parser.add_argument("--mode", action="append", choices=("direct", "suite"))
    parser.add_argument("--over", choices=("stdio", "http"), default="stdio")
    parser.add_argument("--verbose", action="store_true", help="show every scenario")
    args = parser.parse_args()
    known = {**suite.SUITES, **suite.CLIENT_SUITES, **suite.AUTH_SUITES}
    if unknown := [name for name in args.suites if name not in known]:
        parser.error(f"unknown suite {unknown[0]}; there are {', '.join(known)}")
    began = time.monotonic()
    runs = planned(args)
    with ThreadPoolExecutor(1 if args.url else AT_ONCE) as pool:
        outcomes, well = [], []
        for run, outcome in zip(runs, pool.map(Run.perform, runs), strict=True):
            outcomes.append(outcome)
            well.append(report(run, *outcome, args))
            sys.stdout.flush()
    if args.table:
        rows = [
            tables.Outcome(run.name, run.child, run.mode, results)
            for run, (results, _) in zip(runs, outcomes, strict=True)
        ]
        Path(args.table).write_text(tables.page(rows))
    print(f"\n{time.monotonic() - began:.1f} s in all")
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
