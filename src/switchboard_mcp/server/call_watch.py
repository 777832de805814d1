"""Keeps a log of calls while the dashboard of a server is open that otherwise keeps none, such as the broker.

Until then, calls pay nothing for it.
"""

from __future__ import annotations

from switchboard_mcp.gateway.factory import Runtime, observe_calls
from switchboard_mcp.server.dashboard.call_log import CallLog


class CallWatch:
    """The log of calls, while the dashboard is served."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.log: CallLog | None = None

    def keep(self) -> None:
        """Keep a log until `release`."""
        if self.log is None:
            self.log = CallLog(self._runtime.context)
            observe_calls(self._runtime, self.log)

    def release(self) -> None:
        """Forget the log."""
        self.log = None
        observe_calls(self._runtime, None)
