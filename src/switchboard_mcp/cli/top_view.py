"""What `switchboard top` draws, as lines. Knows neither terminals nor servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from switchboard_mcp.cli.console import cut, one_line, plural, visible_width

Row = Mapping[str, Any]
Paint = Callable[[str, str], str]

ILL = frozenset({"unhealthy", "quarantined", "absent"})
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
HEADER = ("SUITE", "HEALTH", "STATE", "UP", "CALLS", "NOW", "P50", "P95", "SAVED", "")
RIGHT = frozenset({3, 4, 5, 6, 7, 8})
MOST_CALLS = 200
SHOWN_CALLS = 5
GAP = 2
# Without a terminal a line is as long as it is.
ENDLESS = os.terminal_size((10_000, 10_000))


class Glance:
    """All that is known."""

    def __init__(
        self,
        url: str = "",
        about: dict[str, Any] | None = None,
        rows: dict[str, Row] | None = None,
        calls: list[Row] | None = None,
    ) -> None:
        self.url = url
        self.about = about or {}
        self.rows = rows or {}
        self.calls = calls or []

    def take(self, event: str, told: Mapping[str, Any]) -> None:
        """Something has changed. What is shown may be drawn meanwhile, so nothing is altered in place."""
        if event == "children":
            fresh = {row["id"]: row for row in told["changed"]}
            self.rows = {id: row for id, row in (self.rows | fresh).items() if id not in told["gone"]}
        elif event == "calls":
            last = self.calls[-1]["seq"] if self.calls else 0
            self.calls = [*self.calls, *(call for call in told["calls"] if call["seq"] > last)][-MOST_CALLS:]
        elif event == "server":
            self.about = {**self.about, **told}


def draw(
    glance: Glance,
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
    rows = sorted(glance.rows.values(), key=lambda row: _rank(row, sort))
    lines = [cut(_headline(glance, rows, now_s), size.columns), ""]
    calls = list(reversed(glance.calls))[:SHOWN_CALLS] if on_terminal else []
    below = (len(calls) + 2 if calls else 0) + (2 if on_terminal else 0)
    room = max(1, size.lines - len(lines) - 1 - below)
    shown = rows[first : first + room]
    lines += _table([_cells(row, now_s) for row in shown], shown, size.columns, paint)
    if calls:
        lines += ["", paint("LATEST CALLS", "dim"), *(cut(_call(call), size.columns) for call in calls)]
    if on_terminal:
        more = f"{first + 1} to {first + len(shown)} of {len(rows)}, " if len(shown) < len(rows) else ""
        keys = f"{more}by {sort} · s sort · p hold · ↑↓ scroll · q quit"
        lines += [""] * max(0, size.lines - len(lines) - 1) + [paint(cut(keys, size.columns), "dim")]
    return lines[: size.lines]


def _headline(glance: Glance, rows: Sequence[Row], now_s: float) -> str:
    about = glance.about
    ill = sum(row.get("health") in ILL for row in rows)
    drifted = sum(bool(row.get("drift")) for row in rows)
    saved = sum(row.get("tokensSaved", 0) for row in rows)
    parts = [
        f"Switchboard {about.get('version', '')} at {glance.url}",
        f"up {spell(now_s - about.get('startedAt', now_s * 1000) / 1000)}",
        plural(about.get("sessions", 0), "host"),
        plural(len(rows), "suite")
        + (f", {ill} in trouble" if ill else "")
        + (f", {drifted} drifted" if drifted else ""),
        f"{saved:,} tokens saved for each host",
    ]
    return " · ".join(parts)


def _cells(row: Row, now_s: float) -> tuple[str, ...]:
    began = row.get("startedAt", 0)
    return (
        one_line(str(row.get("suite", ""))),
        str(row.get("health", "")),
        str(row.get("state", "")),
        spell(now_s - began / 1000) if began else "",
        f"{row.get('calls', 0):,}",
        str(row.get("underWay", "") or ""),
        _ms(row.get("p50")),
        _ms(row.get("p95")),
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


def _table(cells: Sequence[Sequence[str]], rows: Sequence[Row], columns: int, paint: Paint) -> list[str]:
    widths = [max(map(visible_width, column)) for column in zip(HEADER, *cells, strict=True)]
    lines = []
    for place, row in enumerate([HEADER, *cells]):
        parts, room = [], columns
        for index, (text, width) in enumerate(zip(row, widths, strict=True)):
            shown = cut(text, room) if room > 0 else ""
            padding = " " * (width - visible_width(text)) if index < len(widths) - 1 else ""
            style = "dim" if place == 0 else _style(index, rows[place - 1])
            painted = paint(shown, style) if style and shown else shown
            parts.append((padding + painted if index in RIGHT else painted + padding) if room > 0 else "")
            room -= width + GAP
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _style(index: int, row: Row) -> str:
    if index == 0:
        return "bold"
    return COLOURS.get(str(row.get("health")), "") if index == 1 else ""


def _call(call: Row) -> str:
    what = one_line(f"{call.get('child', '')} {call.get('subtool', '') or call.get('kind', '')}")
    return f"{what}  {_ms(call.get('ms'))}  {call.get('outcome', '')}  {one_line(str(call.get('who', '')))}"


def _rank(row: Row, sort: str) -> tuple[float, str]:
    name = str(row.get("suite", ""))
    if sort == "calls":
        return -row.get("calls", 0), name
    if sort == "latency":
        return -(row.get("p95") or 0), name
    if sort == "trouble":
        return -(2 * (row.get("health") in ILL) + bool(row.get("drift"))), name
    return 0, name


def _ms(value: float | None) -> str:
    if value is None or value < 0:
        return ""
    return (
        f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"
    )


def spell(seconds: float) -> str:
    """A time span, short."""
    minutes, left = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes:02d}" if hours else f"{minutes} min" if minutes else f"{left} s"
