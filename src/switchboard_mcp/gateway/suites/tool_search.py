"""Full-text search over the subtools of all suites.

Owns the index of the known tools and rebuilds it when they change. Denied subtools are not in it. Starts no child.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.introspect import ToolView
from switchboard_mcp.suites.search import MAX_FIELD_CHARS, Index, SearchDocument
from switchboard_mcp.suites.signature import signature
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.system.work_thread import LOOP_BYTES, run

# A suite, the tools of its snapshot, and how many of them may be used.
State = tuple[ChildSuite, list[Raw] | None, int]
# A suite and its permitted tools.
SuiteTools = tuple[ChildSuite, list[Tool]]

SUMMARY_CHARS = 120
DOC_CHARS = 30


class SubtoolMatch(Struct, frozen=True, rename="camel"):
    """One subtool, with all it takes to call it."""

    suite: str
    subtool: str
    signature: str
    summary: str
    score: float


class IndexedTool(Struct, frozen=True):
    """A tool in the index, and its suite."""

    suite: str
    tool: ToolView


BuiltIndex = tuple[list[IndexedTool], Index]


class ToolSearch:
    """Searches the suites of the last `refresh`."""

    def __init__(self) -> None:
        self._states: list[State] = []
        self._size = 0  # bytes of the tools in the index
        self._built: BuiltIndex = ([], Index([]))

    def refresh(self, suites: Iterable[ChildSuite]) -> None:
        """Rebuild the index if the tools of any suite have changed."""
        stale = self._stale_tools(suites)
        if stale is not None:
            self._built = _build(stale)

    def find(self, query: str, limit: int, doc_chars: int = DOC_CHARS) -> list[SubtoolMatch]:
        """Return the best matches, best first."""
        tools, index = self._built
        return [to_match(tools[hit.place], hit.score, doc_chars) for hit in index.search(query, limit)]

    async def refresh_and_find(
        self, suites: Iterable[ChildSuite], query: str, limit: int
    ) -> list[SubtoolMatch]:
        """Rebuild the index if necessary and return the best matches. The work on many tools leaves the event loop."""
        stale = self._stale_tools(suites)
        if self._size <= LOOP_BYTES:
            if stale is not None:
                self._built = _build(stale)
            return self.find(query, limit)
        if stale is not None:
            states = self._states
            built = await run(partial(_build, stale))
            if self._states is states:  # not changed again meanwhile
                self._built = built
        return await run(partial(self.find, query, limit))

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
            tools.append(IndexedTool(suite.name, view))
            documents.append(search_document(view, suite.child.name, suite.description))
    return tools, Index(documents)


def _state(suite: ChildSuite) -> State:
    snapshot = suite.child.snapshot
    return suite, snapshot.tools if snapshot is not None else None, len(suite.child.inventory.known_tools())


def _same(one: State, other: State) -> bool:
    return one[0] is other[0] and one[1] is other[1] and one[2] == other[2]


def search_document(tool: ToolView, server: str, about: str = "") -> SearchDocument:
    """Return the searchable text of a tool."""
    return SearchDocument(tool.name, tool.description, server, about, parameter_text(tool))


def to_match(indexed: IndexedTool, score: float, doc_chars: int = DOC_CHARS) -> SubtoolMatch:
    """Return a hit with everything that a call needs."""
    tool = indexed.tool
    return SubtoolMatch(
        suite=indexed.suite,
        subtool=tool.name,
        signature=signature(_schema(tool), doc_chars),
        summary=summarise(tool.description, SUMMARY_CHARS),
        score=round(score, 2),
    )


def parameter_text(tool: ToolView) -> str:
    """Return the names and descriptions of a tool's parameters."""
    schema = _schema(tool)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    docs = (value.get("description") for value in properties.values() if isinstance(value, dict))
    return " ".join((*properties, *(doc for doc in docs if isinstance(doc, str))))[:MAX_FIELD_CHARS]


def _view(tool: Tool) -> ToolView:
    tool.sanitized()
    return ToolView(tool.name, tool.description or "", tool.input_schema)


def _schema(tool: ToolView) -> object:
    if tool.input_schema is UNSET:
        return {}
    try:
        return msgspec.json.decode(tool.input_schema)
    except (msgspec.DecodeError, RecursionError):
        return {}
