"""The journal: one sync makes all changes of a group durable, before their files are synced.

A group commit changes the files first, without syncing them. Then it appends each change, with the content, to the
journal of its process, `.switchboard/journal/<writer>.<number>.jsonl`, and syncs that one file; processes that sync at
the same time share the flush of the disk. Some seconds later a checkpoint syncs the file system and removes the
journal; all processes of a workspace do so at the same times and share that sync too. The journals of processes that
ended before that are replayed by the next one: what a power cut took from the files is written again. Owns these files;
not aware of what messages contain.
"""

from __future__ import annotations

import os
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.filenames import PLACES, Place, Stem, parse

FOLDER = "journal"
LOCK = "journal"
_SUFFIX = ".jsonl"
# A checkpoint follows the first change after about this time, so the journal holds the changes of a few seconds.
CHECKPOINT_S = 2.0
# The record of the last sync, in `locks/`.
CHECKPOINT = "checkpoint"
_RECORD_BYTES = 128
# A journal of this size is closed at once; a larger one makes its writer wait for the checkpoint.
CHECKPOINT_BYTES = 8_388_608
MAX_BYTES = 8 * CHECKPOINT_BYTES
# Larger files are synced themselves.
MAX_DATA_BYTES = 262_144
# Zeros that are written after the end of a journal, as many as it holds, and overwritten by the next groups: while the
# size of a file stays the same, a sync writes its content alone, without committing the file system's own journal.
MIN_ZEROS, MAX_ZEROS = 16_384, 262_144
# The first groups of a process sync their files: a command that sends one message leaves no journal behind.
DIRECT_GROUPS = 4
# At the end of a process a checkpoint is made only if it is quick; otherwise the next process makes it.
MAX_DIRTY_KB = 65_536
_MAX_LINE = 4 * MAX_DATA_BYTES


class Change(Struct, omit_defaults=True):
    """A file that got this name, from another one if it was moved; without a name, one that was removed on purpose."""

    at: int
    """Nanoseconds since the system was started. Orders the changes of all processes."""
    folder: tuple[str, ...]
    name: str = ""
    source: tuple[str, ...] = ()
    """Folders and name of a file before it was moved or removed."""
    data: str | None = None
    base64: bool = False

    def content(self) -> bytes | None:
        """Return the content of the file; None if it is not known."""
        if self.data is None:
            return None
        return b64decode(self.data) if self.base64 else self.data.encode()


def published(folder: tuple[str, ...], name: str, data: bytes | None) -> Change:
    """Return the change of a new file."""
    text, encoded = _as_text(data)
    return Change(time.monotonic_ns(), folder, name, data=text, base64=encoded)


def moved(source: tuple[str, ...], folder: tuple[str, ...], name: str, data: bytes | None) -> Change:
    """Return the change of a moved file."""
    text, encoded = _as_text(data)
    return Change(time.monotonic_ns(), folder, name, source, text, encoded)


def removed(folder: tuple[str, ...], name: str) -> Change:
    """Return the change of a file that was removed, or must not be moved again."""
    return Change(time.monotonic_ns(), folder, source=(*folder, name))


def _as_text(data: bytes | None) -> tuple[str | None, bool]:
    if data is None:
        return None, False
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return b64encode(data).decode(), True


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Change)


class LastSync(Struct):
    """When the last sync of the file system began that succeeded, in nanoseconds since this boot."""

    boot: str = ""
    began: int = 0

    def covers(self, boot: str, changed_at: int) -> bool:
        """Return True if changes made until this time are durable."""
        return self.boot == boot and changed_at < self.began


def _decode_sync(data: bytes) -> LastSync:
    try:
        return msgspec.json.decode(data, type=LastSync)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LastSync()  # New, or torn by a power cut.


def _until_checkpoint(now_s: float) -> float:
    """Return the seconds until the next common time of all processes that is at least half a period away."""
    left = CHECKPOINT_S - now_s % CHECKPOINT_S
    return left if left >= CHECKPOINT_S / 2 else left + CHECKPOINT_S


