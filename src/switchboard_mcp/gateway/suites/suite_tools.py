"""Suite tools: the tool that a host sees instead of a child's own tools.

Defines the interface of every suite and the params of its calls, the description of a suite tool (with a hint of its
subtools), and the size and pages of the whole list. It is not aware of children: their suites are in `child_suite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import encode

from switchboard_mcp.children.catalog import Annotations
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.suites.suite_arguments import SuiteCall
from switchboard_mcp.suites.summary import summarise

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session

# As the original documents print it, in every host; see `docs/seeds.md`.
INPUT_SCHEMA = Raw(
    b'{"type":"object","properties":{"action":{"type":"string","enum":["introspect","call"]},'
    b'"subtool":{"type":"string"},"args":{"type":"object"}},"required":["action"]}'
)
# The same without types, for hundreds of suites: the server's instructions say the rest.
TERSE_SCHEMA = Raw(
    b'{"type":"object","properties":{"action":{"enum":["introspect","call"]},"subtool":{},"args":{}},'
    b'"required":["action"]}'
)
MAX_LIST_BYTES = 50_000
# The part of a page for its cursor and for the members that a stateless host expects.
PAGE_RESERVE_BYTES = 500
# Hosts cut tool descriptions at 2 KB.
DESCRIPTION_CHARS = 1_000
HINT_CHARS = 160


class Shape(Struct, frozen=True):
    """The level of detail with which a list shows each suite."""

    description_chars: int
    hint_chars: int = 0
    generated: bool = True  # whether a generated description is shown beside the names of subtools
    annotations: bool = True
    schema: Raw = INPUT_SCHEMA


# Each is smaller than the one before. The first whose list fits is used. What is the same for all suites goes first,
# then descriptions become shorter, and the names of subtools go last: they say best what a suite is for.
SHAPES = (
    Shape(DESCRIPTION_CHARS, HINT_CHARS),
    Shape(DESCRIPTION_CHARS, HINT_CHARS, generated=False),
    Shape(400, HINT_CHARS, generated=False, schema=TERSE_SCHEMA),
    Shape(200, HINT_CHARS, generated=False, annotations=False, schema=TERSE_SCHEMA),
    Shape(100, 120, generated=False, annotations=False, schema=TERSE_SCHEMA),
    Shape(60, 80, generated=False, annotations=False, schema=TERSE_SCHEMA),
    Shape(40, 60, generated=False, annotations=False, schema=TERSE_SCHEMA),
    Shape(40, annotations=False, schema=TERSE_SCHEMA),
    Shape(20, annotations=False, schema=TERSE_SCHEMA),
    Shape(8, annotations=False, schema=TERSE_SCHEMA),
    Shape(3, annotations=False, schema=TERSE_SCHEMA),
)


class ListedSuite(Protocol):
    """A suite that can be listed."""

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the suite tool as `tools/list` shows it."""


class PlainParams(Struct, gc=False, rename="camel"):
    """Params of a suite tool's `tools/call` whose arguments are well-formed."""

    name: str
    arguments: SuiteCall
    meta: Meta | UnsetType = field(name="_meta", default=UNSET)
    input_responses: Raw | UnsetType = UNSET
    request_state: Raw | UnsetType = UNSET


class Suite(ListedSuite, Protocol):
    """One tool with subtools, as hosts see it. `source` is the name that failures report."""

    name: str
    source: str

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call whose arguments are complete.

        Answers once, on the channel. Until then the call is in `session.in_flight`, so it can be cancelled.
        """


def describe(
    name: str,
    description: str,
    subtools: Sequence[str],
    shape: Shape,
    annotations: Mapping[str, bool] | None = None,
    *,
    generated: bool = False,
) -> dict[str, object]:
    """Return a suite tool as `tools/list` shows it, in the requested shape.

    A `generated` description says nothing that the name does not.
    """
    summary = summarise(description, shape.description_chars)
    subtool_hint = list_subtools(subtools, shape.hint_chars)
    if subtool_hint and generated and not shape.generated:
        summary = ""
    tool: dict[str, object] = {
        "name": name,
        "description": f"{_as_sentence(summary)} {subtool_hint}".lstrip() if subtool_hint else summary,
        "inputSchema": shape.schema,
    }
    if annotations and shape.annotations:
        tool["annotations"] = annotations
    return tool


def _as_sentence(text: str) -> str:
    """Return the text with a full stop, so another sentence can follow."""
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."


def list_subtools(names: Sequence[str], limit: int) -> str:
    """Return as many subtool names as fit, so a model knows when to introspect the suite."""
    shown: list[str] = []
    size = len("Subtools: .")
    for name in names:
        size += len(name) + 2
        if size > limit:
            break
        shown.append(name)
    if not shown:
        return ""
    rest = len(names) - len(shown)
    return f"Subtools: {', '.join(shown)}{f', … ({rest} more)' if rest else ''}."


def merged_annotations(declared: Iterable[Annotations]) -> dict[str, bool]:
    """Merge annotations: read-only if all tools are, destructive if any is. Absent hints have MCP's defaults."""
    read_only, destructive = True, False
    for hints in declared:
        if not hints.read_only_hint:
            read_only = False
            destructive = destructive or hints.destructive_hint is not False
    return {"readOnlyHint": read_only, "destructiveHint": destructive}


def list_tools(suites: Iterable[ListedSuite], direct: Sequence[Raw], extra: Mapping[str, Raw]) -> bytes:
    """Return the whole `tools/list` result: all suites, in the largest shape that fits, and the direct tools."""
    return encode({**extra, "tools": [*encode_suites(list(suites), direct), *direct]})


def encode_suites(suites: Sequence[ListedSuite], direct: Sequence[Raw]) -> list[Raw]:
    """Return the suite tools in the largest shape that fits beside the direct tools, else in the smallest.

    Direct tools have one shape only; they leave at least half of the limit to the suites.
    """
    room = MAX_LIST_BYTES - min(_joined_size(direct), MAX_LIST_BYTES // 2)
    tools = _encode_shape(suites, SHAPES[0])
    low, high = 1, len(SHAPES) - 1
    if _joined_size(tools) <= room:
        return tools
    while low < high:
        middle = (low + high) // 2
        if _joined_size(_encode_shape(suites, SHAPES[middle])) <= room:
            high = middle
        else:
            low = middle + 1
    return _encode_shape(suites, SHAPES[low])


def split_pages(tools: Sequence[Raw], extra: Mapping[str, Raw]) -> list[list[Raw]]:
    """Split a tool list into pages within the limit. A tool beyond it has a separate page."""
    room = MAX_LIST_BYTES - PAGE_RESERVE_BYTES - len(encode(extra))
    pages: list[list[Raw]] = [[]]
    size = 0
    for tool in tools:
        size += len(bytes(tool)) + 1
        if size > room and pages[-1]:
            pages.append([])
            size = len(bytes(tool)) + 1
        pages[-1].append(tool)
    return pages


def _encode_shape(suites: Sequence[ListedSuite], shape: Shape) -> list[Raw]:
    return [Raw(encode(suite.descriptor(shape))) for suite in suites]


def _joined_size(tools: Sequence[Raw]) -> int:
    """Return the size of a list of tools as JSON, within its result."""
    return len(b'{"tools":[]}') + sum(len(bytes(tool)) + 1 for tool in tools)
