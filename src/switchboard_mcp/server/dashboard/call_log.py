"""The log of finished calls behind the dashboard.

Wraps the audit log in every suite's pipeline and passes every record on to it. Keeps the last calls, totals per child
and a timeline in bounded memory. Arguments are not kept here, but by `call_details`, if at all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.timeline import ChildTimeline, Timeline

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.errors import Failure
    from switchboard_mcp.gateway.pipeline.watched_call import WatchedCall, WatchedRequest

# Enough to scroll through and to look for a cause in; older calls are in the audit log. Takes some 3 MB.
MAX_CALLS = 10_000
MAX_NAME_CHARS = 200
MAX_CACHED_NAMES = 1_000
# Clients without a session that are told apart; they choose their names.
MAX_STATELESS_CLIENTS = 1_000
# Errors are kept for the last failed calls, each up to this size: some 8 MB at most.
MAX_ERRORS, MAX_ERROR_BYTES = 500, 16_384
# A call that has waited for a person's decision. It counts when it is repeated: its time is that of the person.
UNDECIDED = "gate_waiting"
# Neither a cancelled call nor one that needs input or a decision has failed.
NON_ERRORS = frozenset(
    {"ok", "allowed", "cancelled", "input_required", "gate_asked", "gate_allowed", UNDECIDED}
)


class LiveCall(Struct, frozen=True, omit_defaults=True):
    """One call, introspection or decision, without its arguments."""

    seq: int
    at: int
    kind: str
    principal: str = field(name="who")
    child: str
    subtool: str = ""
    outcome: str = ""
    duration_ms: float = field(default=-1.0, name="ms")
    client: str = ""
    session: str = ""


class KeptError(Struct, frozen=True):
    """What went wrong in a failed call, and the arguments whose values it must not show."""

    body: bytes
    size: int
    args: bytes
    redact_args: Sequence[str]


class CallLog:
    """Records calls. Pipelines use it in place of an `AuditLog`."""

    def __init__(self, services: ChildContext) -> None:
        self._redactor = services.redactor
        self._records = services.records
        self._recent: deque[CallRecord] = deque(maxlen=MAX_CALLS)
        self.timelines: dict[str, ChildTimeline] = {}
        self.timeline = Timeline()
        self.callers: dict[str, int] = {}
        """Sessions that have called something, by principal. A client without a session counts once by its name."""
        self.introspections: dict[str, int] = {}
        """Introspections by child."""
        self._errors: dict[int, KeptError] = {}  # by number of the call, oldest first
        self._stateless_clients: set[tuple[str, str]] = set()
        self._names: dict[str, str] = {}  # redacted, as of the redactor's version
        self._names_version = -1
        self.seq = 0
        self.clock = time.time
        self.fail_closed = self._records is not None and self._records.fail_closed
        self.watch: Callable[[WatchedRequest], WatchedCall] | None = None
        """Watches each call that begins; None while no details are kept."""

    @property
    def write_failure(self) -> Failure | None:
        """Return the failure of the log behind this one, if it has one."""
        return self._records.write_failure if self._records is not None else None

    def record(self, record: CallRecord) -> None:
        """Count and keep the record without its arguments, then pass it on to the audit log or the event log."""
        record.at = record.at or self.clock()
        self.seq += 1
        subtool = record.subtool
        if len(subtool) > MAX_NAME_CHARS:  # chosen by the host, so of any length
            subtool = self._redactor.redact_text(subtool)[:MAX_NAME_CHARS]
        self._recent.append(structs.replace(record, subtool=subtool, args=b""))
        if record.kind == "call" and record.outcome != UNDECIDED:
            child_timeline = self.timelines.get(record.child)
            if child_timeline is None:
                child_timeline = self.timelines[record.child] = ChildTimeline()
            failed, ms = record.outcome not in NON_ERRORS, record.duration_s * 1000
            child_timeline.calls += 1
            child_timeline.errors += failed
            child_timeline.times.append(ms)
            self.timeline.add(record.at, ms, failed)
            if record.number == 1 or (record.number == 0 and self._is_new(record)):
                self.callers[record.principal] = self.callers.get(record.principal, 0) + 1
        elif record.kind == "introspect" and record.outcome == "ok":
            self.introspections[record.child] = self.introspections.get(record.child, 0) + 1
        if self._records is not None:
            self._records.record(record)

    def keep_error(self, body: bytes, args: bytes, redact_args: Sequence[str]) -> None:
        """Keep the error of the call that was recorded just now."""
        if self._recent[-1].outcome in NON_ERRORS:
            return
        while len(self._errors) >= MAX_ERRORS:
            del self._errors[next(iter(self._errors))]
        hides = len(args) <= MAX_ERROR_BYTES
        kept = body[:MAX_ERROR_BYTES] if hides or not redact_args else b""
        self._errors[self.seq] = KeptError(
            kept, len(body), args if redact_args and hides else b"", redact_args
        )

    def error_of(self, seq: int) -> KeptError | None:
        """Return the error of a failed call, if it is kept."""
        return self._errors.get(seq)

    def _is_new(self, record: CallRecord) -> bool:
        """Return True for the first call of a client of the stateless protocol."""
        client = (record.principal, record.client)
        if client in self._stateless_clients or len(self._stateless_clients) >= MAX_STATELESS_CLIENTS:
            return False
        self._stateless_clients.add(client)
        return True

    def close(self) -> None:
        """Close the log behind this one."""
        if self._records is not None:
            self._records.close()

    def since(self, seq: int) -> list[LiveCall]:
        """Return the calls after `seq`, oldest first."""
        fresh = min(self.seq - seq, len(self._recent))
        if fresh <= 0:
            return []
        newest = islice(reversed(self._recent), fresh)
        return [self.show(number, record) for number, record in zip(count(self.seq, -1), newest)][::-1]

    @property
    def kept(self) -> int:
        """Return the number of calls that are kept."""
        return len(self._recent)

    def get(self, seq: int) -> CallRecord | None:
        """Return one call, without its arguments; None if it is not kept."""
        place = seq - self.seq + len(self._recent) - 1
        return self._recent[place] if 0 <= place < len(self._recent) else None

    def newest_first(self) -> Iterator[tuple[int, CallRecord]]:
        """Yield all calls with their numbers."""
        return zip(count(self.seq, -1), reversed(self._recent))

    def show(self, number: int, record: CallRecord) -> LiveCall:
        """Return a call for a viewer, with names that hosts chose redacted."""
        return LiveCall(
            number,
            int(record.at * 1000),
            record.kind,
            record.principal,
            record.child,
            self._name(record.subtool),
            record.outcome,
            round(record.duration_s * 1000, 3) if record.duration_s >= 0 else -1.0,
            self._name(record.client),
            f"s{record.session}" if record.session else "",
        )

    def _name(self, text: str) -> str:
        """Return a name without secrets. The same few names come again and again."""
        if self._names_version != self._redactor.version or len(self._names) > MAX_CACHED_NAMES:
            self._names.clear()
            self._names_version = self._redactor.version
        shown = self._names.get(text)
        if shown is None:
            shown = self._names[text] = self._redactor.redact_text(text)
        return shown
