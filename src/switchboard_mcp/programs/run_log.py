"""The log of a run: what a program has done, appended before it goes on, so that another process can continue the run.

One file per run in the user's state folder, which only the user can read: it holds code, arguments and results in clear
text. Records are `start`, `wait` (the calls that were made), `sent` before a call leaves, `snapshot` if the call is
slow, `result`, and `end`. A line holds one or more records and is signed together with the line before it, so nothing
can be put in without the key of the workspace. A run without a snapshot is replayed from its results, since programs
are deterministic.
The process that executes a run holds a lock on its file.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from switchboard_mcp.programs.engine import Failed, Limits, Module, ProgramCall, Settled
from switchboard_mcp.system import work_thread
from switchboard_mcp.system.user_key import read_private, user_key

KEY_FILE = "key"
SUFFIX = ".run"
# A snapshot holds everything that the program holds. A larger one is not written; the run is then replayed from the
# last one that was.
MAX_SNAPSHOT_BYTES = 256 * 1024
# Snapshots are left out of a file that has grown to this.
MAX_SNAPSHOTS_FILE_BYTES = 16 * 1024 * 1024
# Calls that only read are written together: so many records at most, or those of this time.
MAX_UNWRITTEN = 100
UNWRITTEN_S = 0.1
MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_AGE_S = 7 * 24 * 3600.0
MAX_FOLDER_BYTES = 256 * 1024 * 1024
_MAC_CHARS = 64
_CREATE_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class StartRecord(Struct, tag="start", frozen=True):
    """The beginning of a run: all that a replay needs. `note` is for the part that serves the host."""

    code: str
    modules: list[Module]
    input: bytes
    seed: int
    clock: float
    limits: Limits
    version: str
    note: dict[str, str] = {}


class WaitRecord(Struct, tag="wait"):
    """A step that ended in a wait: the outcomes it began with, the calls it made, and the snapshot if there is one."""

    settled: list[int]
    calls: Sequence[ProgramCall]
    pending: Sequence[int]
    printed: str
    snapshot: bytes = b""


class SnapshotRecord(Struct, tag="snapshot", frozen=True):
    """The snapshot of the last wait."""

    snapshot: bytes


class SentRecord(Struct, tag="sent", frozen=True):
    """Calls that leave now."""

    ids: list[int]


class ResultRecord(Struct, tag="result", frozen=True):
    """The outcome of a call."""

    id: int
    settled: Settled
    ms: float
    outcome: str


class EndRecord(Struct, tag="end", frozen=True):
    """The end of a run."""

    value: bytes
    printed: str
    failure: Failed | None
    cancelled: bool = False


Record = StartRecord | WaitRecord | SnapshotRecord | SentRecord | ResultRecord | EndRecord
# Logs of older versions hold one record in a line, and no list.
_decoder: msgspec.json.Decoder[list[Record] | Record] = msgspec.json.Decoder(list[Record] | Record)
_encode = msgspec.json.Encoder().encode


class RecordedRun(Struct):
    """A run as its log has it."""

    start: StartRecord
    waits: list[WaitRecord]
    sent: set[int]
    results: dict[int, ResultRecord]
    end: EndRecord | None = None


class RunLogError(Exception):
    """A log that cannot be used. The message says why."""


class RunLog:
    """The open log of a run. It is locked until it is closed."""

    def __init__(self, run: str, descriptor: int, key: bytes, previous: bytes = b"", size: int = 0) -> None:
        self.run = run
        self._descriptor = descriptor
        self._key = key
        self._previous = previous
        self._size = size

    def write(self, *records: Record) -> None:
        """Append records as one line: all of them are kept, or none. Raises `OSError`.

        They survive the end of this process at once, a power cut after `sync`.
        """
        body = _encode(records)
        self._previous = _mac(self._key, self._previous, body)
        data = self._previous + b" " + body + b"\n"
        self._size += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def has_room(self, snapshot: bytes) -> bool:
        """Return True for a snapshot that is worth its place in the file."""
        return 0 < len(snapshot) <= MAX_SNAPSHOT_BYTES and self._size <= MAX_SNAPSHOTS_FILE_BYTES

    async def read(self) -> RecordedRun:
        """Return the run as it is recorded. Raises `OSError` or `RunLogError`."""
        return await work_thread.run(work_thread.OWN, self._read)

    def _read(self) -> RecordedRun:
        data = os.pread(self._descriptor, MAX_FILE_BYTES, 0)
        return assemble(_parse(data, self._key, self.run)[0])

    async def sync(self) -> None:
        """Wait until all records are on the disk. Raises `OSError`."""
        await work_thread.run_alone(lambda: os.fsync(self._descriptor))

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RecordBuffer:
    """Collects the records of a run until they are written together. Without a log it drops them."""

    def __init__(self, log: RunLog | None) -> None:
        self._log = log
        self._unwritten: list[Record] = []
        self._due = 0.0

    def add(self, record: Record) -> None:
        """Add a record to those that are written next."""
        if self._log is not None:
            self._unwritten.append(record)

    @property
    def is_due(self) -> bool:
        """True if so much would be lost by a crash that it should be written now."""
        return len(self._unwritten) >= MAX_UNWRITTEN or time.monotonic() >= self._due

    def write(self, *records: Record) -> None:
        """Write all that was added, and these. Raises `OSError`."""
        unwritten, self._unwritten = [*self._unwritten, *records], []
        self._due = time.monotonic() + UNWRITTEN_S
        if self._log is not None and unwritten:
            self._log.write(*unwritten)


class RunStore:
    """The logs of a workspace's runs, in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._secret = b""
        # Set when the gateway stops: runs that end because of that are continued by the next one.
        self.is_stopping = False

    def create(self, run: str, start: StartRecord) -> RunLog:
        """Create the log of a run, and remove old ones. Raises `OSError`."""
        key = self._key(b"log")
        self.prune(time.time())
        descriptor = os.open(self._path(run), _CREATE_FLAGS, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            log = RunLog(run, descriptor, key)
            log.write(start)
        except BaseException:
            os.close(descriptor)
            raise
        return log

    def reopen(self, run: str) -> tuple[RunLog, RecordedRun]:
        """Open the log of a run to continue it.

        Raises `BlockingIOError` if another process executes it, `OSError`, or `RunLogError`.
        """
        descriptor = os.open(self._path(run), _OPEN_FLAGS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            records, previous, size = self._read(run)
            os.ftruncate(descriptor, size)  # a line that a crash cut off
            return RunLog(run, descriptor, self._key(b"log"), previous, size), assemble(records)
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, run: str) -> RecordedRun:
        """Return a run. Raises `OSError` or `RunLogError`."""
        return assemble(self._read(run)[0])

    def runs(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        return [os.path.basename(path)[: -len(SUFFIX)] for _, _, path in self._files()]

    def unfinished(self) -> list[str]:
        """Return the ids of runs without an end that no process executes, oldest first."""
        return [run for run in self.runs() if self._is_unfinished(run)]

    def prune(self, now: float) -> None:
        """Remove logs that are old, and the oldest if all are too large together; never one that is executed."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        for modified, size, path in files:
            if modified > now - MAX_AGE_S and total <= MAX_FOLDER_BYTES:
                break
            with _locked(path) as is_ours:
                if is_ours:
                    os.unlink(path)
                    total -= size

    def _is_unfinished(self, run: str) -> bool:
        with _locked(self._path(run)) as is_ours:
            if not is_ours:
                return False
            try:
                return self.read(run).end is None
            except (OSError, RunLogError):
                return False

    def _files(self) -> list[tuple[float, int, str]]:
        """Return the time of the last change, the size and the path of each log, oldest first."""
        files = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX):
                        status = entry.stat(follow_symlinks=False)
                        files.append((status.st_mtime, status.st_size, entry.path))
        except OSError:
            return []
        return sorted(files)

    def _path(self, run: str) -> str:
        if not run.isalnum() or len(run) > 64 or not run.isascii():
            raise OSError(errno.ENOENT, f"There is no run {run!r}.")
        return os.path.join(self._folder, run + SUFFIX)

    def _key(self, purpose: bytes) -> bytes:
        self._secret = self._secret or user_key(os.path.join(self._folder, KEY_FILE))
        return hmac.digest(self._secret, purpose, hashlib.sha256)

    def _read(self, run: str) -> tuple[list[Record], bytes, int]:
        """Return the records of a log, the signature of the last, and the size of the lines that are whole."""
        data = read_private(self._path(run), MAX_FILE_BYTES)
        if data is None:
            raise OSError(errno.ENOENT, f"There is no run {run!r}.")
        return _parse(data, self._key(b"log"), run)


def _parse(data: bytes, key: bytes, run: str) -> tuple[list[Record], bytes, int]:
    """Return the records in the whole lines of a log, the signature of the last line, and the size of all of them."""
    previous, size = b"", 0
    records: list[Record] = []
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        body = line[_MAC_CHARS + 1 : -1]
        mac = _mac(key, previous, body)
        if not hmac.compare_digest(mac, line[:_MAC_CHARS]):
            raise RunLogError(f"The log of the run {run} was changed. It is not continued.")
        try:
            decoded = _decoder.decode(body)
        except msgspec.MsgspecError:
            message = f"The log of the run {run} is of another version. It is not continued."
            raise RunLogError(message) from None
        records += decoded if isinstance(decoded, list) else [decoded]
        previous, size = mac, size + len(line)
    return records, previous, size


def assemble(records: Sequence[Record]) -> RecordedRun:
    """Return the run that records describe. Raises `RunLogError`."""
    if not records or not isinstance(records[0], StartRecord):
        raise RunLogError("The log of the run has no beginning. It is not continued.")
    run = RecordedRun(records[0], [], set(), {})
    for record in records[1:]:
        if isinstance(record, WaitRecord):
            run.waits.append(record)
        elif isinstance(record, SnapshotRecord):
            if run.waits:
                run.waits[-1].snapshot = record.snapshot
        elif isinstance(record, SentRecord):
            run.sent.update(record.ids)
        elif isinstance(record, ResultRecord):
            run.results[record.id] = record
        elif isinstance(record, EndRecord):
            run.end = record
    return run


def new_run_id() -> str:
    """Return an id for a run; ids of one workspace sort by their time."""
    return f"{int(time.time()):010x}{os.urandom(8).hex()}"


def _mac(key: bytes, previous: bytes, body: bytes) -> bytes:
    return hmac.digest(key, previous + b" " + body, hashlib.sha256).hex().encode()


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Hold the lock of a log; False if another process executes its run, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
