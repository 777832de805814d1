"""The cost of a suite in tokens: its child's tools listed flat, and behind the suite tool.

Measured on the child's snapshot, once per snapshot. Loaded only on demand: for exposure `auto`, and for the tokens
saved that the status reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec.json import encode

from switchboard_mcp.children.catalog import ServerSnapshot, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.gateway.suites.suite_tools import SHAPES, ListedSuite, Shape
from switchboard_mcp.suites.introspect import IntrospectSettings
from switchboard_mcp.suites.savings import ServerTools, Weight, flat_listing, measure_weight
from switchboard_mcp.suites.token_estimate import estimate

UNKNOWN = Weight(0, 0, 0.0)
# Tools beyond this are not rendered for the measurement: it takes long, and opening such a suite uses up its budget.
MAX_RENDERED_BYTES = 64 * 1024


class MeasuredSuite(ListedSuite, Protocol):
    """A suite whose cost can be measured."""

    source: str
    child: Child
    introspection: IntrospectSettings

    def descriptors(self, shape: Shape) -> list[dict[str, object]]:
        """Return the suite tools that are listed, unless the child is direct."""

    @property
    def direct(self) -> bool:
        """True if hosts see the child's own tools in place of a suite tool."""

    def permitted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that exist for a host."""


class SuiteCost:
    """The weight of a suite, and the snapshot it was measured on."""

    def __init__(self, weight: Weight, snapshot: ServerSnapshot | None) -> None:
        self.weight = weight
        self._tools = snapshot.tools if snapshot is not None else None

    @classmethod
    def measure(cls, suite: MeasuredSuite) -> SuiteCost:
        """Measure a suite. An unknown child costs nothing yet."""
        snapshot = suite.child.snapshot
        if snapshot is None:
            return cls(UNKNOWN, None)
        tools = suite.permitted(suite.child.inventory.known_tools())
        views = [tool.view() for tool in tools]
        descriptor = b"".join(encode(tool) for tool in suite.descriptors(SHAPES[0]))
        if sum(tool.size for tool in tools) > MAX_RENDERED_BYTES:
            flat = sum(map(estimate, flat_listing(views)))
            return cls(Weight(flat, estimate(descriptor), suite.introspection.budget_tokens), snapshot)
        server = ServerTools(suite.source, views, descriptor, suite.child.inventory.instructions)
        return cls(measure_weight(server, estimate, suite.introspection), snapshot)

    def is_current(self, suite: MeasuredSuite) -> bool:
        """Return whether the child's snapshot is still the measured one."""
        snapshot = suite.child.snapshot
        return (snapshot.tools if snapshot is not None else None) is self._tools

    @property
    def flat_is_cheaper(self) -> bool:
        """True if the flat list costs hosts less than the suite tool."""
        return self.weight.flat_is_cheaper

    def tokens_saved(self, suite: MeasuredSuite, *, opened: bool) -> int:
        """Return the tokens a host has saved: the flat list less the suite tool, less introspection if `opened`."""
        if suite.direct or not self.weight.flat:
            return 0
        return round(self.weight.flat - self.weight.suite - (self.weight.opening if opened else 0))
