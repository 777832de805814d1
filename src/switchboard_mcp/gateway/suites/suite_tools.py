"""Suite tools: what a host sees instead of a child's own tools.

Owns what every suite is to the gateway, how a suite tool is described (with a hint of what is inside) and the size of
the whole list. Whose subtools they are it does not know: a child's are in `childsuite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw, Struct
from msgspec.json import decode, encode

from switchboard_mcp.children.catalog import Annotations, Tool
from switchboard_mcp.suites.summary import summarise

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_calls import PlainParams

INPUT_SCHEMA = Raw(
    b'{"type":"object","properties":{"action":{"type":"string","enum":["introspect","call"]},'
    b'"subtool":{"type":"string"},"args":{"type":"object"}},"required":["action"]}'
)
MAX_LIST_BYTES = 50_000
# Hosts cut tool descriptions at 2 KB; a suite that needs more says it badly.
DESCRIPTION_CHARS = 1_000
HINT_CHARS = 160
# What a suite tool needs in the least, and what it can do without where hundreds of them must fit: the server's
# instructions say the same.
TERSE_SCHEMA = Raw(
    b'{"type":"object","properties":{"action":{"enum":["introspect","call"]},"subtool":{},"args":{}},'
    b'"required":["action"]}'
)
BARE_SCHEMA = Raw(b'{"type":"object","properties":{}}')


class Shape(Struct, frozen=True):
    """How much of each suite a list shows."""

    description_chars: int
    hint_chars: int = 0
    annotations: bool = True
    schema: Raw = INPUT_SCHEMA


# Each smaller than the one before; the first is taken whose list fits.
SHAPES = (
    Shape(DESCRIPTION_CHARS, HINT_CHARS),
    Shape(400, 80),
    Shape(200),
    Shape(100),
    Shape(40),
    Shape(40, annotations=False, schema=TERSE_SCHEMA),
    Shape(20, annotations=False, schema=TERSE_SCHEMA),
    Shape(20, annotations=False, schema=BARE_SCHEMA),
    Shape(8, annotations=False, schema=BARE_SCHEMA),
)


class Suite(Protocol):
    """Something that hosts see as one tool with subtools, whoever serves it. `source` is what failures name."""

    name: str
    source: str

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """The suite tool as `tools/list` shows it."""

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call whose arguments are settled.

        Answers once, on the channel. While it is under way it stands in `session.under_way`, to be cancelled.
        """


def describe(
    name: str,
    description: str,
    subtools: Sequence[str],
    shape: Shape,
    annotations: Mapping[str, bool] | None = None,
) -> dict[str, object]:
    """A suite tool as `tools/list` shows it, in the shape that is asked for."""
    summary = summarise(description, shape.description_chars)
    subtool_hint = list_subtools(subtools, shape.hint_chars)
    tool: dict[str, object] = {
        "name": name,
        "description": f"{_as_sentence(summary)} {subtool_hint}" if subtool_hint else summary,
        "inputSchema": shape.schema,
    }
    if annotations and shape.annotations:
        tool["annotations"] = annotations
    return tool


def _as_sentence(text: str) -> str:
    """The text with an end, so that another sentence can follow."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def list_subtools(names: Sequence[str], limit: int) -> str:
    """As many subtool names as fit, so that a model knows when to open the suite."""
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


def merged_annotations(tools: Iterable[Tool]) -> dict[str, bool]:
    """Read-only only if all are, destructive if any is; what a tool does not say has the protocol's default."""
    read_only, destructive = True, False
    for tool in tools:
        hints = tool.annotations if isinstance(tool.annotations, Annotations) else Annotations()
        if not hints.read_only_hint:
            read_only = False
            destructive = destructive or hints.destructive_hint is not False
    return {"readOnlyHint": read_only, "destructiveHint": destructive}


def list_tools(suites: Iterable[Suite], direct: Sequence[Raw], extra: Mapping[str, Raw]) -> bytes:
    """The `tools/list` result: all suites, in the largest shape that fits, and the tools that are shown directly."""
    body = _encode_within_limit(list(suites))
    if not direct and not extra:
        return body
    suite_tools = decode(body, type=dict[str, list[Raw]])["tools"]
    return encode({**extra, "tools": [*suite_tools, *direct]})


def _encode_within_limit(suites: list[Suite]) -> bytes:
    """All suites, in the largest shape that fits."""
    body = _encode_tools(suites, SHAPES[0])
    low, high = 1, len(SHAPES) - 1
    if len(body) <= MAX_LIST_BYTES:
        return body
    while low < high:
        middle = (low + high) // 2
        if len(_encode_tools(suites, SHAPES[middle])) <= MAX_LIST_BYTES:
            high = middle
        else:
            low = middle + 1
    return _encode_tools(suites, SHAPES[low])


def _encode_tools(suites: list[Suite], shape: Shape) -> bytes:
    return encode({"tools": [suite.descriptor(shape) for suite in suites]})
