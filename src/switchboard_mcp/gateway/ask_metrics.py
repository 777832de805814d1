"""What requests in natural language have cost, by wrapped child, as their wrappers tell it.

Owns the sums. A wrapper is a process of its own; what it says here is counted and reaches no host.
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
    """Of one child."""

    outcomes: dict[str, int] = {}
    turns: int = 0
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}

    def add(self, params: Raw) -> AskUsage:
        """One more request, which is given back as it was told."""
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
    """As metrics."""
    found = []
    for child, each in sums.items():
        told: list[tuple[str, str, dict[str, int] | dict[str, float]]] = [
            ("requests", "outcome", each.outcomes),
            ("tokens", "kind", each.tokens),
            ("seconds", "kind", each.seconds),
        ]
        for name, label, by_label in told:
            found += [
                Value(f"switchboard_ask_{name}_total", value, {"child": child, label: key})
                for key, value in by_label.items()
            ]
        found.append(Value("switchboard_ask_turns_total", each.turns, {"child": child}))
    return found
