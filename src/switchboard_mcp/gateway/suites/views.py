"""A view: the suites that one kind of client sees and can call by name.

Without profiles there is one view for all clients. `tool_list` builds the list; `profile_suite` makes restricted views.
"""

from __future__ import annotations

from collections.abc import Callable

from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.suite_tools import Suite
from switchboard_mcp.gateway.suites.tool_list import ToolListCache
from switchboard_mcp.gateway.suites.twins import TwinSuite
from switchboard_mcp.observability.log import Log

# Returns whether a child may be mentioned, by its name and that of its suite.
MaySee = Callable[[str, str], bool]


class View:
    """The suites of one kind of client.

    `tools` are the suite tools; `absent` maps the suites that governed mode denies to their failures.
    """

    def __init__(
        self, suites: dict[str, ChildSuite], log: Log, may_see: MaySee | None = None, profile: str = ""
    ) -> None:
        self.suites = suites
        self.profile = profile
        self.may_see: MaySee = may_see or (lambda child, suite: True)
        # With exposure `auto` a suite may have become direct since hosts saw it, so it can still be called.
        self.tools: dict[str, Suite] = {
            name: suite for name, suite in suites.items() if suite.exposure != "direct"
        }
        # The suite behind each suite tool. A suite that may be split has three, of which two or one are listed.
        self._behind = behind = suites
        if any(suite.twins is not None for suite in suites.values()):
            self._behind = behind = dict(suites)
            for suite in suites.values():
                for twin in suite.twins.names if suite.twins is not None else ():
                    self.tools[twin] = TwinSuite(suite, twin)
                    behind[twin] = suite
                if suite.twins is not None and suite.twins.only:
                    del self.tools[suite.name], behind[suite.name]
            self.tools = dict(sorted(self.tools.items()))
        # False if no child can have direct tools: then calls need not look for them.
        self.has_direct_tools = any(suite.exposure != "suite" or suite.pins for suite in suites.values())
        self.absent: dict[str, Failure] = {}
        self.tool_list = ToolListCache(self.suites, self.tools, behind, log)

    def suite_behind(self, tool: str) -> ChildSuite | None:
        """Return the suite of a suite tool: the suite of that name, or the one that has it as a twin."""
        return self._behind.get(tool)

    def shows(self, child: str) -> bool:
        """Return whether the view has a suite of the child."""
        return self.suite_of(child) is not None

    def suite_of(self, child: str) -> ChildSuite | None:
        """Return the suite of a child, or None if the view does not show it."""
        return next((suite for suite in self.suites.values() if suite.source == child), None)
