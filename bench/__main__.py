"""`python -m bench`: runs scenarios, prints their tables and stores them in bench/results/.

Owns the table of scenarios and the output. A new scenario is a module with `run(options) -> Report` and
one line here.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import msgspec

from bench import (
    ask,
    broker,
    calls,
    dashboard,
    dashboard_page,
    exposure,
    find,
    gate,
    governed,
    mail,
    mail_idle,
    over_http,
    program_checks,
    program_engine,
    program_tasks,
    program_types,
    sandbox,
    sandbox_servers,
    savings,
    start,
    tool_results,
)
from bench.client import BenchError
from bench.report import Goal, Options, Report, render_goals, render_table

SCENARIOS: dict[str, Callable[[Options], Report]] = {
    "start": start.run,
    "calls": calls.run,
    "http": over_http.run,
    "broker": broker.run,
    "governed": governed.run,
    "dashboard": dashboard.run,
    "savings": savings.run,
    "exposure": exposure.run,
    "find": find.run,
    "gate": gate.run,
    "results": tool_results.run,
    "programs": program_engine.run,
    "ask": ask.run,
    "program_checks": program_checks.run,
    "program_tasks": program_tasks.run,
    "program_types": program_types.run,
    "mail": mail.run,
    "idle": mail_idle.run,
    "sandbox": sandbox.run,
    "sandbox_servers": sandbox_servers.run,
    "dashboard_page": dashboard_page.run,
}
RESULTS = Path(__file__).resolve().parent / "results"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="What Switchboard costs, measured here and now."
    )
    parser.add_argument("scenario", nargs="*", help=f"any of: {', '.join(SCENARIOS)} (all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression")
    parser.add_argument("--json", action="store_true", help="print figures and goals as JSON")
    parser.add_argument(
        "--only", default="", metavar="KEYS", help="contestants, e.g. relay,switchboard (all)"
    )
    found = parser.parse_args(argv)
    if unknown := [name for name in found.scenario if name not in SCENARIOS]:
        parser.error(f"no scenario {', '.join(unknown)}; there are: {', '.join(SCENARIOS)}")
    return found


def as_json(reports: dict[str, Report], goals: list[Goal]) -> bytes:
    data = {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "figures": {name: report.figures for name, report in reports.items()},
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals],
        "notes": [note for report in reports.values() for note in report.notes],
    }
    return msgspec.json.format(msgspec.json.encode(data))


def as_text(reports: dict[str, Report], goals: list[Goal]) -> str:
    parts = [render_table(table) for report in reports.values() for table in report.tables]
    parts.append(render_goals(goals))
    notes = dict.fromkeys(note for report in reports.values() for note in report.notes)
    parts.append(
        "\n".join([f"Python {platform.python_version()}, {platform.system()} {platform.machine()}", *notes])
    )
    return "\n\n".join(parts) + "\n"


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    options = Options(quick=arguments.quick, only=tuple(filter(None, arguments.only.split(","))))
    reports: dict[str, Report] = {}
    for name in arguments.scenario or SCENARIOS:
        print(f"measuring {name} …", file=sys.stderr)
        try:
            reports[name] = SCENARIOS[name](options)
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    goals = [goal for report in reports.values() for goal in report.goals]
    text, data = as_text(reports, goals), as_json(reports, goals)
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    (RESULTS / f"{stamp}.txt").write_text(text)
    (RESULTS / f"{stamp}.json").write_bytes(data)
    print(data.decode() if arguments.json else text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
