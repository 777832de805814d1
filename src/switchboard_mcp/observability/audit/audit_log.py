"""The audit record: who asked for what, what was decided, how it ended. Off unless the config turns it on.

Whoever has something to record appends a tuple to a list; a thread makes lines of it and writes them, a batch at a
time, or has that done by a process beside us while there are many (`audit_scribe`). So a record costs its caller well
under a microsecond, and a process that is killed loses what came within the last `WINDOW_S` and the batch being
written, no more. On a clean end nothing is lost. Where nothing can be written, `trouble` says so: who must not act
unrecorded asks it first. Arguments are recorded as a keyed hash only; names go through the redactor. Owns what a record
holds; its chain is `observability.audit.hash_chain`'s, its files are `audit_files`'.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.observability.audit.writer import AuditWriter
from switchboard_mcp.observability.audit.writer_process import ScribeGoneError, WriterProcess
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor

# How long records are gathered before they are written: the most that a killed process loses.
WINDOW_S = 0.05
RETRY_S = 1.0
SYNC_S = 1.0
# While nothing can be written, so many records are kept; further ones are counted.
MAX_PENDING = 100_000

# From a batch of this size on a process beside us makes the lines: some thousand calls a second.
MANY = 250


class AuditLog:
    """See the module. `trouble` is None while records can be written; `masks` has each child's `redactArgs`."""

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
        self._duty = (workspace, settings, masks or {})
        self._scribe: WriterProcess | None = None
        self._may_hire = clock is time.time  # another clock cannot be taken elsewhere
        self._pending: list[CallRecord] = []
        self._lost = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Open the files and begin to write. Where they cannot be opened, `trouble` says why."""
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
        """Why nothing may be done now: it could not be recorded."""
        return self.write_failure if self.fail_closed else None

    def close(self) -> None:
        """Write all there is. Nothing may be recorded afterwards."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._scribe is not None:
            self._scribe.close()
        self._writer.close()

    def _run(self) -> None:
        """The writer: wait for a record, gather for a moment, write; force to disk when it is time."""
        synced, dirty = time.monotonic(), False
        while True:
            waits_for = RETRY_S if self.write_failure is not None else SYNC_S if dirty else None
            self._wake.wait(waits_for)
            if self._wake.is_set() and not self._stopping and self._fsync != "always":
                time.sleep(self._window_s)
            self._wake.clear()
            stopping = self._stopping  # looked at after the event was cleared, so that none is missed
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
        """Write what is pending; where that fails it stays pending, up to a limit. Tells whether it was written."""
        # The list itself is never replaced: whoever is about to append to it would append to the old one.
        batch = self._pending[:]
        try:
            if self.write_failure is not None:
                self._writer.open()
            self._append(batch)
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

    def _append(self, batch: list[CallRecord]) -> None:
        if self._scribe is None and len(batch) >= MANY and self._may_hire:
            self._may_hire = False  # once: if it goes, we write ourselves
            try:
                self._scribe = WriterProcess(*self._duty)
            except (OSError, ScribeGoneError):
                self._scribe = None
        if self._scribe is not None:
            try:
                self._scribe.append(batch, self._lost, self._redactor)
            except ScribeGoneError:
                self._scribe = None
            else:
                return
        self._writer.append(batch, self._lost)

    def _sync(self) -> None:
        try:
            if self._scribe is not None:
                self._scribe.sync()
            else:
                self._writer.sync()
        except ScribeGoneError:
            self._scribe = None
        except OSError as problem:
            self._fail(problem)

    def _fail(self, problem: OSError) -> None:
        fresh = self.write_failure is None
        message = f"Nothing can be recorded in {self._folder}: {problem.strerror or problem}."
        self.write_failure = failure("audit_failed", self._redactor.redact_text(message))
        if fresh and self._warn is not None:
            self._warn(self.write_failure)
