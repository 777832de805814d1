"""The tool list, capabilities and instructions that hosts see of all children together.

Direct tools keep their own names; a name that is taken is prefixed with the child's. If exactly one child is direct,
hosts also see its other capabilities.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.capabilities import server_capabilities
from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName, direct_descriptor
from switchboard_mcp.gateway.suites.suite_tools import MAX_LIST_BYTES, Suite, list_tools
from switchboard_mcp.observability.log import Log
from switchboard_mcp.suites.suite_names import unique_tool_name

INSTRUCTIONS = (
    "Each tool here is a suite: one MCP server with its subtools. "
    'Call a suite with {"action":"introspect"} to see its subtools (optional "query", or "subtool" for one in full), '
    'then with {"action":"call","subtool":NAME,"args":{…}} to use one.'
)


class ToolListCache:
    """Builds and caches the tool list of one view."""

    def __init__(self, suites: Mapping[str, ChildSuite], tools: Mapping[str, Suite], log: Log) -> None:
        self._suites = suites
        self._tools = tools
        self._log = log
        self._encoded: dict[bool, bytes] = {}
        self._direct: dict[str, ResolvedName] | None = None
        self._snapshots: list[ServerSnapshot | None] = []

    def invalidate(self) -> None:
        """Drop the cache after a child's inventory has changed."""
        self._encoded.clear()
        self._direct = None

    def tools(self, *, stateless: bool) -> bytes:
        """Return the `tools/list` result for a host of the given protocol version family."""
        self._check_snapshots()
        if stateless not in self._encoded:
            direct = [
                direct_descriptor(name, found, stateless=stateless) for name, found in self.direct().items()
            ]
            listed = list_tools(self._suite_tools(), direct, self.result_members("tools/list"))
            if len(listed) > MAX_LIST_BYTES and not direct:
                self._log.warning("tools.list_too_long", bytes=len(listed), suites=len(self._tools))
            self._encoded[stateless] = listed
        return self._encoded[stateless]

    def direct(self) -> dict[str, ResolvedName]:
        """Return the direct tools by the name that hosts use."""
        self._check_snapshots()
        if self._direct is None:
            self._direct = {}
            taken = set(self._tools)
            for suite in self._suites.values():
                for tool in suite.direct_tools() if suite.lists_own_entries("tools/list") else ():
                    name = unique_tool_name(taken, tool.name, suite.child.name)
                    taken.add(name)
                    self._direct[name] = ResolvedName(suite, tool.name)
        return self._direct

    def _suite_tools(self) -> list[Suite]:
        """Return the suite tools that are listed."""
        return [suite for name, suite in self._tools.items() if not self._suites[name].direct]

    def blocked_reason(self, name: str) -> Failure | None:
        """Return the failure for a direct tool that its lock keeps off the list, or None."""
        showing = (suite for suite in self._suites.values() if suite.lists_own_entries("tools/list"))
        problems = (
            suite.child.inventory.tool_blocked_reason(name) for suite in showing if suite.access.permits(name)
        )
        return next((problem for problem in problems if problem is not None), None)

    def _check_snapshots(self) -> None:
        """Drop the cache if a child has a new snapshot."""
        snapshots = [suite.child.snapshot for suite in self._suites.values()]
        if (
            any(one is not other for one, other in zip(snapshots, self._snapshots, strict=False))
            or not self._snapshots
        ):
            self.invalidate()
            self._snapshots = snapshots

    def only_direct(self) -> ChildSuite | None:
        """Return the direct child if there is exactly one."""
        direct = [suite for suite in self._suites.values() if suite.direct]
        return direct[0] if len(direct) == 1 else None

    def sole_child(self) -> ChildSuite | None:
        """Return the direct child if there is nothing else in the view."""
        return self.only_direct() if len(self._suites) == 1 and not self._tools else None

    def result_members(self, method: str) -> dict[str, Raw]:
        """Return the members of a list result beside its entries, if the list is that of one child."""
        suite = self.sole_child()
        return suite.child.inventory.list_extras(method) if suite is not None else {}

    def instructions(self) -> str:
        """Return the instructions for hosts."""
        parts = [INSTRUCTIONS] if self._suite_tools() else []
        for suite in self._suites.values():
            if suite.direct and suite.child.snapshot is not None:
                inventory = suite.child.inventory
                parts.append(
                    inventory.instructions if inventory.governed else suite.child.snapshot.instructions
                )
        return "\n\n".join(filter(None, parts))

    def capabilities(self, *, stateless: bool) -> dict[str, object]:
        """Return the capabilities for a host of the given protocol version family."""
        suite = self.only_direct()
        return server_capabilities(suite.child.snapshot if suite is not None else None, stateless=stateless)
