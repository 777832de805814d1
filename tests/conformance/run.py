#!/usr/bin/env python3
"""The official conformance suite from a shell: what the fixture gives directly, and what is left through Switchboard.

    run.py                      all suites against the fixture directly, compared with the expected lists
    run.py --write              the same, and the expected lists are written anew
    run.py --child legacy       all suites through Switchboard with the fixture as a child of one era (or modern, both)
    run.py --url URL            all suites against a server that runs already

`--suite 0.1|2025-11-25|2026-07-28` names single ones; `--verbose` shows every scenario.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

# It runs as a program, from any folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.conformance import processes, suite
from tests.conformance.losses import allowed


@contextmanager
def target(args: argparse.Namespace) -> Iterator[str]:
    """The address of what is tested; each suite gets its own, since some scenarios change lists."""
    if args.url:
        yield args.url
    elif args.child:
        with (
            tempfile.TemporaryDirectory(prefix="conformance-") as folder,
            processes.switchboard(Path(folder), processes.child_over_stdio(args.child)) as url,
        ):
            yield url
    else:
        with processes.fixture() as url:
            yield url


def one(name: str, args: argparse.Namespace) -> tuple[suite.Results, float]:
    began = time.monotonic()
    with target(args) as url:
        return suite.run(name, url), time.monotonic() - began


def report(name: str, results: suite.Results, took: float, args: argparse.Namespace) -> bool:
    """Say how it went; true when nothing is lost that has no reason."""
    print(f"\n{name}: {suite.totals(results)} ({took:.1f} s)")
    if args.verbose:
        print(suite.table(results))
    if args.write:
        suite.write_expected(name, results)
        return True
    excused = allowed(name, args.child) if args.child else {}
    well = True
    for loss in suite.compare(suite.expected(name), results):
        reason = excused.get((loss.scenario, loss.check))
        well = well and reason is not None
        print(
            f"  {'·' if reason else '✗'} {loss.scenario} {loss.check}: {loss.status} {reason or loss.message}"
        )
    if well:
        print("  all that passes directly passes")
    return well


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--url")
    what.add_argument("--child", choices=("legacy", "modern", "both"))
    what.add_argument("--write", action="store_true")
    parser.add_argument("--suite", action="append", choices=tuple(suite.SUITES))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    names = args.suite or list(suite.SUITES)
    began = time.monotonic()
    # Most of a run is waiting. A server that runs already is not to see two suites at once.
    with ThreadPoolExecutor(1 if args.url else len(names)) as pool:
        outcomes = list(pool.map(lambda name: one(name, args), names))
    well = [report(name, *outcome, args) for name, outcome in zip(names, outcomes, strict=True)]
    print(f"\n{time.monotonic() - began:.1f} s in all")
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