class Journal:
    """The journal of one process. `append` is for one thread; checkpoints run in a thread of their own."""

    def __init__(self, path: str, writer: str, boot: str) -> None:
        self._root = path
        self._boot = boot
        self._path = os.path.join(path, FOLDER)
        self._writer = writer
        self._number = 0
        self._descriptor = -1
        # What the journal holds, and its size with the zeros.
        self._bytes = self._size = 0
        self._wake = threading.Condition()
        # Closed journals whose files are to be synced.
        self._closed: list[str] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._groups = 0

    @property
    def usable(self) -> bool:
        """Return True if the file system can be synced as a whole, with its errors reported."""
        return file_operations.can_sync_all()

    def begins(self) -> bool:
        """Return True if the next group is to use the journal."""
        self._groups += 1
        return self.usable and self._groups > DIRECT_GROUPS

    def exists(self) -> bool:
        """Return True if any process has a journal."""
        try:
            return bool(os.listdir(self._path))
        except OSError:
            return False

    def append(self, changes: Sequence[Change], *, sync: bool) -> None:
        """Append changes; they are durable on return if `sync`."""
        with self._wake:
            if self._descriptor < 0:
                self._open()
            data = b"".join(_encoder.encode(change) + b"\n" for change in changes)
            try:
                self._write(data, sync=sync)
                if file_operations.is_removed(self._descriptor):
                    # Somebody removed the lock file of this process, so another one took it for ended.
                    self._close_file()
                    self._open()
                    self._write(data, sync=sync)
            except OSError:
                # What follows a torn line would not be read, and a failed sync may have dropped what it should write.
                self._close_file()
                raise
            if self._bytes >= CHECKPOINT_BYTES:
                self._close_file()
                self._wake.notify_all()
            while len(self._closed) * CHECKPOINT_BYTES > MAX_BYTES and self._thread is not None:
                self._wake.wait(1.0)

    def _write(self, data: bytes, *, sync: bool) -> None:
        end = self._bytes + len(data)
        if end <= self._size:
            file_operations.append(self._descriptor, data)
        else:
            zeros = min(max(self._bytes, MIN_ZEROS), MAX_ZEROS)
            file_operations.append(self._descriptor, data + bytes(zeros))
            os.lseek(self._descriptor, end, os.SEEK_SET)
            self._size = end + zeros
        self._bytes = end
        if sync:
            file_operations.sync_data(self._descriptor)

    def _open(self) -> None:
        os.makedirs(self._path, 0o700, exist_ok=True)
        folder = file_operations.open_folder(self._path)
        try:
            self._number += 1
            name = f"{self._writer}.{self._number}{_SUFFIX}"
            self._descriptor = file_operations.create(folder, name, b"")
            file_operations.sync(folder)
        finally:
            os.close(folder)
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(
                target=self._run_checkpoints, name="switchboard-mail-checkpoint", daemon=True
            )
            self._thread.start()

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._bytes = self._size = 0
            self._closed.append(f"{self._writer}.{self._number}{_SUFFIX}")

    def _run_checkpoints(self) -> None:
        """Make checkpoints while there are changes; ends when there are none."""
        while True:
            with self._wake:
                if not self._closed and not self._stopping:
                    self._wake.wait(_until_checkpoint(time.monotonic()))
                self._close_file()
                names = list(self._closed)
                if self._stopping or not names:
                    self._thread = None
                    return
            done = self._checkpoint(names)
            with self._wake:
                if done:
                    self._closed = [name for name in self._closed if name not in names]
                else:
                    # The journal stays: a process that finds it later tries again.
                    self._closed.clear()
                self._wake.notify_all()

    def _checkpoint(self, names: Sequence[str]) -> bool:
        """Sync the file system, unless another process has done so since these journals were closed; remove them."""
        closed_at = time.monotonic_ns()
        try:
            folder = file_operations.open_folder(self._path)
        except OSError:
            return False
        try:
            if not self._sync_once(folder, closed_at):
                return False
            for name in names:
                if file_operations.exists(folder, name):
                    file_operations.remove(folder, name)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(folder)

    def _sync_once(self, folder: int, closed_at: int) -> bool:
        """Return True if all changes until this time are durable."""
        with ExitStack() as stack:
            record = -1
            with suppress(OSError, SwitchboardError):  # Stalled, or there is no such folder: sync without it.
                path = os.path.join(self._root, "locks")
                locks = file_operations.open_folder(path)
                stack.callback(os.close, locks)
                record = stack.enter_context(file_operations.lock(locks, CHECKPOINT, path))
                if _decode_sync(os.pread(record, _RECORD_BYTES, 0)).covers(self._boot, closed_at):
                    return True
            begun = LastSync(self._boot, time.monotonic_ns())
            if not file_operations.sync_all(folder):
                return False
            if record >= 0:
                with suppress(OSError):  # The disk is full: the next process syncs too.
                    os.pwrite(record, msgspec.json.encode(begun).ljust(_RECORD_BYTES), 0)
            return True

    def close(self) -> None:
        """Make a last checkpoint if it is quick; otherwise the journal stays for the next process."""
        with self._wake:
            self._stopping = True
            self._close_file()
            names, self._closed = list(self._closed), []
            thread = self._thread
            self._wake.notify_all()
        if thread is not None:
            thread.join()
        if names and file_operations.dirty_kb() < MAX_DIRTY_KB:
            self._checkpoint(names)


