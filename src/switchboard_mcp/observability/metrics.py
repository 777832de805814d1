"""The table of metrics, the histogram of durations, and the Prometheus text format.

Counts are not kept here: they are collected from their owners when the metrics are read, so counting costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The boundaries of OpenTelemetry's conventions for MCP, and two more for fast children.
BOUNDARIES = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

Labels = Mapping[str, str]


class Metric(Struct, frozen=True):
    """One metric of the table and the names of its labels."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


class Value(Struct, frozen=True):
    """The value of one metric for one set of labels."""

    metric: str
    value: float
    labels: Labels = {}


DURATION = "switchboard_request_duration_seconds"
METRICS: dict[str, Metric] = {
    "switchboard_info": Metric("gauge", "Always 1; the label is the running version.", ("version",)),
    "switchboard_uptime_seconds": Metric("gauge", "Time since this process started serving."),
    "switchboard_hosts": Metric("gauge", "Connected hosts."),
    "switchboard_requests_under_way": Metric("gauge", "Host requests in progress."),
    "switchboard_child_up": Metric(
        "gauge", "Running processes or open connections of the child.", ("child",)
    ),
    "switchboard_child_healthy": Metric("gauge", "1 unless calls to the child are refused.", ("child",)),
    "switchboard_child_calls_total": Metric(
        "counter", "Requests to the child, excluding introspections of its suite.", ("child",)
    ),
    "switchboard_child_errors_total": Metric(
        "counter", "Failed calls to the child's subtools. At `/metrics` only.", ("child",)
    ),
    "switchboard_child_looks_total": Metric("counter", "Introspections of the child's suite.", ("child",)),
    "switchboard_child_under_way": Metric("gauge", "Requests that the child is working on.", ("child",)),
    "switchboard_child_failures": Metric("gauge", "Consecutive failures to start or run.", ("child",)),
    "switchboard_child_sandbox_refusals_total": Metric(
        "counter", "Files and hosts that the child's sandbox has refused, as far as it notices.", ("child",)
    ),
    "switchboard_child_subtools": Metric("gauge", "Subtools that hosts may call.", ("child",)),
    "switchboard_child_tokens_saved": Metric(
        "gauge", "Tokens a host has saved: the flat tool list, less what it was shown.", ("child",)
    ),
    "switchboard_child_result_tokens_saved_total": Metric(
        "counter",
        "Tokens of results that were selected from, shortened or compacted, less what was shown.",
        ("child",),
    ),
    "switchboard_child_result_tokens_read_total": Metric(
        "counter", "Tokens of reading on in shortened results, with the requests.", ("child",)
    ),
    "switchboard_ask_requests_total": Metric(
        "counter",
        "Natural-language requests to a wrapped child, by outcome.",
        ("child", "outcome"),
    ),
    "switchboard_ask_turns_total": Metric("counter", "Model turns of natural-language requests.", ("child",)),
    "switchboard_ask_tokens_total": Metric(
        "counter",
        "Tokens used by natural-language requests: `input`, `output`, `cached`. Estimated for a host's model.",
        ("child", "kind"),
    ),
    "switchboard_ask_seconds_total": Metric(
        "counter",
        "Duration of natural-language requests: `model`, `steps`, and `all`.",
        ("child", "kind"),
    ),
    DURATION: Metric(
        "histogram",
        "Duration of requests to the child, including its start. Only with `telemetry.metrics`.",
        ("child", "method", "outcome"),
    ),
    "process_cpu_seconds_total": Metric("counter", "CPU time of this process, excluding children."),
    "process_resident_memory_bytes": Metric(
        "gauge", "Resident memory of this process, excluding children. Linux."
    ),
    "process_open_fds": Metric("gauge", "Open file descriptors of this process. Linux."),
}


class Timings:
    """Durations of requests by child, method and outcome."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], list[int]] = {}
        self.sums: dict[tuple[str, str, str], float] = {}

    def record(self, child: str, method: str, outcome: str, seconds: float) -> None:
        """Count one request."""
        key = (child, method, outcome)
        counts = self.counts.get(key)
        if counts is None:
            counts = self.counts[key] = [0] * (len(BOUNDARIES) + 1)
            self.sums[key] = 0.0
        counts[bisect_left(BOUNDARIES, seconds)] += 1
        self.sums[key] += seconds


def render(values: Iterable[Value], timings: Timings | None = None) -> bytes:
    """Return the metrics in the Prometheus text format, in the order of the table."""
    by_metric: dict[str, list[Value]] = {}
    for value in values:
        by_metric.setdefault(value.metric, []).append(value)
    lines: list[str] = []
    for name, metric in METRICS.items():
        shown = [
            f"{name}{_labels(sample.labels)} {_number(sample.value)}" for sample in by_metric.get(name, ())
        ]
        if name == DURATION and timings is not None:
            shown = _histogram(timings)
        if shown:
            help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {metric.kind}", *shown]
    return ("\n".join(lines) + "\n").encode()


def _histogram(timings: Timings) -> list[str]:
    lines = []
    for key, counts in sorted(timings.counts.items()):
        labels = dict(zip(METRICS[DURATION].labels, key, strict=True))
        total = 0
        for boundary, count in zip((*map(_number, BOUNDARIES), "+Inf"), counts, strict=True):
            total += count
            lines.append(f"{DURATION}_bucket{_labels({**labels, 'le': boundary})} {total}")
        lines.append(f"{DURATION}_sum{_labels(labels)} {_number(timings.sums[key])}")
        lines.append(f"{DURATION}_count{_labels(labels)} {total}")
    return lines


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    # A lone surrogate, as JSON may carry, cannot be written as UTF-8.
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(value)
