"""What wrapped children tell of their requests, summed up for the metrics."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from switchboard_mcp.config.sections import AskUsage
from switchboard_mcp.gateway.ask_metrics import AskTotals, values
from switchboard_mcp.observability.metrics import METRICS, render


def told(**used: object) -> Raw:
    return Raw(msgspec.json.encode(used))


def test_requests_are_summed_by_what_they_came_to() -> None:
    sums = AskTotals()
    used = AskUsage(
        outcome="ok", turns=2, input_tokens=100, output_tokens=20, cached_tokens=7, total_ms=1500.0
    )
    sums.add(Raw(msgspec.json.encode(used)))
    sums.add(told(outcome="ask_limit", turns=1, inputTokens=50, modelMs=250))
    written = render(values({"memory": sums})).decode()
    for line in (
        'switchboard_ask_requests_total{child="memory",outcome="ok"} 1',
        'switchboard_ask_requests_total{child="memory",outcome="ask_limit"} 1',
        'switchboard_ask_turns_total{child="memory"} 3',
        'switchboard_ask_tokens_total{child="memory",kind="input"} 150',
        'switchboard_ask_tokens_total{child="memory",kind="cached"} 7',
        'switchboard_ask_seconds_total{child="memory",kind="model"} 0.25',
        'switchboard_ask_seconds_total{child="memory",kind="all"} 1.5',
    ):
        assert line in written.splitlines()


def test_every_value_has_the_labels_of_its_metric() -> None:
    sums = AskTotals()
    sums.add(told(outcome="ok"))
    for value in values({"memory": sums}):
        assert tuple(value.labels) == METRICS[value.metric].labels


def test_a_child_cannot_make_up_labels_nor_count_down() -> None:
    sums = AskTotals()
    for number in range(100):
        sums.add(told(outcome=f"made up {number}", turns=-5, inputTokens=-100, totalMs=-1))
    assert sums.outcomes == {"other": 100}
    assert (sums.turns, sums.tokens["input"], sums.seconds["all"]) == (0, 0, 0)
    with pytest.raises(msgspec.DecodeError):
        sums.add(told(turns="many"))
