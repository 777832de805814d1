"""What suites save: the tokens of tools listed flat, and of the same tools behind suites.

Owns the base line, what a session costs, and how sets of servers are drawn. The base line is what a host without
Switchboard pays: name, description and input schema of every tool, as compact JSON. It does not know where servers come
from, which tokenizer counts, or how a figure is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.suites import introspect
from switchboard_mcp.suites.introspect import VERBOSITIES, IntrospectRequest, IntrospectSettings, ToolView

Count = Callable[[bytes], int]

OPENED = 2
CALLS = 4
SET_SIZE = 5
# Where there are more sets than this, as many are drawn.
MOST_SETS = 2_000
# What a model writes to open a suite, and what a call through a suite costs more than the same call without.
OPENING = b'{"action":"introspect"}'
WRAPPING = b'"action":"call","subtool":"","args":'
WRAPPING_TOKENS = 10
LOOKING_UP = b'{"action":"introspect","subtool":""}'


class ServerTools(Struct, frozen=True):
    """One server: what it offers, and its suite tool as hosts see it."""

    name: str
    tools: list[ToolView]
    descriptor: bytes
    instructions: str = ""


class Costs(Struct, frozen=True, rename="camel"):
    """The tokens of one server, shown in every way."""

    name: str
    tools: int
    flat: int
    suite: int
    introspect: int
    """The answer a model gets that says nothing about verbosity."""
    detail: str
    verbosities: dict[str, int]
    lookup: float
    """What it costs to look one tool up before it is called, where the answer told names only."""

    @property
    def saved(self) -> float:
        """At listing, in percent of flat."""
        return saving(self.suite, self.flat)


class Spread(Struct, frozen=True):
    """Savings in percent over many sets of servers."""

    median: float
    p10: float
    worst: float


class Savings(Struct, frozen=True, rename="camel"):
    """The sum of it: at listing, and over sessions."""

    sets: int
    servers_per_set: int
    opened: int
    calls: int
    listing: Spread
    session: Spread


def saving(with_suites: float, flat: float) -> float:
    """In percent; negative where suites cost more."""
    return 100.0 * (1 - with_suites / flat) if flat else 0.0


def flat_listing(tools: Iterable[ToolView]) -> list[bytes]:
    """The base line: every tool as a host would send it to a model."""
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
    """Count the tokens of one server in every way it can be shown."""
    flat = [count(tool) for tool in flat_listing(server.tools)]
    opened = _answer(server, IntrospectRequest(), settings)
    detail = str(msgspec.json.decode(opened).get("detail", ""))
    # Names alone do not tell how to call: a tool is looked up first, in full.
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
    """The tokens of one server: its tools listed flat, its suite tool, and what opening that costs."""

    flat: int
    suite: int
    opening: float
    """The answer to introspect, and a look at one tool where that told names only."""

    @property
    def expected(self) -> float:
        """What the suite costs in a session of the usual kind, in which it may be opened or not."""
        return self.suite + OPENED / SET_SIZE * (self.opening + CALLS / OPENED * WRAPPING_TOKENS)

    @property
    def flat_is_cheaper(self) -> bool:
        """Whether a host that sees the tools as they are pays less."""
        return 0 < self.flat <= self.expected


def measure_weight(server: ServerTools, count: Count, settings: IntrospectSettings) -> Weight:
    """What one server costs, flat and behind a suite."""
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
    assert isinstance(answer, bytes)  # there is neither a cursor nor a name in what is asked
    return answer


def session(servers: Sequence[Costs], opened: Sequence[Costs], count: Count, calls: int = CALLS) -> float:
    """The tokens of a session: every suite listed, some opened, in each of these one tool called by turns.

    What both ways cost alike, such as arguments and results, is left out.
    """
    listed = sum(server.suite for server in servers)
    return listed + sum(server.introspect + server.lookup for server in opened) + calls * count(WRAPPING)


def summarise(
    servers: Sequence[Costs], count: Count, set_size: int = SET_SIZE, opened: int = OPENED
) -> Savings:
    """Savings over sets of servers of which some are opened: all such sets, or many drawn the same way every time."""
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
    """Sets without repeats, by a generator of our own: the same ones every time, whatever the version of Python."""
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
