"""Full-text search over the subtools of all suites.

Owns the index of the known tools and rebuilds it when they change. Denied subtools are not in it. Starts no child.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.detail_levels import (
    BRIEF,
    LADDER,
    WITHOUT_DOCS,
    Level,
    ToolView,
    decoded_schema,
    fit_each,
)
from switchboard_mcp.suites.introspect import IntrospectSettings
from switchboard_mcp.suites.search import MAX_FIELD_CHARS, Index, SearchDocument
from switchboard_mcp.suites.token_estimate import estimate
from switchboard_mcp.system.work_thread import LOOP_BYTES, WorkClient, run

# A suite, the tools of its snapshot, and how many of them may be used.
State = tuple[ChildSuite, list[Raw] | None, int]
# A suite and its permitted tools.
SuiteTools = tuple[ChildSuite, list[Tool]]

# A match is meant to be called next, so its signature comes first; the ladder's schemas are for `introspect`.
LEVELS = LADDER[LADDER.index(BRIEF) :]
# For people: without the docs of parameters.
BRIEF_LEVELS = LADDER[LADDER.index(WITHOUT_DOCS) :]
NAMES = tuple(level for level in LADDER if level.detail == "names")
# Hosts of one person often have the same server: so many copies of each match are looked through.
SAME_AT_MOST = 4
BUDGET_TOKENS = IntrospectSettings().budget_tokens


class SubtoolMatch(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One subtool, with all it takes to call it; without a signature if that does not fit the token budget.

    `also` are further suites that have the same subtool.
    """

    suite: str
    subtool: str
    signature: str = ""
    summary: str = ""
    score: float = 0.0
    also: list[str] = []


class IndexedTool(Struct, frozen=True):
    """A tool in the index, and its suite."""

    suite: str
    tool: ToolView
    is_redacted: bool = False
    """True if parameters are not shown, as `introspection.mode` says."""


class Found(Struct, frozen=True):
    """A tool that matches a query."""

    indexed: IndexedTool
    score: float
    also: tuple[str, ...] = ()


class BuiltIndex(Struct, frozen=True):
    """The tools, and an index over them."""

    tools: list[IndexedTool]
    index: Index


class ToolSearch:
    """Searches the suites of the last `refresh`."""

    def __init__(self) -> None:
        self._states: list[State] = []
        self._size = 0  # bytes of the tools in the index
        self._built = BuiltIndex([], Index([]))

    def refresh(self, suites: Iterable[ChildSuite]) -> None:
        """Rebuild the index if the tools of any suite have changed."""
        stale = self._stale_tools(suites)
        if stale is not None:
            self._built = _build(stale)

    def find(
        self,
        query: str,
        limit: int,
        budget: int = BUDGET_TOKENS,
        levels: Sequence[Level] = LEVELS,
    ) -> list[SubtoolMatch]:
        """Return the best matches, best first, described within a token budget."""
        tools = self._built.tools
        hits = self._built.index.search(query, limit * SAME_AT_MOST)
        found = collapse([Found(tools[hit.place], hit.score) for hit in hits])
        return to_matches(found[:limit], budget, levels)

    async def refresh_and_find(
        self,
        client: WorkClient,
        suites: Iterable[ChildSuite],
        query: str,
        limit: int,
        budget: int,
    ) -> list[SubtoolMatch]:
        """Rebuild the index if necessary and return the best matches. The work on many tools leaves the event loop."""
        stale = self._stale_tools(suites)
        find = partial(self.find, query, limit, budget)
        if self._size <= LOOP_BYTES:
            if stale is not None:
                self._built = _build(stale)
            return find()
        if stale is not None:
            states = self._states
            built = await run(client, partial(_build, stale))
            if self._states is states:  # not changed again meanwhile
                self._built = built
        return await run(client, find)

    def _stale_tools(self, suites: Iterable[ChildSuite]) -> list[SuiteTools] | None:
        """Return all tools if those of any suite have changed, or None."""
        suites = list(suites)
        states = [_state(suite) for suite in suites]
        if len(states) == len(self._states) and all(map(_same, states, self._states)):
            return None
        self._states = states
        stale = [(suite, suite.permitted(suite.child.inventory.known_tools())) for suite in suites]
        self._size = sum(tool.size for _, tools in stale for tool in tools)
        return stale


def _build(suites: list[SuiteTools]) -> BuiltIndex:
    tools: list[IndexedTool] = []
    documents: list[SearchDocument] = []
    for suite, permitted in suites:
        for tool in permitted:
            view = _view(tool)
            tools.append(IndexedTool(suite.name, view, suite.introspection.mode == "redacted"))
            documents.append(search_document(view, suite.child.name, suite.description))
    return BuiltIndex(tools, Index(documents))


def _state(suite: ChildSuite) -> State:
    snapshot = suite.child.snapshot
    return suite, snapshot.tools if snapshot is not None else None, len(suite.child.inventory.known_tools())


def _same(one: State, other: State) -> bool:
    return one[0] is other[0] and one[1] is other[1] and one[2] == other[2]


def search_document(tool: ToolView, server: str, about: str = "") -> SearchDocument:
    """Return the searchable text of a tool."""
    return SearchDocument(tool.name, tool.description, server, about, parameter_text(tool))


def collapse(hits: Iterable[Found]) -> list[Found]:
    """Return the hits with one for each subtool that several suites have, as those of a server that is there twice."""
    kept: dict[tuple[str, str, bytes], Found] = {}
    for hit in hits:
        tool = hit.indexed.tool
        schema = b"" if tool.input_schema is UNSET else bytes(tool.input_schema)
        key = (tool.name, tool.description, schema)
        first = kept.setdefault(key, hit)
        if first is not hit and hit.indexed.suite != first.indexed.suite:
            kept[key] = structs.replace(first, also=(*first.also, hit.indexed.suite))
    return list(kept.values())


def to_matches(
    hits: list[Found], budget: int = BUDGET_TOKENS, levels: Sequence[Level] = LEVELS
) -> list[SubtoolMatch]:
    """Describe hits within a token budget: the largest in less detail first, then without the last ones."""
    named = [
        SubtoolMatch(hit.indexed.suite, hit.indexed.tool.name, score=round(hit.score, 2), also=list(hit.also))
        for hit in hits
    ]
    tools = [(hit.indexed.tool, NAMES if hit.indexed.is_redacted else levels) for hit in hits]
    described = fit_each(tools, budget - estimate(msgspec.json.encode(named)))
    matches = [structs.replace(match, **members) for match, members in zip(named, described, strict=True)]
    while len(matches) > 1 and estimate(msgspec.json.encode(matches)) > budget:
        matches.pop()
    return matches


def parameter_text(tool: ToolView) -> str:
    """Return the names and descriptions of a tool's parameters."""
    schema = decoded_schema(tool)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    docs = (value.get("description") for value in properties.values() if isinstance(value, dict))
    return " ".join((*properties, *(doc for doc in docs if isinstance(doc, str))))[:MAX_FIELD_CHARS]


def _view(tool: Tool) -> ToolView:
    return tool.sanitized().view()