def replay(root: int, path: str, writer: str, is_dead: Callable[[str], bool]) -> int:
    """Finish the work of ended processes: write again what a power cut took; returns how many files were written.

    `writer` begins the names of temporary files. `is_dead` gets the writer of a journal. Other processes may be at
    work meanwhile.
    """
    try:
        folder = file_operations.open_folder(FOLDER, root)
    except FileNotFoundError:
        return 0
    try:
        if not any(is_dead(_writer(name)) for name in file_operations.names(folder)):
            return 0
        locks = file_operations.open_folder("locks", root)
        try:
            with file_operations.lock(locks, LOCK, f"{path}/locks"):
                return _Replay(root, path, writer, folder, locks).run(is_dead)
        finally:
            os.close(locks)
    finally:
        os.close(folder)


def _writer(name: str) -> str:
    return name.partition(".")[0]


class _FinalState(Struct):
    """The last known state of a file: its folder and name, and its content."""

    folder: tuple[str, ...]
    name: str
    data: bytes | None
    dead: bool
    """True if an ended process changed it: only such files are looked at."""


class _Replay:
    """One replay: computes the last state of every file of the journals, and restores it."""

    def __init__(self, root: int, path: str, writer: str, folder: int, locks: int) -> None:
        self._root = root
        self._writer = writer
        self._path = path
        self._folder = folder
        self._locks = locks
        self._written = 0

    def run(self, is_dead: Callable[[str], bool]) -> int:
        names = file_operations.names(self._folder)
        dead = [name for name in names if is_dead(_writer(name))]
        changes = sorted(
            ((change, name in dead) for name in names for change in self._changes(name)),
            key=lambda each: each[0].at,
        )
        by_mailbox: dict[str, list[_FinalState]] = {}
        for state in _final_states(changes).values():
            if state.dead:
                by_mailbox.setdefault(state.folder[-1], []).append(state)
        for agent, states in by_mailbox.items():
            with file_operations.lock(self._locks, f"{agent}.lock", f"{self._path}/locks"):
                self._restore(agent, states)
        if not file_operations.sync_all(self._root):
            os.sync()
        for name in dead:
            file_operations.remove(self._folder, name)
        return self._written

    def _changes(self, name: str) -> Iterator[Change]:
        """Read a journal up to its torn end, or to the zeros after it."""
        try:
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder), "rb") as file:
                while (line := file.readline(_MAX_LINE)).endswith(b"\n"):
                    change = _decoder.decode(line)
                    if _is_ours(change):
                        yield change
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return

    def _restore(self, agent: str, states: Sequence[_FinalState]) -> None:
        actual: dict[Stem, list[tuple[Place, str]]] | None = None
        for state in states:
            stem = _stem_of(state.folder, state.name)
            if stem is None:
                self._restore_file(state.folder, state.name, state.data)
                continue
            if actual is None:
                actual = self._list(agent)
            found = actual.get(stem, [])
            if not found:
                self._restore_file(state.folder, state.name, state.data)
            elif len(found) == 1:
                self._restore_message(agent, state, *found[0])

    def _list(self, agent: str) -> dict[Stem, list[tuple[Place, str]]]:
        actual: dict[Stem, list[tuple[Place, str]]] = {}
        for place in PLACES:
            folder = self._open((place, agent))
            if folder is None:
                continue
            try:
                for name in file_operations.names(folder):
                    entry = parse(place, name)
                    if entry is not None:
                        actual.setdefault(entry.stem, []).append((place, name))
            finally:
                os.close(folder)
        return actual

    def _restore_message(self, agent: str, state: _FinalState, place: Place, name: str) -> None:
        """Restore the content of a message where it is now; if it was settled, move it on."""
        self._restore_file((place, agent), name, state.data)
        if state.folder[0] in ("inbox", "claimed") or place not in ("inbox", "claimed"):
            return
        source, target = self._open((place, agent)), self._open(state.folder, make=True)
        if source is not None and target is not None:
            file_operations.move(source, name, target, state.name)
            os.close(source)
            os.close(target)

    def _restore_file(self, parts: tuple[str, ...], name: str, data: bytes | None) -> None:
        """Write a file again if it is missing, or was torn by a power cut."""
        if data is None:
            return
        folder = self._open(parts, make=True)
        temporary = self._open(("tmp",))
        if folder is None or temporary is None:
            return
        try:
            present = file_operations.read(folder, name, len(data) + 1)
            if isinstance(present, file_operations.RejectedFile):
                if not present.gone:
                    return
            elif len(present.data) >= len(data) and b"\0" not in present.data:
                return
            draft = f"{self._writer}.replayed"
            os.close(file_operations.create(temporary, draft, data))
            file_operations.replace(temporary, draft, folder, name)
            self._written += 1
        finally:
            os.close(folder)
            os.close(temporary)

    def _open(self, parts: tuple[str, ...], *, make: bool = False) -> int | None:
        descriptor = os.dup(self._root)
        for part in parts:
            try:
                if make:
                    file_operations.make_folder(part, descriptor)
                inner = file_operations.open_folder(part, descriptor)
            except FileNotFoundError:
                return None
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor


