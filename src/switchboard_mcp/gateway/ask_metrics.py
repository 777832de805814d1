"""Totals of requests in natural language, per wrapped child, as reported by the wrappers.

A wrapper is a separate process; its usage notifications are counted here and reach no host.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.config.sections import AskUsage
from switchboard_mcp.errors import KINDS
from switchboard_mcp.observability.metrics import Value

OUTCOMES = frozenset({"ok", "child_failed", *KINDS})

_decode = msgspec.json.Decoder(AskUsage).decode


class AskTotals(Struct):
    """Totals of one child."""

    outcomes: dict[str, int] = {}
    turns: int = 0
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}

    def add(self, params: Raw) -> AskUsage:
        """Add one request's usage and return it decoded."""
        used = _decode(params)
        outcome = used.outcome if used.outcome in OUTCOMES else "other"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.turns += max(used.turns, 0)
        read = {"input": used.input_tokens, "output": used.output_tokens, "cached": used.cached_tokens}
        for kind, count in read.items():
            self.tokens[kind] = self.tokens.get(kind, 0) + max(count, 0)
        spent = {"model": used.model_ms, "steps": used.steps_ms, "all": used.total_ms}
        for kind, milliseconds in spent.items():
            self.seconds[kind] = self.seconds.get(kind, 0.0) + max(milliseconds, 0.0) / 1000
        return used


def values(sums: dict[str, AskTotals]) -> list[Value]:
    """Return the totals as metrics."""
    metrics = []
    for child, child_totals in sums.items():
        series: list[tuple[str, str, dict[str, int] | dict[str, float]]] = [
            ("requests", "outcome", child_totals.outcomes),
            ("tokens", "kind", child_totals.tokens),
            ("seconds", "kind", child_totals.seconds),
        ]
        for name, label, by_label in series:
            metrics += [
                Value(f"switchboard_ask_{name}_total", value, {"child": child, label: key})
                for key, value in by_label.items()
            ]
        metrics.append(Value("switchboard_ask_turns_total", child_totals.turns, {"child": child}))
    return metrics
