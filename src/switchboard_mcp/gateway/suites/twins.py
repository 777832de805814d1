"""Twin suites: one child as two suite tools, one for what only reads and one for the rest.

A host can then allow reads once and for all. Which twin a subtool belongs to is decided by its annotations, as the
config may correct them. The read twin carries nothing else: `SubtoolCall` checks that when the call is sent, with the
tools of the running child. The write twin takes reads, too, since a host asks about it anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Struct

from switchboard_mcp.children.catalog import Annotations, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.gate import Hints
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.policy.access import Patterns

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams, Shape


class WholeSuite(Protocol):
    """The suite that is split."""

    name: str
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
    """The names of the two suite tools. `auto` splits only if the child declares which of its tools read.

    `only` is the one that a profile shows, or empty. If that is the read twin, nothing else can be called, by any name.
    """

    read: str
    write: str
    auto: bool
    only: str = ""

    @property
    def names(self) -> list[str]:
        """The twins that exist."""
        return [self.only] if self.only else [self.read, self.write]

    @property
    def reads_only(self) -> bool:
        """True if only the read twin exists."""
        return self.only == self.read

    def first_shown(self) -> list[str]:
        """Return the twins to list while the child is unknown; none if it is not split then."""
        return [] if self.auto and not self.only else self.names

    def shown(self, suite: WholeSuite) -> list[str]:
        """Return the twins to list: those with subtools; none if the suite is not split."""
        if suite.child.snapshot is None:
            return self.first_shown()
        tools = suite.permitted(suite.child.inventory.known_tools())
        hints = [suite.annotations_of(tool).read_only_hint for tool in tools]
        if not self.only and not is_split(hints, auto=self.auto):
            return []
        reads = sum(hint is True for hint in hints)
        counts = {self.read: reads, self.write: len(hints) - reads}
        return [name for name in self.names if counts[name]]

    def of(self, name: str, suite: WholeSuite, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that the suite tool of this name lists."""
        name = self.only or name
        if name not in (self.read, self.write):
            return list(tools)
        reads = name == self.read
        return [tool for tool in tools if suite.is_read_only(tool) is reads]

    def name_for(self, suite: WholeSuite, tool: Tool) -> str:
        """Return the twin that lists a tool."""
        return self.only or (self.read if suite.is_read_only(tool) else self.write)

    def refusal(self, name: str, suite: WholeSuite, tool: Tool | None) -> Failure | None:
        """Return the failure for a tool that the suite tool of this name does not carry, or None."""
        is_write = tool is None or not suite.is_read_only(tool)
        if not is_write or (name != self.read and not self.reads_only):
            return None
        subtool = tool.name if tool is not None else ""
        if self.reads_only:  # as everything that a profile hides
            message = f"Child '{suite.source}' has no subtool '{subtool}'."
            return failure("subtool_unknown", message, child=suite.source, subtool=subtool)
        message = f"Subtool '{subtool}' is not read-only, so suite '{name}' does not carry it."
        hint = f"Call it in suite '{self.write}'."
        return failure("subtool_denied", message, child=suite.source, subtool=subtool, hint=hint)


class TwinSuite:
    """One of the two suite tools of a child. Everything but the list is that of the whole suite."""

    def __init__(self, whole: WholeSuite, name: str) -> None:
        self.name = name
        self.whole_name = whole.name
        self.source = whole.source
        self._whole = whole

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the suite tool as `tools/list` shows it."""
        return self._whole.describe_as(self.name, shape)

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call. Its params have the name of this twin."""
        self._whole.begin(session, channel, id, params)


def is_split(hints: Sequence[bool | None], *, auto: bool) -> bool:
    """Return whether a suite is shown as twins, by what its tools declare about reading."""
    return not auto or (None not in hints and 0 < sum(hint is True for hint in hints) < len(hints))


def corrected(tool: Tool, corrections: Iterable[tuple[Patterns, Hints]]) -> Annotations:
    """Return the annotations that a child declares for a tool, with the first correction of the config for it."""
    found = declared(tool)
    for pattern, hints in corrections:
        if pattern.match(tool.name):
            return Annotations(
                hints.read_only if hints.read_only is not UNSET else found.read_only_hint,
                hints.destructive if hints.destructive is not UNSET else found.destructive_hint,
                hints.open_world if hints.open_world is not UNSET else found.open_world_hint,
            )
    return found


def declared(tool: Tool) -> Annotations:
    """Return the annotations that a child declares for a tool."""
    return tool.annotations if isinstance(tool.annotations, Annotations) else Annotations()
