"""Renders the screen of `switchboard top` as lines. It is aware of neither terminals nor servers."""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import UNSET, to_builtins
from msgspec.structs import astuple

from switchboard_mcp.cli.commands.broker import SESSION_ALIGN, SESSION_HEADER, session_cells
from switchboard_mcp.cli.console import (
    Styled,
    format_duration,
    format_table,
    one_line,
    plural,
    truncate,
    visible_width,
)
from switchboard_mcp.system.processes import started_at

if TYPE_CHECKING:
    from switchboard_mcp.gateway.status import ChildUse, SessionStatus
    from switchboard_mcp.server.broker_report import BrokerReport
    from switchboard_mcp.server.stdio_info import StdioInfo

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
    "disabled": "dim",
}
SORTS = ("trouble", "calls", "latency", "name")
# Terminal widths from which on columns are shown. Below WIDE, remarks go under the table.
NARROW, MEDIUM, WIDE = 0, 100, 220
LONGEST_NAME = 24
SHOWN_REMARKS = 3
BARS = " ▁▂▃▄▅▆▇█"
LONGEST_SPAN_S, SHORTEST_SPAN_S = 1200, 120
NO_SUITES = "No suites yet: `switchboard init` or `switchboard add NAME -- CMD` adds some."
MOST_CALLS = 200
MOST_POINTS = 1_000
SHOWN_CALLS = 5
SHOWN_SESSIONS = 10
# Without a terminal, lines may have any length.
UNLIMITED = os.terminal_size((10_000, 10_000))


class TopState:
    """Everything known of the server."""

    def __init__(
        self,
        url: str = "",
        about: dict[str, Any] | None = None,
        rows: dict[str, Row] | None = None,
        calls: list[Row] | None = None,
        history: list[Sequence[float]] | None = None,
        stdio: Sequence[StdioInfo] = (),
    ) -> None:
        self.url = url
        self.about = about or {}
        self.rows = rows or {}
        self.calls = calls or []
        self.history = history or []
        self.stdio = stdio  # servers that hosts have started
        self.sessions: Sequence[SessionStatus] = ()  # those of brokers

    def set_brokers(
        self, reports: Sequence[BrokerReport], calls: Sequence[Row], stdio: Sequence[StdioInfo]
    ) -> None:
        """Take what the brokers report, calls that are not known yet, and the servers without a broker."""
        self.stdio = stdio
        self.sessions = [session for report in reports for session in report.sessions]
        several = len(reports) > 1
        self.url = "".join(f"{', ' * bool(n)}broker {broker.pid}" for n, broker in enumerate(reports))
        self.rows = {}
        for report in reports:
            for child in report.children:
                row = _broker_row(child)
                if several:
                    row["suite"] = f"{child.suite} ({report.pid})"
                self.rows[f"{report.pid} {child.id}"] = row
        self.calls = [*self.calls, *calls][-MOST_CALLS:]
        watched = [report.watched for report in reports if report.watched is not None]
        self.history = [list(map(float, astuple(point))) for broker in watched for point in broker.history]
        self.about = {
            "version": ", ".join(sorted({report.version for report in reports})),
            "startedAt": min((report.started_at for report in reports), default=0),
            "sessions": len(self.sessions),
            "hostsServed": sum(report.hosts_served for report in reports),
        }

    def apply(self, event: str, data: Mapping[str, Any]) -> None:
        """Apply an event. Another thread may be drawing, so nothing is modified in place."""
        if event == "children":
            fresh = {row["id"]: row for row in data["changed"]}
            self.rows = {id: row for id, row in (self.rows | fresh).items() if id not in data["gone"]}
        elif event == "calls":
            last = self.calls[-1]["seq"] if self.calls else 0
            self.calls = [*self.calls, *(call for call in data["calls"] if call["seq"] > last)][-MOST_CALLS:]
        elif event == "history" and data["point"]:
            point = data["point"]
            self.history = [*(earlier for earlier in self.history if earlier[0] != point[0]), point][
                -MOST_POINTS:
            ]
        elif event == "server":
            self.about = {**self.about, **data}


def _broker_row(child: ChildUse) -> dict[str, Any]:
    """Return the row of a child as the API of the dashboard has it."""
    row: dict[str, Any] = to_builtins(child)
    if child.pid:
        row["startedAt"] = started_at(child.pid)
    if child.last_failure is not UNSET:
        row["trouble"] = to_builtins(child.last_failure)
    return row


