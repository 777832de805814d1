"""Computes the token savings of suites compared with tools listed flat.

The baseline is the cost for a host without Switchboard: name, description and input schema of every tool, as compact
JSON. Also estimates the cost of a session and draws sets of servers. Not aware of where servers come from, of the
tokenizer, or of how figures are displayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.suites import introspect
from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.suites.introspect import VERBOSITIES, IntrospectRequest, IntrospectSettings

Count = Callable[[bytes], int]

OPENED = 2
CALLS = 4
SET_SIZE = 5
# If there are more sets than this, this many are sampled.
MOST_SETS = 2_000
# The arguments that open a suite, and the extra arguments of a call through a suite.
OPENING = b'{"action":"introspect"}'
WRAPPING = b'"action":"call","subtool":"","args":'
WRAPPING_TOKENS = 10
LOOKING_UP = b'{"action":"introspect","subtool":""}'


class ServerTools(Struct, frozen=True):
    """A server: its tools, and its suite tool as hosts see it."""

    name: str
    tools: list[ToolView]
    descriptor: bytes
    instructions: str = ""


class Costs(Struct, frozen=True, rename="camel"):
    """The token costs of one server, in every presentation."""

    name: str
    tools: int
    flat: int
    suite: int
    introspect: int
    """The result of introspect with default verbosity."""
    detail: str
    verbosities: dict[str, int]
    lookup: float
    """The cost of looking up one tool before calling it, if the result contains only names."""

    @property
    def saved(self) -> float:
        """The saving at listing, in percent of flat."""
        return saving(self.suite, self.flat)


class Spread(Struct, frozen=True):
    """Savings in percent over many sets of servers."""

    median: float
    p10: float
    worst: float


class Savings(Struct, frozen=True, rename="camel"):
    """Savings at listing and over sessions."""

    sets: int
    servers_per_set: int
    opened: int
    calls: int
    listing: Spread
    session: Spread


def saving(with_suites: float, flat: float) -> float:
    """Return the saving in percent; negative if suites cost more."""
    return 100.0 * (1 - with_suites / flat) if flat else 0.0


def flat_listing(tools: Iterable[ToolView]) -> list[bytes]:
    """Return the baseline: every tool as a host would send it to a model."""
    return [
        msgspec.json.encode(
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {} if tool.input_schema is UNSET else tool.input_schema,
            }
        )
        for tool in tools
    ]


def measure(server: ServerTools, count: Count, settings: IntrospectSettings) -> Costs:
    """Count the tokens of one server in every presentation."""
    flat = [count(tool) for tool in flat_listing(server.tools)]
    opened = _answer(server, IntrospectRequest(), settings)
    detail = str(msgspec.json.decode(opened).get("detail", ""))
    # Names do not tell how to call a tool: it is looked up first, in full.
    lookup = count(LOOKING_UP) + sum(flat) / len(flat) if detail == "names" and flat else 0.0
    return Costs(
        name=server.name,
        tools=len(server.tools),
        flat=sum(flat),
        suite=count(server.descriptor),
        introspect=count(OPENING) + count(opened),
        detail=detail,
        verbosities={
            name: count(_answer(server, IntrospectRequest(verbosity=name), settings))
            for name in reversed(VERBOSITIES)
        },
        lookup=lookup,
    )


class Weight(Struct, frozen=True):
    """The token costs of one server: its tools listed flat, its suite tool, and opening the suite."""

    flat: int
    suite: int
    opening: float
    """The result of introspect, plus the lookup of one tool if it contains only names."""

    @property
    def expected(self) -> float:
        """The expected cost of the suite in a typical session, in which it may or may not be opened."""
        return self.suite + OPENED / SET_SIZE * (self.opening + CALLS / OPENED * WRAPPING_TOKENS)

    @property
    def flat_is_cheaper(self) -> bool:
        """True if listing the tools flat costs less."""
        return 0 < self.flat <= self.expected


def measure_weight(server: ServerTools, count: Count, settings: IntrospectSettings) -> Weight:
    """Return the cost of one server, flat and as a suite."""
    flat = [count(tool) for tool in flat_listing(server.tools)]
    suite = count(server.descriptor)
    if not flat:
        return Weight(0, suite, 0.0)
    answer = _answer(server, IntrospectRequest(), settings)
    named = msgspec.json.decode(answer, type=_Detail).detail == "names"
    lookup = count(LOOKING_UP) + sum(flat) / len(flat) if named else 0.0
    return Weight(sum(flat), suite, count(OPENING) + count(answer) + lookup)


class _Detail(Struct):
    detail: str = ""


def _answer(server: ServerTools, request: IntrospectRequest, settings: IntrospectSettings) -> bytes:
    answer = introspect.answer(server.name, server.tools, request, settings, server.instructions)
    assert isinstance(answer, bytes)  # the request contains neither a cursor nor a name, so it cannot fail
    return answer


def session(servers: Sequence[Costs], opened: Sequence[Costs], count: Count, calls: int = CALLS) -> float:
    """Return the tokens of a session: all suites are listed, some opened, and their tools called in turn.

    Costs that are equal without suites, such as arguments and results, are left out.
    """
    listed = sum(server.suite for server in servers)
    return listed + sum(server.introspect + server.lookup for server in opened) + calls * count(WRAPPING)


def summarise(
    servers: Sequence[Costs], count: Count, set_size: int = SET_SIZE, opened: int = OPENED
) -> Savings:
    """Return the savings over sets of servers: all possible sets, or a fixed sample of them."""
    usable = [server for server in servers if server.flat]
    set_size, opened = min(set_size, len(usable)), min(opened, set_size, len(usable))
    listing: list[float] = []
    sessions: list[float] = []
    for chosen, open_ones in _sets(usable, set_size, opened):
        flat = sum(server.flat for server in chosen)
        listing.append(saving(sum(server.suite for server in chosen), flat))
        sessions.append(saving(session(chosen, open_ones, count), flat))
    return Savings(
        sets=len(sessions),
        servers_per_set=set_size,
        opened=opened,
        calls=CALLS,
        listing=_spread(listing),
        session=_spread(sessions),
    )


def _sets(
    servers: Sequence[Costs], size: int, opened: int
) -> Iterable[tuple[Sequence[Costs], Sequence[Costs]]]:
    if not servers:
        return []
    if comb(len(servers), size) * comb(size, opened) <= MOST_SETS:
        return [
            (chosen, some) for chosen in combinations(servers, size) for some in combinations(chosen, opened)
        ]
    return [(chosen, chosen[:opened]) for chosen in _drawn(servers, size)]


def _drawn(servers: Sequence[Costs], size: int) -> Iterable[list[Costs]]:
    """Yield sets without duplicates. A generator of our own gives the same sets with every version of Python."""
    state = 1
    for _ in range(MOST_SETS):
        left = list(servers)
        chosen: list[Costs] = []
        while len(chosen) < size:
            state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
            chosen.append(left.pop((state >> 33) % len(left)))
        yield chosen


def _spread(values: list[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(0.0, 0.0, 0.0)
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return Spread(round(middle, 2), round(ordered[last // 10], 2), round(ordered[0], 2))