def _is_ours(change: Change) -> bool:
    """Return True if a change names files below `.switchboard/` only, as every change that the store writes does."""
    names = (*change.folder, *change.source, *([change.name] if change.name else []))
    return bool(change.folder) and not any(
        part in ("", ".", "..") or "/" in part or "\0" in part for part in names
    )


Key = tuple[str, ...]


def _key(folder: tuple[str, ...], name: str) -> Key:
    """Return what identifies a file: a message keeps its stem in all places, other files have one place."""
    stem = _stem_of(folder, name)
    return ("message", folder[-1], str(stem)) if stem is not None else (*folder, name)


def _stem_of(folder: tuple[str, ...], name: str) -> Stem | None:
    for place in PLACES:
        if folder[:1] == (place,) and (entry := parse(place, name)) is not None:
            return entry.stem
    return None


def _final_states(changes: Sequence[tuple[Change, bool]]) -> dict[Key, _FinalState]:
    states: dict[Key, _FinalState] = {}
    for change, dead in changes:
        before = None
        if change.source:
            before = states.pop(_key(change.source[:-1], change.source[-1]), None)
        if not change.name:
            continue
        key = _key(change.folder, change.name)
        before = before or states.get(key)
        data = change.content()
        if data is None and before is not None:
            data = before.data
        states[key] = _FinalState(
            change.folder, change.name, data, dead or (before is not None and before.dead)
        )
    return states
