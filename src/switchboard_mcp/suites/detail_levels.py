"""Describes tools at levels of detail: from a compacted schema to the bare name.

`LADDER` has the levels in the order in which `introspect` and `find` try them until a result fits its token budget. Not
aware of how tools were fetched, which were denied, or how the result is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.suites.schema_compaction import compact
from switchboard_mcp.suites.signature import UNREADABLE, result_type, signature
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.suites.token_estimate import estimate


class ToolView(Struct, frozen=True):
    """A tool as the child sent it, limited to the parts that are shown."""

    name: str
    description: str = ""
    input_schema: Raw | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    learned: str = ""  # the type of its result, if that was learned from results


class Level(Struct, frozen=True):
    """A level of detail. `is_short` shortens nested objects and long enumerations in the signature.

    `has_result` adds the type of the result where the tool declares one.
    """

    detail: str
    summary_chars: int
    doc_chars: int = 0
    is_short: bool = False
    has_result: bool = False


WHOLE = 1_000_000
SUMMARY = Level("summary", WHOLE, has_result=True)
SIGNATURE = Level("signature", WHOLE, 60, has_result=True)
FULL = Level("full", WHOLE)
BRIEF = Level("signature", 100, 30, has_result=True)
WITHOUT_DOCS = Level("signature", 60)
# Result types are dropped first, then parameter docs, nested parts, summaries and signatures; one-line summaries before
# tools move to another page.
LADDER = (
    SUMMARY,
    Level("summary", WHOLE),
    SIGNATURE,
    Level("signature", WHOLE, 60),
    BRIEF,
    Level("signature", 100, 30),
    WITHOUT_DOCS,
    Level("signature", 60, is_short=True),
    Level("names", 100),
    Level("names", 60),
    Level("names", 36),
    Level("names", 0),
)


def describe(
    tool: ToolView, schema: object, level: Level, summary_max_chars: int = WHOLE
) -> dict[str, object]:
    """Return the members that describe a tool at a level of detail, apart from its name."""
    if level.detail == "full":
        full: dict[str, object] = {"description": tool.description}
        if isinstance(tool.input_schema, Raw):
            full["inputSchema"] = tool.input_schema
        if isinstance(tool.output_schema, Raw):
            full["outputSchema"] = tool.output_schema
        elif tool.learned:
            full["returns"] = tool.learned
        return full
    shown: dict[str, object] = {}
    returns = _result_type(tool) if level.has_result else ""
    if level.detail == "signature":
        is_readable = not isinstance(schema, Raw)
        parameters = (
            signature(schema, level.doc_chars, is_short=level.is_short) if is_readable else UNREADABLE
        )
        shown["signature"] = f"{parameters} -> {returns}" if returns else parameters
    summary = summarise(tool.description, min(level.summary_chars, summary_max_chars))
    if summary:
        shown["summary"] = summary
    if level.detail == "summary":
        shown["inputSchema"] = _compacted(tool, schema)
        if returns:
            shown["returns"] = returns
    return shown


def decoded_schema(tool: ToolView) -> object:
    """Return the decoded schema of the parameters, or the raw one if it cannot be decoded."""
    return _decoded(tool.input_schema) if isinstance(tool.input_schema, Raw) else {"type": "object"}


def _decoded(schema: Raw) -> object:
    try:
        decoded: object = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return schema
    return decoded


def _result_type(tool: ToolView) -> str:
    return result_type(_decoded(tool.output_schema)) if isinstance(tool.output_schema, Raw) else tool.learned


def fit_each(tools: Sequence[tuple[ToolView, Sequence[Level]]], budget: int) -> list[dict[str, object]]:
    """Describe each tool at the best level of its own, so that all together fit the budget.

    The largest description moves to its next level until they fit: one tool with a huge schema does not cost the
    others their signatures. At the last levels the result may still exceed the budget.
    """
    schemas = [decoded_schema(tool) for tool, _ in tools]
    places = [0] * len(tools)
    shown = [describe(tool, schemas[n], levels[0]) for n, (tool, levels) in enumerate(tools)]
    costs = [estimate(msgspec.json.encode(members)) for members in shown]
    while sum(costs) > budget:
        open_places = [n for n, (_, levels) in enumerate(tools) if places[n] + 1 < len(levels)]
        if not open_places:
            break
        # Of two equally large ones, the later and thus less relevant one.
        n = max(open_places, key=lambda n: (costs[n], n))
        places[n] += 1
        shown[n] = describe(tools[n][0], schemas[n], tools[n][1][places[n]])
        costs[n] = estimate(msgspec.json.encode(shown[n]))
    return shown


def _compacted(tool: ToolView, schema: object) -> Raw:
    try:
        return Raw(msgspec.json.encode(compact(schema)))
    except (OverflowError, RecursionError):
        # Integers beyond 64 bits or extreme nesting cannot be encoded: pass the schema on as the child sent it.
        return tool.input_schema if isinstance(tool.input_schema, Raw) else Raw(b"{}")
