"""The text that Prometheus reads, read by Prometheus' own parser."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from switchboard_mcp.observability.metrics import BOUNDARIES, DURATION, METRICS, Timings, Value, render
from tests.cases import each_case

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: bytes) -> Found:
    """Every sample by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_values_are_read_as_they_were_written() -> None:
    text = render(
        [
            Value("switchboard_hosts", 3),
            Value("process_cpu_seconds_total", 1.25),
            Value("switchboard_child_calls_total", 7, {"child": "git"}),
        ]
    )
    assert parsed(text) == {
        ("switchboard_hosts", ()): 3,
        ("process_cpu_seconds_total", ()): 1.25,
        ("switchboard_child_calls_total", (("child", "git"),)): 7,
    }


@each_case("name", ['a"b', "a\\b", "a\nb", "a\\nb", "naïve ☎", "x} 1\nevil 2", ""])
def test_no_name_of_a_child_can_break_out_of_its_label(name: str) -> None:
    text = render([Value("switchboard_child_up", 1, {"child": name})])
    assert parsed(text) == {("switchboard_child_up", (("child", name),)): 1}


def test_a_name_that_is_no_text_is_still_readable() -> None:
    text = render([Value("switchboard_child_up", 1, {"child": "a\ud800b"})])
    assert parsed(text) == {("switchboard_child_up", (("child", "a?b"),)): 1}


def test_each_metric_is_introduced_with_its_type_and_meaning() -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families(
            render(
                [Value(name, 1, dict.fromkeys(metric.labels, "x")) for name, metric in METRICS.items()]
            ).decode()
        )
    }
    for name, metric in METRICS.items():
        if metric.kind != "histogram":
            family = families[name.removesuffix("_total") if metric.kind == "counter" else name]
            assert (family.type, family.documentation) == (metric.kind, metric.help)


def test_times_are_counted_in_all_buckets_that_hold_them() -> None:
    timings = Timings()
    for seconds in (0.0005, 0.001, 0.015, 400.0):
        timings.record("git", "tools/call", "ok", seconds)
    found = parsed(render([], timings))
    labels = (("child", "git"), ("method", "tools/call"), ("outcome", "ok"))

    def bucket(boundary: str) -> float:
        return found[f"{DURATION}_bucket", tuple(sorted((*labels, ("le", boundary))))]

    assert (bucket("0.001"), bucket("0.01"), bucket("0.02"), bucket("300"), bucket("+Inf")) == (2, 2, 3, 3, 4)
    assert found[f"{DURATION}_count", labels] == 4
    assert math.isclose(found[f"{DURATION}_sum", labels], 400.0165)
    assert sum(name == f"{DURATION}_bucket" for name, _ in found) == len(BOUNDARIES) + 1
