"""Keeps a log of calls while somebody looks at a server that otherwise keeps none, such as the broker.

Until then, calls pay nothing for it.
"""

from __future__ import annotations

from asyncio import TimerHandle

from switchboard_mcp.gateway.factory import Runtime, observe_calls
from switchboard_mcp.server.dashboard.call_log import CallLog

# `top` asks every second; a terminal that was suspended for a moment loses nothing.
LOOK_S = 30.0


class CallWatch:
    """The log of calls, from the first look on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timer: TimerHandle | None = None
        self._is_kept = False
        self.log: CallLog | None = None

    def look(self) -> CallLog:
        """Return the log, and keep it for a while."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.log is None:
            self.log = CallLog(self._runtime.context)
            observe_calls(self._runtime, self.log)
        if not self._is_kept:
            self._timer = self._runtime.gateway.loop.call_later(LOOK_S, self._stop)
        return self.log

    def keep(self) -> CallLog:
        """Return the log, and keep it until `release`."""
        self._is_kept = True
        return self.look()

    def release(self) -> None:
        """Keep the log for a while only."""
        self._is_kept = False
        self.look()

    def _stop(self) -> None:
        self._timer = self.log = None
        observe_calls(self._runtime, None)