def draw(
    state: TopState,
    now_s: float,
    *,
    size: os.terminal_size = UNLIMITED,
    paint: Paint | None = None,
    sort: str = "name",
    first: int = 0,
) -> list[str]:
    """Return the lines of one screen, never larger than the terminal."""
    paint = paint or (lambda text, style: text)
    on_terminal = size is not UNLIMITED
    if not state.url:
        return _draw_stdio(state, now_s, size, paint)
    rows = sorted(state.rows.values(), key=lambda row: _rank(row, sort))
    lines = [truncate(_headline(state, rows, now_s), size.columns)]
    lines += [_sparkline(state, now_s, size.columns, paint), ""] if on_terminal else [""]
    below = _below(state, rows, now_s, size.columns, paint) if on_terminal else []
    below = below[: max(0, size.lines // 2 - 3)]  # the table comes first
    room = max(1, size.lines - len(lines) - 1 - len(below) - 2 * on_terminal)
    shown = rows[first : first + room]
    lines += _table(shown, now_s, size.columns, paint) if rows else [truncate(NO_SUITES, size.columns)]
    if on_terminal:
        lines += below
        more = f"{first + 1} to {first + len(shown)} of {len(rows)}, " if len(shown) < len(rows) else ""
        keys = f"{more}by {sort} · s sort · p pause · ↑↓ scroll · q quit"
        lines += [""] * max(0, size.lines - len(lines) - 1) + [paint(truncate(keys, size.columns), "dim")]
    return lines[: size.lines]


def _headline(state: TopState, rows: Sequence[Row], now_s: float) -> str:
    about = state.about
    disabled = sum(row.get("state") == "disabled" for row in rows)
    ill = sum(row.get("health") in UNHEALTHY for row in rows)
    drifted = sum(bool(row.get("drift")) for row in rows)
    saved = sum(row.get("tokensSaved", 0) for row in rows)
    served, here = about.get("hostsServed", 0), about.get("sessions", 0)
    parts = [
        f"Switchboard {about.get('version', '')}",
        f"up {format_duration(now_s - about.get('startedAt', now_s * 1000) / 1000)}",
        plural(len(rows) - disabled, "suite")
        + (f", {ill} failing" if ill else "")
        + (f", {drifted} drifted" if drifted else "")
        + (f", {disabled} disabled" if disabled else ""),
        f"{plural(served, 'host')} served" + (f", {here} here" if here else ""),
        f"{saved:,} tokens saved each",
        state.url,
    ]
    return " · ".join(parts)


def _sparkline(state: TopState, now_s: float, columns: int, paint: Paint) -> str:
    """Return the calls of the last minutes as one line of bars, red where some failed."""
    up_s = now_s - state.about.get("startedAt", 0) / 1000
    span_s = min(LONGEST_SPAN_S, max(SHORTEST_SPAN_S, up_s))
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
    bars = (BARS[math.ceil(height / most * 8)] for height in heights)
    drawn = "".join(paint(bar, "red" if bad else "cyan") for bar, bad in zip(bars, failed, strict=True))
    return head + drawn + tail


def _draw_stdio(state: TopState, now_s: float, size: os.terminal_size, paint: Paint) -> list[str]:
    """Return the screen of servers that hosts have started, if there is no HTTP server."""
    count = plural(len(state.stdio), "server")
    lines = [truncate(f"{count} started by hosts over stdio · no HTTP server here", size.columns), ""]
    lines += _stdio_table(state.stdio, now_s, size.columns, paint)[: max(1, size.lines - 4)]
    hint = "`switchboard serve --http` shows calls and children · q quit"
    lines += [""] * max(0, size.lines - len(lines) - 1) + [paint(truncate(hint, size.columns), "dim")]
    return lines[: size.lines]


def _stdio_table(servers: Sequence[StdioInfo], now_s: float, columns: int, paint: Paint) -> list[str]:
    table = [[Styled(title, "dim") for title in ("STDIO HOST", "PID", "UP", "WORKSPACE")]]
    table += [
        [
            Styled(one_line(server.client) or "?", "bold"),
            Styled(str(server.pid)),
            Styled(format_duration(now_s - server.started_at / 1000)),
            Styled(one_line(server.workspace)),
        ]
        for server in servers
    ]
    return format_table(table, paint, width=columns, align="lrr", cell_lines=1)


def _below(state: TopState, rows: Sequence[Row], now_s: float, columns: int, paint: Paint) -> list[str]:
    """Return the lines under the table: remarks that do not fit beside it, stdio servers, and the latest calls."""
    lines: list[str] = []
    if columns < WIDE:
        remarks = [(str(row.get("suite", "")), _remark(row)) for row in rows]
        texts = [f"{one_line(name)}: {remark}" for name, remark in remarks if remark][:SHOWN_REMARKS]
        wrapped = [textwrap.wrap(text, max(columns, 20), max_lines=2, placeholder="…") for text in texts]
        lines += (
            ["", paint("TROUBLE", "dim"), *(line for lines_of_text in wrapped for line in lines_of_text)]
            if texts
            else []
        )
    if state.sessions:
        table = [[Styled(title, "dim") for title in SESSION_HEADER]]
        table += [list(session_cells(session, now_s)) for session in state.sessions[:SHOWN_SESSIONS]]
        shown = format_table(
            table, paint, width=columns, align=SESSION_ALIGN, cell_lines=1, optional=(1, 6, 5)
        )
        more = len(state.sessions) - SHOWN_SESSIONS
        lines += ["", *shown, *([paint(f"and {more} more", "dim")] if more > 0 else [])]
    if state.stdio:
        lines += ["", *_stdio_table(state.stdio, now_s, columns, paint)]
    calls = list(reversed(state.calls))[:SHOWN_CALLS]
    if calls:
        width = min(columns // 2, max(visible_width(_called(call)) for call in calls))
        texts = [truncate(_call(call, width), columns) for call in calls]
        styles = ["" if call.get("outcome") in GOOD else "red" for call in calls]
        lines += ["", paint("LATEST CALLS", "dim"), *map(paint, texts, styles)]
    return lines


class Column(NamedTuple):
    """One column of the table of suites."""

    title: str
    cell: Callable[[Row, float], str]
    """Returns the text of a row at a time."""
    align: Literal["l", "r"] = "l"
    style: Callable[[Row], str] = lambda row: ""
    min_terminal_width: int = NARROW
    """The column is left out on a narrower terminal."""


def _uptime(row: Row, now_s: float) -> str:
    began = row.get("startedAt", 0)
    return format_duration(now_s - began / 1000) if began else ""


def _count(key: str) -> Callable[[Row, float], str]:
    """Return a cell that leaves zero empty."""
    return lambda row, now_s: f"{row[key]:,}" if row.get(key) else ""


def _remark(row: Row) -> str:
    parts = [f"{row['drift']} drifted"] if row.get("drift") else []
    trouble = row.get("trouble")
    if trouble:
        parts.append(str(trouble.get("message", "")))
        if trouble.get("hint"):
            parts.append(f"→ {trouble['hint']}")
    return one_line(" ".join(parts))


COLUMNS = (
    Column("SUITE", lambda row, now_s: one_line(str(row.get("suite", ""))), style=lambda row: "bold"),
    Column(
        "HEALTH",
        lambda row, now_s: str(row.get("health", "")),
        style=lambda row: COLOURS.get(str(row.get("health")), ""),
    ),
    Column("STATE", lambda row, now_s: str(row.get("state", "")), min_terminal_width=MEDIUM),
    Column("UP", _uptime, "r", min_terminal_width=MEDIUM),
    Column("CALLS", lambda row, now_s: f"{row.get('calls', 0):,}", "r"),
    Column("NOW", lambda row, now_s: str(row.get("inFlight", "") or ""), "r", min_terminal_width=MEDIUM),
    Column("ERRORS", _count("errors"), "r", style=lambda row: "red"),
    Column("P50", lambda row, now_s: format_ms(row.get("p50")), "r"),
    Column("P95", lambda row, now_s: format_ms(row.get("p95")), "r"),
    Column("SAVED", _count("tokensSaved"), "r"),
    Column("", lambda row, now_s: _remark(row), min_terminal_width=WIDE),
)


def _table(rows: Sequence[Row], now_s: float, columns: int, paint: Paint) -> list[str]:
    shown = [column for column in COLUMNS if columns >= column.min_terminal_width]
    table = [[Styled(column.title, "dim") for column in shown]]
    for row in rows:
        cells = [Styled(column.cell(row, now_s), column.style(row)) for column in shown]
        if columns < MEDIUM:
            cells[0] = Styled(truncate(cells[0].text, LONGEST_NAME), cells[0].style)
        table.append(cells)
    align = "".join(column.align for column in shown)
    return format_table(table, paint, width=columns, align=align, cell_lines=1)


def _called(call: Row) -> str:
    return one_line(f"{call.get('child', '')} {call.get('subtool', '') or call.get('kind', '')}")


def _call(call: Row, width: int) -> str:
    what = truncate(_called(call), width)
    at = time.strftime("%H:%M:%S", time.localtime(call.get("at", 0) / 1000))
    padding = " " * (width - visible_width(what))
    took, who = format_ms(call.get("ms")), one_line(str(call.get("client") or call.get("who", "")))
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
    """Format a time in milliseconds; empty if it is unknown."""
    if value is None or value < 0:
        return ""
    return (
        f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"
    )
