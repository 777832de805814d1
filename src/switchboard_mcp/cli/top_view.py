"""What `switchboard top` draws, as lines. Knows neither terminals nor servers."""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from switchboard_mcp.cli.console import one_line, plural, truncate, visible_width

Row = Mapping[str, Any]
Paint = Callable[[str, str], str]

GOOD = frozenset({"ok", "allowed", "cancelled", "input_required"})
UNHEALTHY = frozenset({"unhealthy", "quarantined", "absent"})
COLOURS = {
    "healthy": "green",
    "starting": "cyan",
    "probation": "yellow",
    "unhealthy": "red",
    "quarantined": "bold red",
    "absent": "red",
    "untried": "dim",
}
SORTS = ("trouble", "calls", "latency", "name")
HEADER = ("SUITE", "HEALTH", "STATE", "UP", "CALLS", "NOW", "ERRORS", "P50", "P95", "SAVED", "")
RIGHT = frozenset({3, 4, 5, 6, 7, 8, 9})
ERRORS = 6
# Where a terminal has fewer columns, remarks go below the table; where it has even fewer, some of the table goes.
WIDE, MIDDLING = 220, 100
DISPENSABLE = frozenset({2, 3, 5})
LONGEST_NAME = 24
SHOWN_TROUBLES = 3
PULSE = " ▁▂▃▄▅▆▇█"
LONGEST_PULSE_S, SHORTEST_PULSE_S = 1200, 120
NOTHING = "No suites yet: `switchboard init` or `switchboard add` brings some."
MOST_CALLS = 200
MOST_POINTS = 1_000
SHOWN_CALLS = 5
GAP = 2
# Without a terminal a line is as long as it is.
ENDLESS = os.terminal_size((10_000, 10_000))


class TopState:
    """All that is known."""

    def __init__(
        self,
        url: str = "",
        about: dict[str, Any] | None = None,
        rows: dict[str, Row] | None = None,
        calls: list[Row] | None = None,
        history: list[Sequence[float]] | None = None,
    ) -> None:
        self.url = url
        self.about = about or {}
        self.rows = rows or {}
        self.calls = calls or []
        self.history = history or []

    def apply(self, event: str, data: Mapping[str, Any]) -> None:
        """Something has changed. What is shown may be drawn meanwhile, so nothing is altered in place."""
        if event == "children":
            fresh = {row["id"]: row for row in data["changed"]}
            self.rows = {id: row for id, row in (self.rows | fresh).items() if id not in data["gone"]}
        elif event == "calls":
            last = self.calls[-1]["seq"] if self.calls else 0
            self.calls = [*self.calls, *(call for call in data["calls"] if call["seq"] > last)][-MOST_CALLS:]
        elif event == "history" and data["point"]:
            point = data["point"]
            self.history = [*(each for each in self.history if each[0] != point[0]), point][-MOST_POINTS:]
        elif event == "server":
            self.about = {**self.about, **data}


