"""Twin suites: one child as two suite tools, one for what only reads and one for the rest.

A host can then allow reads once and for all. Which twin a subtool belongs to is decided by its annotations, as the
config may correct them. The read twin carries nothing else: `SubtoolCall` checks that when the call is sent, with the
tools of the running child. The write twin takes reads, too, since a host asks about it anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from switchboard_mcp.children.catalog import Annotations, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, failure

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams, Shape


class WholeSuite(Protocol):
    """The suite that is split."""

    source: str
    child: Child

    def permitted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that exist for a host."""

    def annotations_of(self, tool: Tool) -> Annotations:
        """Return the annotations of a tool as the child declares them and the config corrects them."""

    def is_read_only(self, tool: Tool) -> bool:
        """Return whether a tool changes nothing, as far as is declared."""

    def describe_as(self, name: str, shape: Shape) -> dict[str, object]:
        """Return the suite, or one of its twins, as `tools/list` shows it."""

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call whose arguments are complete."""


class Twins(Struct, frozen=True):
    """The names of the two suite tools. `auto` splits only if the child declares which of its tools read."""

    read: str
    write: str
    auto: bool

    def shown(self, suite: WholeSuite) -> list[str]:
        """Return the twins to list: both while the child is unknown, later those with subtools; none if not split."""
        if suite.child.snapshot is None:
            return [] if self.auto else [self.read, self.write]
        tools = suite.permitted(suite.child.inventory.known_tools())
        hints = [suite.annotations_of(tool).read_only_hint for tool in tools]
        reads = sum(hint is True for hint in hints)
        if self.auto and (None in hints or not 0 < reads < len(hints)):
            return []
        both = ((self.read, reads), (self.write, len(hints) - reads))
        return [name for name, count in both if count]

    def of(self, name: str, suite: WholeSuite, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that the suite tool of this name lists."""
        if name not in (self.read, self.write):
            return list(tools)
        reads = name == self.read
        return [tool for tool in tools if suite.is_read_only(tool) is reads]

    def name_for(self, suite: WholeSuite, tool: Tool) -> str:
        """Return the twin that lists a tool."""
        return self.read if suite.is_read_only(tool) else self.write

    def refusal(self, name: str, suite: WholeSuite, tool: Tool | None) -> Failure | None:
        """Return the failure for a tool that the suite tool of this name does not carry, or None."""
        if name != self.read or (tool is not None and suite.is_read_only(tool)):
            return None
        subtool = tool.name if tool is not None else ""
        message = f"Subtool '{subtool}' is not read-only, so suite '{name}' does not carry it."
        hint = f"Call it in suite '{self.write}'."
        return failure("subtool_denied", message, child=suite.source, subtool=subtool, hint=hint)


class TwinSuite:
    """One of the two suite tools of a child. Everything but the list is that of the whole suite."""

    def __init__(self, whole: WholeSuite, name: str) -> None:
        self.name = name
        self.source = whole.source
        self._whole = whole

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the suite tool as `tools/list` shows it."""
        return self._whole.describe_as(self.name, shape)

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call. Its params have the name of this twin."""
        self._whole.begin(session, channel, id, params)


def declared(tool: Tool) -> Annotations:
    """Return the annotations that a child declares for a tool."""
    return tool.annotations if isinstance(tool.annotations, Annotations) else Annotations()
