"""Suite tools: what a host sees instead of a child's own tools.

Owns the tool descriptors (name, description with a hint of what is inside, annotations) and the size of the whole list.
Calls are served in `calls`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, Raw, Struct
from msgspec.json import decode, encode

from switchboard_mcp.children.catalog import Annotations, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.models import Config
from switchboard_mcp.config.models import Suite as SuiteConfig
from switchboard_mcp.core import envelope, eras
from switchboard_mcp.core.introspect import Settings
from switchboard_mcp.core.naming import suite_names
from switchboard_mcp.core.summary import summarise
from switchboard_mcp.policy.access import access

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


class Suite:
    """One child as a host sees it."""

    def __init__(self, name: str, child: Child, config: Config) -> None:
        settings = config.suites.get(child.name) or SuiteConfig()
        self.name = name
        self.child = child
        self.access = access(settings.expose)
        self.introspection = Settings(
            mode=config.introspection.mode,
            summary_max_chars=settings.summary_max_chars or config.introspection.summary_max_chars,
            budget_tokens=config.introspection.budget_tokens,
        )
        self.direct = settings.exposure == "direct"
        self._always_load = settings.always_load
        self._description = (
            child.spec.switchboard_description
            or settings.description
            or child.spec.description
            or f"Tools of the MCP server '{child.name}'."
        )

    def permitted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Those that exist for a host."""
        return [tool for tool in tools if self.access.permits(tool.name)]

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """The suite tool as `tools/list` shows it."""
        tools = self.permitted(self.child.offer.known_tools())
        description = summarise(self._description, shape.description_chars)
        names = hint([tool.name for tool in tools], shape.hint_chars)
        tool: dict[str, object] = {
            "name": self.name,
            "description": _sentence(description) + " " + names if names else description,
            "inputSchema": shape.schema,
        }
        if tools and shape.annotations:
            tool["annotations"] = joint_hints(tools)
        if self._always_load:
            tool["_meta"] = {"anthropic/alwaysLoad": True}
        return tool


class Found(Struct, frozen=True):
    """Something of a child: whose it is, and what the child itself calls it."""

    suite: Suite
    name: str


def shown_directly(name: str, found: Found, *, modern: bool) -> Raw:
    """A child's own tool as it came, but for its era, under the name a host uses."""
    child = found.suite.child
    raw = child.offer.tool(found.name).raw
    assert raw is not UNSET
    native = child.knowledge is not None and eras.is_modern(child.knowledge.protocol) is modern
    raw = envelope.tool_for(raw, modern=modern, native=native)
    if name == found.name:
        return raw
    return Raw(encode({**decode(raw, type=dict[str, Raw]), "name": name}))


def _sentence(text: str) -> str:
    """The text with an end, so that another sentence can follow."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def hint(names: Sequence[str], limit: int) -> str:
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


def joint_hints(tools: Iterable[Tool]) -> dict[str, bool]:
    """Read-only only if all are, destructive if any is; what a tool does not say has the protocol's default."""
    read_only, destructive = True, False
    for tool in tools:
        given = tool.annotations if isinstance(tool.annotations, Annotations) else Annotations()
        if not given.read_only_hint:
            read_only = False
            destructive = destructive or given.destructive_hint is not False
    return {"readOnlyHint": read_only, "destructiveHint": destructive}


def build(children: Iterable[Child], config: Config) -> dict[str, Suite]:
    """The suites by tool name, sorted."""
    by_name = {child.name: child for child in children}
    configured = {name: suite.suite_name for name, suite in config.suites.items()}
    names = suite_names([(name, configured.get(name, "")) for name in by_name])
    suites = [Suite(names[name], child, config) for name, child in by_name.items()]
    return {suite.name: suite for suite in sorted(suites, key=lambda suite: suite.name)}


def list_tools(
    suites: Iterable[Suite],
    direct: Mapping[str, Found],
    *,
    modern: bool = False,
    extra: Mapping[str, Raw] | None = None,
) -> bytes:
    """The `tools/list` result: all suites, in the largest shape that fits, and the tools that are shown directly."""
    listed = [suite for suite in suites if not suite.direct]
    if direct:
        own = [suite.descriptor(SHAPES[0]) for suite in listed]
        theirs = (shown_directly(name, found, modern=modern) for name, found in direct.items())
        return encode({**(extra or {}), "tools": [*own, *theirs]})
    body = _written(listed, SHAPES[0])
    low, high = 1, len(SHAPES) - 1
    if len(body) <= MAX_LIST_BYTES:
        return body
    while low < high:
        middle = (low + high) // 2
        if len(_written(listed, SHAPES[middle])) <= MAX_LIST_BYTES:
            high = middle
        else:
            low = middle + 1
    return _written(listed, SHAPES[low])


def _written(suites: list[Suite], shape: Shape) -> bytes:
    return encode({"tools": [suite.descriptor(shape) for suite in suites]})