def draw(
    state: TopState,
    now_s: float,
    *,
    size: os.terminal_size = ENDLESS,
    paint: Paint | None = None,
    sort: str = "name",
    first: int = 0,
) -> list[str]:
    """One picture; on a terminal no larger than that is."""
    paint = paint or (lambda text, style: text)
    on_terminal = size is not ENDLESS
    rows = sorted(state.rows.values(), key=lambda row: _rank(row, sort))
    lines = [truncate(_headline(state, rows, now_s), size.columns)]
    lines += [_sparkline(state, now_s, size.columns, paint), ""] if on_terminal else [""]
    below = _below(state, rows, size.columns, paint) if on_terminal else []
    below = below[: max(0, size.lines // 2 - 3)]  # the table comes first
    room = max(1, size.lines - len(lines) - 1 - len(below) - 2 * on_terminal)
    shown = rows[first : first + room]
    lines += _table(shown, now_s, size.columns, paint) if rows else [truncate(NOTHING, size.columns)]
    if on_terminal:
        lines += below
        more = f"{first + 1} to {first + len(shown)} of {len(rows)}, " if len(shown) < len(rows) else ""
        keys = f"{more}by {sort} · s sort · p hold · ↑↓ scroll · q quit"
        lines += [""] * max(0, size.lines - len(lines) - 1) + [paint(truncate(keys, size.columns), "dim")]
    return lines[: size.lines]


def _headline(state: TopState, rows: Sequence[Row], now_s: float) -> str:
    about = state.about
    ill = sum(row.get("health") in UNHEALTHY for row in rows)
    drifted = sum(bool(row.get("drift")) for row in rows)
    saved = sum(row.get("tokensSaved", 0) for row in rows)
    served, here = about.get("hostsServed", 0), about.get("sessions", 0)
    parts = [
        f"Switchboard {about.get('version', '')}",
        f"up {format_duration(now_s - about.get('startedAt', now_s * 1000) / 1000)}",
        plural(len(rows), "suite")
        + (f", {ill} in trouble" if ill else "")
        + (f", {drifted} drifted" if drifted else ""),
        f"{plural(served, 'host')} served" + (f", {here} here" if here else ""),
        f"{saved:,} tokens saved each",
        state.url,
    ]
    return " · ".join(parts)


def _sparkline(state: TopState, now_s: float, columns: int, paint: Paint) -> str:
    """The calls of the last minutes in one line, red where some failed."""
    up_s = now_s - state.about.get("startedAt", 0) / 1000
    span_s = min(LONGEST_PULSE_S, max(SHORTEST_PULSE_S, up_s))
    recent = [point for point in state.history if point[0] / 1000 > now_s - span_s]
    calls, errors = (int(sum(point[place] for point in recent)) for place in (2, 3))
    median = f", median {format_ms(recent[-1][4])}" if recent else ""
    head, tail = (
        f"last {format_duration(span_s)} ",
        f" {plural(calls, 'call')}, {plural(errors, 'error')}{median}",
    )
    width = columns - len(head) - len(tail)
    if width < 10:
        return truncate(head + tail, columns)
    heights, failed = [0.0] * width, [False] * width
    for at, seconds, count, bad, *_ in recent:
        begin = max(0, int((1 - (now_s - at / 1000) / span_s) * width))
        end = min(width, begin + max(1, round(seconds / span_s * width)))
        for place in range(begin, end):
            heights[place] += count / (end - begin)
            failed[place] |= bad > 0
    most = max(heights) or 1.0
    bars = (PULSE[math.ceil(height / most * 8)] for height in heights)
    drawn = "".join(paint(bar, "red" if bad else "cyan") for bar, bad in zip(bars, failed, strict=True))
    return head + drawn + tail


def _below(state: TopState, rows: Sequence[Row], columns: int, paint: Paint) -> list[str]:
    """What stands under the table: what is wrong, where there is no room for it beside, and the latest calls."""
    lines: list[str] = []
    if columns < WIDE:
        remarks = [(str(row.get("suite", "")), _remark(row)) for row in rows]
        texts = [f"{one_line(name)}: {remark}" for name, remark in remarks if remark][:SHOWN_TROUBLES]
        wrapped = [textwrap.wrap(text, max(columns, 20), max_lines=2, placeholder="…") for text in texts]
        lines += ["", paint("TROUBLE", "dim"), *(line for each in wrapped for line in each)] if texts else []
    calls = list(reversed(state.calls))[:SHOWN_CALLS]
    if calls:
        width = min(columns // 2, max(visible_width(_called(call)) for call in calls))
        texts = [truncate(_call(call, width), columns) for call in calls]
        styles = ["" if call.get("outcome") in GOOD else "red" for call in calls]
        lines += ["", paint("LATEST CALLS", "dim"), *map(paint, texts, styles)]
    return lines


def _cells(row: Row, now_s: float) -> tuple[str, ...]:
    began = row.get("startedAt", 0)
    return (
        one_line(str(row.get("suite", ""))),
        str(row.get("health", "")),
        str(row.get("state", "")),
        format_duration(now_s - began / 1000) if began else "",
        f"{row.get('calls', 0):,}",
        str(row.get("underWay", "") or ""),
        f"{row['errors']:,}" if row.get("errors") else "",
        format_ms(row.get("p50")),
        format_ms(row.get("p95")),
        f"{row['tokensSaved']:,}" if row.get("tokensSaved") else "",
        _remark(row),
    )


def _remark(row: Row) -> str:
    parts = [f"{row['drift']} drifted"] if row.get("drift") else []
    trouble = row.get("trouble")
    if trouble:
        parts.append(str(trouble.get("message", "")))
        if trouble.get("hint"):
            parts.append(f"→ {trouble['hint']}")
    return one_line(" ".join(parts))


def _table(rows: Sequence[Row], now_s: float, columns: int, paint: Paint) -> list[str]:
    left_out = set() if columns >= MIDDLING else set(DISPENSABLE)
    if columns < WIDE:
        left_out.add(len(HEADER) - 1)
    kept = [index for index in range(len(HEADER)) if index not in left_out]
    cells = [_cells(row, now_s) for row in rows]
    if columns < MIDDLING:
        cells = [(truncate(name, LONGEST_NAME), *others) for name, *others in cells]
    widths = {index: max(visible_width(row[index]) for row in (HEADER, *cells)) for index in kept}
    lines = []
    for place, texts in enumerate([HEADER, *cells]):
        parts, room = [], columns
        for index in kept:
            text, width = texts[index], widths[index]
            shown = truncate(text, room) if room > 0 else ""
            padding = " " * (min(width, room) - visible_width(shown))
            style = "dim" if place == 0 else _style(index, rows[place - 1])
            painted = paint(shown, style) if style and shown else shown
            parts.append((padding + painted if index in RIGHT else painted + padding) if room > 0 else "")
            room -= width + GAP
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _style(index: int, row: Row) -> str:
    if index == 0:
        return "bold"
    if index == ERRORS:
        return "red"
    return COLOURS.get(str(row.get("health")), "") if index == 1 else ""


def _called(call: Row) -> str:
    return one_line(f"{call.get('child', '')} {call.get('subtool', '') or call.get('kind', '')}")


def _call(call: Row, width: int) -> str:
    what = truncate(_called(call), width)
    at = time.strftime("%H:%M:%S", time.localtime(call.get("at", 0) / 1000))
    padding = " " * (width - visible_width(what))
    took, who = format_ms(call.get("ms")), one_line(str(call.get("who", "")))
    return f"{at}  {what}{padding}  {took:>8}  {call.get('outcome', '')}  {who}"


def _rank(row: Row, sort: str) -> tuple[float, str]:
    name = str(row.get("suite", ""))
    if sort == "calls":
        return -row.get("calls", 0), name
    if sort == "latency":
        return -(row.get("p95") or 0), name
    if sort == "trouble":
        return -(2 * (row.get("health") in UNHEALTHY) + bool(row.get("drift"))), name
    return 0, name


def format_ms(value: float | None) -> str:
    """How long something took, short; nothing where that is not known."""
    if value is None or value < 0:
        return ""
    return (
        f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"
    )


def format_duration(seconds: float) -> str:
    """A time span, short."""
    minutes, left = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes:02d}" if hours else f"{minutes} min" if minutes else f"{left} s"
