"""The log of finished calls behind the dashboard.

Wraps the audit log in every suite's pipeline and passes every record on to it. Keeps the last calls, totals per child
and a timeline in bounded memory. Arguments are not kept.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.observability.timeline import ChildTimeline, Timeline

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.errors import Failure

# Enough to scroll through; older calls are in the audit log.
MAX_CALLS = 1_000
MAX_NAME_CHARS = 200
# Neither a cancelled call nor one that needs input has failed.
NON_ERRORS = frozenset({"ok", "allowed", "cancelled", "input_required"})


class LiveCall(Struct, frozen=True, omit_defaults=True):
    """One call, introspection or decision, without its arguments."""

    seq: int
    at: int
    kind: str
    who: str
    child: str
    subtool: str = ""
    outcome: str = ""
    ms: float = -1.0


class CallLog:
    """Records calls. Pipelines use it in place of an `AuditLog`."""

    def __init__(self, services: ChildContext) -> None:
        self._redactor = services.redactor
        self._audit = services.audit
        self.pending: list[tuple[str, str, str, str, bytes, str, float, float]] = []
        self._recent: deque[tuple[str, str, str, str, str, float, float]] = deque(maxlen=MAX_CALLS)
        self.tallies: dict[str, ChildTimeline] = {}
        self.timeline = Timeline()
        self.seq = 0
        self.clock = time.time
        self.fail_closed = self._audit is not None and self._audit.fail_closed

    @property
    def write_failure(self) -> Failure | None:
        """Return the failure of the audit log, if it has one."""
        return self._audit.write_failure if self._audit is not None else None

    def record(
        self,
        kind: str,
        who: str = "",
        child: str = "",
        subtool: str = "",
        args: bytes = b"",
        outcome: str = "",
        seconds: float = -1.0,
    ) -> None:
        """Record one entry, as an `AuditLog` does."""
        self.pending.append((kind, who, child, subtool, args, outcome, seconds, self.clock()))
        self.rouse()

    def rouse(self) -> None:
        """A record is there: keep what is shown of it, and hand it on. At once, since a turn of the loop costs more."""
        record = self.pending.pop()
        kind, who, child, subtool, _, outcome, seconds, at = record
        self.seq += 1
        if len(subtool) > MAX_NAME_CHARS:  # the caller chose the name
            subtool = self._redactor.redact_text(subtool)[:MAX_NAME_CHARS]
        self._recent.append((kind, who, child, subtool, outcome, seconds, at))
        if kind == "call":
            tally = self.tallies.get(child)
            if tally is None:
                tally = self.tallies[child] = ChildTimeline()
            failed, ms = outcome not in NON_ERRORS, seconds * 1000
            tally.calls += 1
            tally.errors += failed
            tally.times.append(ms)
            self.timeline.add(at, ms, failed)
        audit = self._audit
        if audit is not None:
            audit.pending.append(record)
            if len(audit.pending) == 1:
                audit.rouse()

    def close(self) -> None:
        """Close the audit log."""
        if self._audit is not None:
            self._audit.close()

    def since(self, seq: int) -> list[LiveCall]:
        """Return the calls after `seq`, oldest first."""
        fresh = min(self.seq - seq, len(self._recent))
        if fresh <= 0:
            return []
        text = self._redactor.redact_text
        return [
            LiveCall(
                number,
                int(at * 1000),
                kind,
                who,
                child,
                text(subtool),
                outcome,
                round(seconds * 1000, 3) if seconds >= 0 else -1.0,
            )
            for number, (kind, who, child, subtool, outcome, seconds, at) in enumerate(
                list(self._recent)[-fresh:], self.seq - fresh + 1
            )
        ]
