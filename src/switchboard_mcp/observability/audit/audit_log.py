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

import msgspec

from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.hash_chain import ChainHead
from switchboard_mcp.observability.audit.segments import AuditFiles
from switchboard_mcp.observability.audit.writer_process import Record, ScribeGoneError, WriterProcess
from switchboard_mcp.observability.latency_buckets import bucket
from switchboard_mcp.redaction.arguments import mask_args
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.system.atomic_write import write_gitignore

# How long records are gathered before they are written: the most that a killed process loses.
WINDOW_S = 0.05
RETRY_S = 1.0
SYNC_S = 1.0
# While nothing can be written, so many records are kept; further ones are counted.
MAX_PENDING = 100_000
# The interpreter is given back after so many lines, so that serving never waits for a whole batch.
AT_ONCE = 100
# Names that come again and again are encoded once.
MAX_KNOWN = 4096
SALT = ".switchboard/audit-salt"
SALT_BYTES = 32

# From a batch of this size on a process beside us makes the lines: some thousand calls a second.
MANY = 250

_encode = msgspec.json.encode


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
        self.pending: list[Record] = []
        self._lost = 0
        self._wake = threading.Event()
        self.rouse = self._wake.set
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Open the files and begin to write. Where they cannot be opened, `trouble` says why."""
        try:
            self._writer.open()
        except OSError as problem:
            self._fail(problem)
        self._thread.start()

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
        """Note one call or decision. Cheap; never waits, never raises. `seconds` below 0 is no duration.

        Where even a call of this is too dear, the same is done by hand: append to `pending`, and `rouse` for the first.
        """
        pending = self.pending
        pending.append((kind, who, child, subtool, args, outcome, seconds, self.clock()))
        if len(pending) == 1:
            self.rouse()

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
            if self.pending or self._lost or self.write_failure is not None:
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
        batch = self.pending[:]
        try:
            if self.write_failure is not None:
                self._writer.open()
            self._append(batch)
        except OSError as problem:
            self._lost += max(0, len(self.pending) - MAX_PENDING)
            del self.pending[MAX_PENDING:]
            self._fail(problem)
            return False
        del self.pending[: len(batch)]
        if self.pending:
            self._wake.set()
        self._lost = 0
        self.write_failure = None
        return True

    def _append(self, batch: list[Record]) -> None:
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


class AuditWriter:
    """Makes the lines and appends them to the files; raises OSError where that cannot be."""

    def __init__(
        self,
        settings: Settings,
        workspace: str,
        redactor: Redactor,
        masks: Mapping[str, Sequence[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.redactor = redactor
        self._masks = masks
        self._clock = clock
        self._salt_file = os.path.join(workspace, SALT)
        self._salt = b""
        folder = os.path.join(workspace, settings.path)
        self._files = AuditFiles(folder, settings.max_bytes, settings.keep, lambda: int(clock() * 1000))
        self._known: dict[tuple[str, str, str, str, str, str], bytes] = {}
        self._known_at: tuple[Redactor, int] | None = None

    def open(self) -> None:
        """Find the salt, and see that the files can be written."""
        self._salt = self._salt or read_salt(self._salt_file)
        self._files.open()

    def append(self, batch: list[Record], lost: int) -> None:
        """Append one batch, after a line that says how many records were lost before it, where any were."""
        self._salt = self._salt or read_salt(self._salt_file)
        self._files.append(lambda link: self._format_batch(batch, lost, link))

    def sync(self) -> None:
        """Force what was appended to the disk."""
        self._files.sync()

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()

    def _format_batch(self, batch: list[Record], lost: int, link: ChainHead) -> tuple[bytes, ChainHead]:
        lines: list[bytes] = []
        seq, digest = link.seq, link.digest
        masks = self._masks
        seal, fingerprint = hash_chain.seal, hash_chain.fingerprinter(self._salt)
        if lost:
            seq += 1
            body = hash_chain.marker_body("lost", seq, int(self._clock() * 1000), count=lost)
            line, digest = seal(body, digest)
            lines.append(line)
        known_at = (self.redactor, self.redactor.version)
        if self._known_at != known_at or len(self._known) > MAX_KNOWN:
            self._known, self._known_at = {}, known_at
        known = self._known
        for place, (kind, who, child, subtool, args, outcome, seconds, at) in enumerate(batch, 1):
            took = bucket(seconds) if seconds >= 0 else ""
            key = (kind, who, child, subtool, outcome, took)
            words = known.get(key)
            if words is None:
                words = known[key] = self._encode_names(*key)
            seq += 1
            body = b'{"seq":%d,"at":%d%b' % (seq, at * 1000, words)
            if args:
                if child in masks:
                    args = mask_args(masks[child], args)  # noqa: PLW2901 - the same arguments, as they may be known
                body += b',"args":"%b"' % fingerprint(args)
            line, digest = seal(body, digest)
            lines.append(line)
            if not place % AT_ONCE:
                time.sleep(0)
        return b"".join(lines), ChainHead(seq, digest)

    def _encode_names(self, kind: str, who: str, child: str, subtool: str, outcome: str, took: str) -> bytes:
        named = {
            "kind": kind,
            "who": who,
            "child": child,
            "subtool": subtool,
            "outcome": outcome,
            "took": took,
        }
        shown = {
            name: hash_chain.clip(self.redactor.redact_text(_encodable(text)))
            for name, text in named.items()
            if text
        }
        return b"," + _encode(shown)[1:-1]


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def read_salt(path: str) -> bytes:
    """The workspace's salt, made on first use. It is kept apart from the record, which may be sent elsewhere."""
    try:
        with open(path, "rb") as file:
            salt = file.read(SALT_BYTES + 1)
    except FileNotFoundError:
        return _make_salt(path)
    if len(salt) != SALT_BYTES:
        raise OSError(None, f"{path} is no salt of {SALT_BYTES} bytes")
    return salt


def _make_salt(path: str) -> bytes:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_gitignore(folder)
    fresh = f"{path}.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, os.urandom(SALT_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(fresh, path)  # fails where another process was first, so that all use the same
    except FileExistsError:
        pass
    finally:
        os.unlink(fresh)
    return read_salt(path)
