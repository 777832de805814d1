"""The page of conformance results: every scenario with its outcome through Switchboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.conformance import suite
from tests.conformance.losses import reason
from tests.conformance.suite import SUCCESS, Results

SUITE_URL = "https://github.com/modelcontextprotocol/conformance"
HEAD = f"""# Conformance

The [official conformance suite]({SUITE_URL}), through Switchboard.
Written by `tests/conformance/run.py --table docs/reference/conformance.md {{suites}}`.

A number is the count of checks that pass. Everything that passes without Switchboard must pass through it, unless a
note says why not; `lost` would be a failure of Switchboard. `legacy` children use the handshake (2025-11-25), `modern`
ones are stateless (2026-07-28). With *tools* the child's tools are listed, with *suite* they are subtools.
"""


class Outcome(NamedTuple):
    """The results of one run."""

    name: str
    child: str | None
    mode: str
    results: Results


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page, in Markdown."""
    notes: list[str] = []
    names = list(dict.fromkeys(outcome.name for outcome in outcomes))
    parts = [HEAD.format(suites=" ".join(names))]
    for name in names:
        runs = [outcome for outcome in outcomes if outcome.name == name]
        titles = [f"{'tools' if run.mode == 'direct' else 'suite'}, {run.child}" for run in runs]
        if name not in suite.SUITES:
            titles = ["Switchboard as client"]
        parts.append(f"\n## {name}\n\n| scenario | {' | '.join(titles)} |\n| --- |{' --- |' * len(runs)}\n")
        scenarios = {scenario: None for run in runs for scenario in run.results}
        for scenario in sorted(scenarios):
            cells = [_cell(run, scenario, notes) for run in runs]
            parts.append(f"| {scenario} | {' | '.join(cells)} |\n")
    parts.append("\n## Notes\n\n" + "".join(f"{index}. {note}.\n" for index, note in enumerate(notes, 1)))
    left_out = "".join(f"| {scenario} | {why} |\n" for scenario, why in suite.LEFT_OUT.items())
    parts.append(f"\n## Not run\n\n| scenario | reason |\n| --- | --- |\n{left_out}")
    return "".join(parts)


def _cell(run: Outcome, scenario: str, notes: list[str]) -> str:
    checks = run.results.get(scenario, {})
    passed = str(sum(check.status == SUCCESS for check in checks.values()))
    losses = suite.compare(suite.expected(run.name, run.results), run.results)
    why = [reason(loss, run.name, run.child, run.mode) for loss in losses if loss.scenario == scenario]
    for text in why:
        if text is not None and text not in notes:
            notes.append(text)
    marks = sorted({"lost" if text is None else f"note {notes.index(text) + 1}" for text in why})
    return ", ".join([passed, *marks])
