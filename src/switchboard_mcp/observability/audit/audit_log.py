"""The audit log: who called what, what was decided, how it ended. Off unless the config enables it.

`record` appends to a list, which costs the caller well under a microsecond. A thread formats and writes the records in
batches. A killed process loses at most the records of the last
`WINDOW_S` and the batch being written; a clean exit loses none. While nothing can be written, `write_failure` says so:
callers that must not act unrecorded check it first. `writer` formats the records.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.observability.audit.writer import AuditWriter
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor

# Records are collected this long before they are written: the most that a killed process loses.
WINDOW_S = 0.05
RETRY_S = 1.0
SYNC_S = 1.0
# While nothing can be written, this many records are kept; further ones are only counted.
MAX_PENDING = 100_000


class AuditLog:
    """Queues records and writes them in a thread.

    `write_failure` is None while records can be written; `masks` maps each child to its `redactArgs`.
    """

    watch = None  # keeps no details of calls

    def __init__(
        self,
        settings: Settings,
        workspace: str,
        redactor: Redactor,
        *,
        masks: Mapping[str, Sequence[str]] | None = None,
        fail_closed: bool = False,
        warn: Callable[[Failure], None] | None = None,
        clock: Callable[[], float] = time.time,
        window_s: float = WINDOW_S,
    ) -> None:
        folder = os.path.join(workspace, settings.path)
        self.write_failure: Failure | None = None
        self.fail_closed = fail_closed
        self._folder = folder
        self._fsync = settings.fsync
        self._redactor = redactor
        self._warn = warn
        self.clock = clock
        self._window_s = window_s
        self._writer = AuditWriter(settings, workspace, redactor, masks or {}, clock)
        self._pending: list[CallRecord] = []
        self._lost = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Open the files and start the thread. If they cannot be opened, `write_failure` says why."""
        try:
            self._writer.open()
        except OSError as problem:
            self._fail(problem)
        self._thread.start()

    def record(self, record: CallRecord) -> None:
        """Queue one record. Cheap; never waits, never raises."""
        if not record.at:
            record.at = self.clock()
        pending = self._pending
        pending.append(record)
        if len(pending) == 1:
            self._wake.set()

    def refusal(self) -> Failure | None:
        """Return the failure if calls must be refused because they could not be recorded, or None."""
        return self.write_failure if self.fail_closed else None

    def flush(self) -> None:
        """Block until the records so far are written, or cannot be. For another thread than the event loop's."""
        while self._pending and self.write_failure is None and self._thread.is_alive():
            time.sleep(self._window_s / 10)

    def close(self) -> None:
        """Write all records and stop. Nothing may be recorded afterwards."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._writer.close()

    def _run(self) -> None:
        """Wait for a record, collect more for a moment, write them; sync when due."""
        synced, dirty = time.monotonic(), False
        while True:
            waits_for = RETRY_S if self.write_failure is not None else SYNC_S if dirty else None
            self._wake.wait(waits_for)
            if self._wake.is_set() and not self._stopping and self._fsync != "always":
                time.sleep(self._window_s)
            self._wake.clear()
            stopping = self._stopping  # read after the event was cleared, so no request to stop is missed
            if self._pending or self._lost or self.write_failure is not None:
                dirty = self._flush() or dirty
            due = stopping or self._fsync == "always" or time.monotonic() - synced >= SYNC_S
            if dirty and due and self._fsync != "never":
                self._sync()
                synced = time.monotonic()
            dirty = dirty and not due and self._fsync != "never"
            if stopping:
                return

    def _flush(self) -> bool:
        """Write the pending records and return whether that succeeded. If not, they stay pending, up to a limit."""
        # The list is never replaced: another thread may be about to append to it.
        batch = self._pending[:]
        try:
            if self.write_failure is not None:
                self._writer.open()
            self._writer.append(batch, self._lost)
        except OSError as problem:
            self._lost += max(0, len(self._pending) - MAX_PENDING)
            del self._pending[MAX_PENDING:]
            self._fail(problem)
            return False
        del self._pending[: len(batch)]
        if self._pending:
            self._wake.set()
        self._lost = 0
        self.write_failure = None
        return True

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except OSError as problem:
            self._fail(problem)

    def _fail(self, problem: OSError) -> None:
        fresh = self.write_failure is None
        message = f"The audit log in {self._folder} cannot be written: {problem.strerror or problem}."
        self.write_failure = failure("audit_failed", self._redactor.redact_text(message))
        if fresh and self._warn is not None:
            self._warn(self.write_failure)
