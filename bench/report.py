"""Results of a run: tables, goals and figures, and their rendering as text.

Owns shapes and layout. It does not know where a figure comes from.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Figures = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    quick: bool = False
    only: tuple[str, ...] = ()

    def wants(self, contestant: str) -> bool:
        """Return True if a contestant is selected; `direct` always is, since the others are compared with it."""
        return not self.only or contestant in ("direct", *self.only)

    def pick(self, thorough: int, quick: int) -> int:
        return quick if self.quick else thorough


@dataclass(frozen=True)
class Goal:
    """A goal as a ratio or a figure of this run; `value` is None if a contestant was missing."""

    text: str
    value: float | None
    bound: Literal["at most", "at least"]
    limit: float
    unit: str = "×"

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value <= self.limit if self.bound == "at most" else self.value >= self.limit


@dataclass(frozen=True)
class Table:
    """Rows of text under a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Report:
    """The result of one scenario. `figures`: contestant → name of the figure → median."""

    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    figures: Figures = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Samples:
    """Figures of many rounds, by contestant and name."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = {}

    def add(self, who: str, what: str, value: float) -> None:
        self.values.setdefault(who, {}).setdefault(what, []).append(value)

    def medians(self) -> Figures:
        return {
            who: {what: statistics.median(v) for what, v in named.items()}
            for who, named in self.values.items()
        }


def ratio(figures: Figures, above: tuple[str, str], below: tuple[str, str]) -> float | None:
    """Return one figure divided by another; None if either is missing."""
    top = figures.get(above[0], {}).get(above[1])
    bottom = figures.get(below[0], {}).get(below[1])
    return top / bottom if top is not None and bottom else None


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def cell(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def render_table(table: Table) -> str:
    rows = [list(table.columns), *(list(row) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]

    def line(row: Sequence[str]) -> str:
        cells = (
            text.ljust(width) if n == 0 else text.rjust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join(
        [f"{table.title}\n", line(rows[0]), "  ".join("─" * width for width in widths), *map(line, rows[1:])]
    )


def render_goals(goals: Iterable[Goal]) -> str:
    words = {True: "ok", False: "MISSED", None: "not measured"}
    rows = [
        [
            goal.text,
            f"{cell(goal.value)} {goal.unit}" if goal.value is not None else "–",
            f"{goal.bound} {goal.limit:g} {goal.unit}",
            words[goal.met],
        ]
        for goal in goals
    ]
    return render_table(Table("Goals", ["goal", "here", "wanted", ""], rows))
