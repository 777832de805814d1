"""What hosts would see of a workspace, listed, opened and counted from its lock, without a start.

Owns the figures of `metrics.json`: sizes, tokens by our own harness, and times in buckets so coarse that every machine
finds the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.errors import Failure
from switchboard_mcp.evidence.artifacts import ChildTokens, TokenEvidence
from switchboard_mcp.gateway.suites.suite_tools import SHAPES, Shape, describe, list_tools, merged_annotations
from switchboard_mcp.policy.access import Access
from switchboard_mcp.suites import introspect, savings
from switchboard_mcp.suites.introspect import IntrospectRequest, ToolView
from switchboard_mcp.suites.tokens import estimate

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_calls import PlainParams

HARNESS = "switchboard_mcp.suites.tokens: estimate of o200k"
BASELINE = "name, description and input schema of every subtool that exists for a host, as compact JSON"
# The one edge of the exercise: any machine is within it by a factor of hundreds.
EXERCISE_S = 1.0
TRIES = 3
T = TypeVar("T")


class PinnedSuite(Struct):
    """A child as the lock has it, and as hosts see it. Serves nobody."""

    spec: ChildSpec
    name: str
    source: str
    access: Access
    tools: list[Tool]
    instructions: str
    suite: SuiteConfig
    introspection: introspect.IntrospectSettings
    description: str

    def permitted(self) -> list[Tool]:
        """The tools that exist for a host."""
        return [tool for tool in self.tools if self.access.permits(tool.name)]

    def views(self) -> list[ToolView]:
        """The same, to be counted."""
        return [ToolView(tool.name, tool.description or "", tool.input_schema) for tool in self.permitted()]

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """The suite tool."""
        tools = self.permitted()
        hints = merged_annotations(tools) if tools else None
        return describe(self.name, self.description, [tool.name for tool in tools], shape, hints)

    def introspected(self) -> bytes:
        """What a model reads that opens the suite."""
        answer = introspect.answer(
            self.source, self.views(), IntrospectRequest(), self.introspection, self.instructions
        )
        return b"" if isinstance(answer, Failure) else answer

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Nobody calls it."""
        raise NotImplementedError


class Measurements(Struct, frozen=True):
    """Sizes, tokens and times of what hosts would see."""

    suites: int
    direct_tools: int
    list_bytes: int
    largest_introspect: int
    tokens: TokenEvidence
    exercise: dict[str, int]


def measure(pinned: list[PinnedSuite]) -> Measurements:
    """List everything and open every suite, as a host would, from the lock."""
    watch = Stopwatch()
    lazy = [view for view in pinned if view.suite.exposure != "direct"]
    direct = [
        tool.raw for view in pinned if view not in lazy for tool in view.permitted() if tool.raw is not UNSET
    ]
    listed = watch.timed(lambda: list_tools(lazy, direct, {}))
    opened = [watch.timed(view.introspected) for view in lazy]
    costs = [
        savings.measure(
            savings.ServerTools(
                view.source, view.views(), msgspec.json.encode(view.descriptor(SHAPES[0])), view.instructions
            ),
            estimate,
            view.introspection,
        )
        for view in lazy
    ]
    flat, suites = sum(cost.flat for cost in costs), sum(cost.suite for cost in costs)
    tokens = TokenEvidence(
        harness=HARNESS,
        baseline=BASELINE,
        flat=flat,
        suites=suites,
        saved_permille=(flat - suites) * 1000 // flat if flat else 0,
        children=[
            ChildTokens(
                name=cost.name, tools=cost.tools, flat=cost.flat, suite=cost.suite, introspect=cost.introspect
            )
            for cost in costs
        ],
    )
    return Measurements(
        len(lazy), len(direct), len(listed), max(map(len, opened), default=0), tokens, watch.counts
    )


class Stopwatch:
    """Counts what took at most the one edge: the best of a few tries, so that a busy machine finds the same."""

    def __init__(self) -> None:
        self.counts = {"1s": 0, "more": 0}

    def timed(self, work: Callable[[], T]) -> T:
        """The result of the work."""
        result, took = self._once(work)
        for _ in range(TRIES - 1):
            if took > EXERCISE_S:
                result, took = self._once(work)
        self.counts["1s" if took <= EXERCISE_S else "more"] += 1
        return result

    def _once(self, work: Callable[[], T]) -> tuple[T, float]:
        began = time.perf_counter()
        return work(), time.perf_counter() - began
