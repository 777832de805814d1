"""Collects the values of `GET /metrics` from the counters that gateway, children and the system keep anyway.

Names, help texts and the text format are in `observability.metrics`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET

from switchboard_mcp import __version__
from switchboard_mcp.gateway import ask_metrics
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.status import ChildStatus, child_statuses
from switchboard_mcp.observability.metrics import CONTENT_TYPE as CONTENT_TYPE
from switchboard_mcp.observability.metrics import Value, render

if TYPE_CHECKING:
    from switchboard_mcp.observability.timeline import ChildTimeline

PATH = "/metrics"
STATM, OPEN_FILES = "/proc/self/statm", "/proc/self/fd"


def render_metrics(gateway: Gateway, uptime_s: float, timelines: Mapping[str, ChildTimeline]) -> bytes:
    """Render all metrics in Prometheus' text format. `timelines` has the observed calls of each child."""
    timings = gateway.telemetry.timings if gateway.telemetry is not None else None
    failed = {suite.source: 0 for suite in gateway.all_suites.values()}
    failed |= {name: timeline.errors for name, timeline in timelines.items()}
    errors = [
        Value("switchboard_child_errors_total", count, {"child": name}) for name, count in failed.items()
    ]
    return render([*collect(gateway, uptime_s), *errors], timings)


def collect(gateway: Gateway, uptime_s: float) -> list[Value]:
    """Return all values except request durations. Starts no child."""
    in_flight = sum(len(session.in_flight) for session in gateway.sessions)
    return [
        Value("switchboard_info", 1, {"version": __version__}),
        Value("switchboard_uptime_seconds", round(uptime_s, 3)),
        Value("switchboard_hosts", sum(not session.ephemeral for session in gateway.sessions)),
        Value("switchboard_requests_under_way", in_flight),
        *_child_values(child_statuses(gateway.all_suites.values())),
        *_introspection_values(gateway),
        *_ask_values(gateway),
        *_process_values(),
    ]


def _child_values(statuses: list[ChildStatus]) -> list[Value]:
    """Sum up children; one with a process per host counts as one child."""
    by_name: dict[str, list[ChildStatus]] = {}
    for child in statuses:
        by_name.setdefault(child.child, []).append(child)
    values = []
    for name, same in by_name.items():
        figures: dict[str, float] = {
            "up": sum(status.started for status in same),
            "healthy": int(not any(status.is_unavailable for status in same)),
            "calls_total": sum(status.calls for status in same),
            "under_way": sum(status.in_flight for status in same),
            "failures": sum(status.failures for status in same),
            "tokens_saved": max(status.tokens_saved for status in same),
        }
        if any(status.sandbox for status in same):
            figures["sandbox_refusals_total"] = sum(status.sandbox_denied for status in same)
        counted = {
            id(status.results): status.results for status in same if status.results is not UNSET
        }.values()
        if counted:
            figures["result_tokens_saved_total"] = sum(counts.saved for counts in counted)
            figures["result_tokens_read_total"] = sum(counts.read_tokens for counts in counted)
        subtools = [status.subtools for status in same if status.subtools is not UNSET]
        if subtools:
            figures["subtools"] = max(subtools)
        values += [
            Value(f"switchboard_child_{key}", figure, {"child": name}) for key, figure in figures.items()
        ]
    return values


def _introspection_values(gateway: Gateway) -> list[Value]:
    return [
        Value(
            "switchboard_child_looks_total",
            sum(child.lookups for child in suite.child.processes() or [suite.child]),
            {"child": suite.source},
        )
        for suite in gateway.all_suites.values()
    ]


def _ask_values(gateway: Gateway) -> list[Value]:
    return ask_metrics.values(gateway.ask_totals) if gateway.ask_totals else []


def _process_values() -> list[Value]:
    values = [Value("process_cpu_seconds_total", time.process_time())]
    try:
        with open(STATM, encoding="ascii") as file:
            pages = int(file.read().split()[1])
        values.append(Value("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE")))
        values.append(Value("process_open_fds", len(os.listdir(OPEN_FILES))))
    except (OSError, IndexError, ValueError):
        pass  # not Linux
    return values
