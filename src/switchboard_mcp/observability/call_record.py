"""The record of one call or decision, and the interface of everything that observes them.

The audit log and the dashboard's call log are observers. To add a field:

- declare it in `CallRecord`, after the others, and fill it where records are built: `gateway.pipeline.calls`, and
  `gateway.pipeline.pipeline` for decisions;
- write it: `MEMBERS` and `_texts` in `observability.audit.writer` if its values repeat (they key a cache of encoded
  text), else beside `args`;
- read it: `AuditEntry` in `observability.audit.entry`;
- show it: `cli.governance.audit`, and for the dashboard `LiveCall` in `server.dashboard.call_log` and the modules
  `calls.js` and `audit.js` beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from switchboard_mcp.errors import Failure


# `array_like` and `gc=False`: records are built for every call and sent to the audit writer process by the thousand.
class CallRecord(Struct, array_like=True, gc=False):
    """The end of one call, or a decision that was made instead of it."""

    kind: str
    principal: str = ""
    child: str = ""
    subtool: str = ""
    args: bytes = b""
    outcome: str = ""
    duration_s: float = -1.0
    """Duration; negative if none was measured."""
    at: float = 0.0
    """Wall-clock time. The first observer sets it, so callers need no clock."""
    client: str = ""
    """The name of the client program, for the dashboard; the audit log does not have it."""
    number: int = 0
    """Number of the call in its session, from 1; 0 if it is not a call, or its client has no session."""
    origin: str = ""
    """`app` for a call under a name that only the pages of apps have, `program` and the id of the run for one that a
    program has made; empty otherwise."""
    session: int = 0
    """Number of the session, for the dashboard; 0 if there is none, or it lasts for one request."""


@runtime_checkable
class ErrorKeeper(Protocol):
    """An observer that keeps what went wrong in failed calls."""

    def keep_error(self, body: bytes, args: bytes, redact_args: Sequence[str]) -> None:
        """Keep the error of the call that was recorded just now, as the host is told."""


class CallObserver(Protocol):
    """Receives the record of every call and decision."""

    @property
    def write_failure(self) -> Failure | None:
        """The failure that keeps records from being written, or None."""

    @property
    def fail_closed(self) -> bool:
        """True if calls are refused while records cannot be written."""

    @property
    def watch(self) -> Callable[[Any], Any] | None:
        """Returns the `WatchedCall` of a request that begins; None if no details of calls are kept."""

    def record(self, record: CallRecord) -> None:
        """Take one record. Must be cheap and must not raise: it runs within the call."""

    def close(self) -> None:
        """Flush all records and stop."""
