"""Which subtools of all suites a sentence means.

Owns the index over what children are known to offer, and builds it anew when that has changed. What a host may not use
is not in it. It starts nothing.
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

# A suite, the list of tools it was seen with, and how many of them there were to be had.
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
    """Where an indexed tool stands."""

    suite: str
    tool: ToolView


class ToolSearch:
    """Searches what it was given last; `refresh` looks whether that is still so."""

    def __init__(self) -> None:
        self._states: list[State] = []
        self._tools: list[IndexedTool] = []
        self._index = Index([])

    def refresh(self, suites: Iterable[ChildSuite]) -> None:
        """Take in what the suites' children are known to offer by now."""
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
        """The best matches, best first."""
        hits = self._index.search(query, limit)
        return [to_match(self._tools[hit.place], hit.score, doc_chars) for hit in hits]


def _state(suite: ChildSuite) -> State:
    knowledge = suite.child.snapshot
    return suite, knowledge.tools if knowledge is not None else None, len(suite.child.inventory.known_tools())


def _same(one: State, other: State) -> bool:
    return one[0] is other[0] and one[1] is other[1] and one[2] == other[2]


def search_document(tool: ToolView, server: str, about: str = "") -> SearchDocument:
    """A tool as the search sees it."""
    return SearchDocument(tool.name, tool.description, server, about, parameter_text(tool))


def to_match(indexed: IndexedTool, score: float, doc_chars: int = DOC_CHARS) -> SubtoolMatch:
    """A hit as it is shown: the next step is a call."""
    tool = indexed.tool
    return SubtoolMatch(
        suite=indexed.suite,
        subtool=tool.name,
        signature=signature(_schema(tool), doc_chars),
        summary=summarise(tool.description, SUMMARY_CHARS),
        score=round(score, 2),
    )


def parameter_text(tool: ToolView) -> str:
    """The names and docs of a tool's parameters."""
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
