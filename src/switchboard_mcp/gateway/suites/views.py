"""What one kind of client sees: its suites, their tools, the list of them.

Without profiles there is one view for all. Owns which suites can be called by name; `listing` says how they are listed,
and `profiles` makes views that show less.
"""

from __future__ import annotations

from collections.abc import Callable

from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.suite_tools import Suite
from switchboard_mcp.gateway.suites.tool_list import ToolListCache
from switchboard_mcp.observability.log import Log

# Whether a child may be heard of: its name, and that of its suite.
MaySee = Callable[[str, str], bool]


class View:
    """See the module. `tools` are the suite tools; `absent` suites of children that governed mode does not let exist,
    with what is said of them.
    """

    def __init__(self, suites: dict[str, ChildSuite], log: Log, may_see: MaySee | None = None) -> None:
        self.suites = suites
        self.may_see: MaySee = may_see or (lambda child, suite: True)
        # One that is shown as it is only since that is cheaper now can still be called by those who saw it before.
        self.tools: dict[str, Suite] = {
            name: suite for name, suite in suites.items() if suite.exposure != "direct"
        }
        # Whether any child may have its own tools listed: the others need not be asked with each call.
        self.has_direct_tools = any(suite.exposure != "suite" or suite.pins for suite in suites.values())
        self.absent: dict[str, Failure] = {}
        self.tool_list = ToolListCache(self.suites, self.tools, log)

    def shows(self, child: str) -> bool:
        """Whether anything of a child is seen."""
        return any(suite.source == child for suite in self.suites.values())
