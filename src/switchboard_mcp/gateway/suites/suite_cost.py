"""What a suite costs in tokens: its child's tools listed as they are, and behind the suite tool.

Measured on what is known of the child, once for each state of that knowledge. Loaded only where somebody wants to know:
for exposure `auto`, and for what the status tells of tokens saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import encode

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.gateway.suites.suite_tools import SHAPES
from switchboard_mcp.suites.introspect import ToolView
from switchboard_mcp.suites.savings import ServerTools, Weight, measure_weight
from switchboard_mcp.suites.tokens import estimate

if TYPE_CHECKING:
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

UNKNOWN = Weight(0, 0, 0.0)


class SuiteCost:
    """The weight of a suite, and the tools it was taken from."""

    def __init__(self, weight: Weight, knowledge: ServerSnapshot | None) -> None:
        self.weight = weight
        self._tools = knowledge.tools if knowledge is not None else None

    @classmethod
    def measure(cls, suite: ChildSuite) -> SuiteCost:
        """Measure; of a child of which nothing is known, nothing."""
        knowledge = suite.child.snapshot
        if knowledge is None:
            return cls(UNKNOWN, None)
        views = [
            ToolView(tool.name, tool.description or "", tool.input_schema)
            for tool in suite.permitted(suite.child.inventory.known_tools())
        ]
        descriptor = encode(suite.descriptor(SHAPES[0]))
        server = ServerTools(suite.source, views, descriptor, suite.child.inventory.instructions)
        return cls(measure_weight(server, estimate, suite.introspection), knowledge)

    def is_current(self, suite: ChildSuite) -> bool:
        """Whether nothing else is known by now."""
        knowledge = suite.child.snapshot
        return (knowledge.tools if knowledge is not None else None) is self._tools

    @property
    def flat_is_cheaper(self) -> bool:
        """Whether hosts pay less for the tools as they are."""
        return self.weight.flat_is_cheaper

    def tokens_saved(self, suite: ChildSuite, *, opened: bool) -> int:
        """Tokens that a host has saved: those of the flat list, less the suite tool, and less a look inside if any."""
        if suite.direct or not self.weight.flat:
            return 0
        return round(self.weight.flat - self.weight.suite - (self.weight.opening if opened else 0))
