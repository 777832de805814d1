"""Full-text search over the subtools of all suites.

Owns the index of the known tools and rebuilds it when they change. Denied subtools are not in it. Starts no child.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.introspect import ToolView
from switchboard_mcp.suites.search import Index, SearchDocument
from switchboard_mcp.suites.signature import signature
from switchboard_mcp.suites.summary import summarise

# A suite, the tools of its snapshot, and how many of them may be used.
State = tuple[ChildSuite, list[Raw] | None, int]

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


class ToolSearch:
    """Searches the suites of the last `refresh`."""

    def __init__(self) -> None:
        self._states: list[State] = []
        self._tools: list[IndexedTool] = []
        self._index = Index([])

    def refresh(self, suites: Iterable[ChildSuite]) -> None:
        """Rebuild the index if the tools of any suite have changed."""
        suites = list(suites)
        states = [_state(suite) for suite in suites]
        if len(states) == len(self._states) and all(map(_same, states, self._states)):
            return
        self._states = states
        tools: list[IndexedTool] = []
        documents: list[SearchDocument] = []
        for suite in suites:
            for tool in suite.permitted(suite.child.inventory.known_tools()):
                view = _view(tool)
                tools.append(IndexedTool(suite.name, view))
                documents.append(search_document(view, suite.child.name, suite.description))
        self._tools, self._index = tools, Index(documents)

    def find(self, query: str, limit: int, doc_chars: int = DOC_CHARS) -> list[SubtoolMatch]:
        """Return the best matches, best first."""
        hits = self._index.search(query, limit)
        return [to_match(self._tools[hit.place], hit.score, doc_chars) for hit in hits]


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
    return " ".join((*properties, *(doc for doc in docs if isinstance(doc, str))))


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
