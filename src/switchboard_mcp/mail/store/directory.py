"""The folders below `.switchboard/`, and transactions on them.

A `Transaction` looks up each folder that it uses by path, so a moved or replaced folder is noticed.
It also collects what a group of jobs must sync, so each file and folder is synced once. Manages folders, temporary
files, locks and order numbers; caches facts about messages for other modules, but is not aware of their contents.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.clocks import Clocks
from switchboard_mcp.mail.store.disk import commit_journal, day_segments
from switchboard_mcp.mail.store.disk.fsync import FsyncBatcher
from switchboard_mcp.mail.store.file_operations import FileContent, RejectedFile
from switchboard_mcp.mail.store.filenames import MessageFile, Now, parse, parse_receipt_name
from switchboard_mcp.mail.store.index.inbox_comparison import FirstFiles, InboxComparison
from switchboard_mcp.mail.store.index.inbox_index import InboxIndex, IndexRow, has_exact_stamps, stamp_of
from switchboard_mcp.mail.store.index.recent_receipts import RecentReceipts
from switchboard_mcp.mail.store.open_folders import OpenFolders
from switchboard_mcp.mail.store.ordering import Counter, reserve
from switchboard_mcp.system.atomic_write import write_gitignore

AGENT_FOLDERS = ("inbox", "claimed", "archive", "deadletter", "outbox", "keys")
FOLDERS = (*AGENT_FOLDERS, "attachments", "reviews", "locks", "tmp")
COUNTER = "order"
# One file per agent on another machine, written by the bus.
REMOTE_AGENTS = "elsewhere"
SIGNING_KEY = "seal.key"
_COUNTER_BYTES = 256
# Four folders of each of 32 agents, and those that they are in.
MAX_KEPT_FOLDERS = 140
# Messages of which other processes may have taken some: at some point all are forgotten.
MAX_PUBLISHED = 20_000
# Higher numbers were not issued here; continuing from them would use up the digits.
_HIGHEST = 8_000_000_000_000_000


class Quotas(Struct, frozen=True, kw_only=True):
    """How much may wait for one agent, and be stored in the workspace. The defaults are those of the settings."""

    waiting: int = 100_000
    waiting_bytes: int = 4_294_967_296
    stored: int = 2_000_000
    stored_bytes: int = 34_359_738_368


class TempFile(Struct):
    """A file without a public name yet."""

    name: str
    inode: int
    descriptor: int = -1
    data: bytes = b""


class StoreDirectory:
    """The `.switchboard` directory of a workspace, as used by one process."""

    def __init__(self, workspace: str, clocks: Clocks, quotas: Quotas | None = None) -> None:
        self.workspace = os.path.abspath(workspace)
        self.path = os.path.join(self.workspace, FOLDER)
        self.clocks = clocks
        self.quotas = quotas or Quotas()
        # True if the file system takes no changes: messages can be read, and everything else is refused.
        self.read_only = False
        # A process that holds the lock of this name is alive, so its temporary files must stay.
        self.writer = os.urandom(6).hex()
        self._alive = -1
        self._files = 0
        self.fsync = FsyncBatcher()
        self.journal = commit_journal.Journal(self.path, self.writer, clocks.boot)
        # Folders that were reported once as not ours alone.
        self.unsafe: set[str] = set()
        self.index = InboxIndex(self.path, clocks.boot)
        # Messages with a valid signature, by agent and file name.
        self.verified: dict[str, dict[str, VerifiedMessage]] = {}
        # The signing key, and the state of its file before it was read.
        self._key: tuple[tuple[int, ...], bytes] | None = None
        # The record of the next expiry, by the state of its file before it was read.
        self.next_expiry: dict[tuple[int, ...], Now] = {}
        # Messages that this process has published to inboxes without an index, by agent and file name.
        self.published: dict[str, dict[str, VerifiedMessage]] = {}
        self._published_count = 0
        self._threads = threading.local()
        # Files without a valid signature that were found by an incomplete listing: their inodes by agent and name.
        self.unsigned: dict[str, dict[str, int]] = {}
        # File under which a message was claimed, by agent and id. A hint only: other processes move files too.
        self.claimed: dict[tuple[str, str], MessageFile] = {}

    def next_temporary(self) -> str:
        """Return an unused name for a temporary file."""
        self._files += 1
        return f"{self.writer}.{self._files}"

    def make(self, folders: Sequence[str] = FOLDERS) -> None:
        """Create missing folders."""
        try:
            parent = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if file_operations.make_folder(FOLDER, parent):
                    write_gitignore(self.path)
                root = file_operations.open_folder(FOLDER, parent)
            finally:
                os.close(parent)
            try:
                for name in folders:
                    file_operations.make_folder(name, root)
                self._stay_alive(root)
                self.replay_journals(root)
            finally:
                os.close(root)
        except OSError as problem:
            if problem.errno in file_operations.READ_ONLY and os.path.isdir(os.path.join(self.path, "inbox")):
                self.read_only = True
                return
            raise SwitchboardError(file_operations.failure_for(problem, self.path)) from None

    def _stay_alive(self, root: int) -> None:
        folder = file_operations.open_folder("tmp", root)
        try:
            # Locked first: the files of a process without a lock are removed by others.
            lock = f"{self.writer}.lock"
            self._alive = file_operations.create_locked(folder, lock, f"{self.path}/tmp")
            self.index.exact = self.index.exact or has_exact_stamps(folder, self.writer)
        finally:
            os.close(folder)

    def replay_journals(self, root: int) -> int:
        """Finish the group commits of processes that have ended; returns how many files were written again."""
        if "tmp" not in os.listdir(root):
            return 0
        folder = file_operations.open_folder("tmp", root)
        try:
            return commit_journal.replay(
                root, self.path, self.writer, lambda writer: self.is_dead(folder, writer)
            )
        finally:
            os.close(folder)

    def is_dead(self, folder: int, writer: str) -> bool:
        """Return True if the process with this writer name has ended; `folder` is that of temporary files."""
        if writer == self.writer:
            return False
        try:
            descriptor = os.open(f"{writer}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            return file_operations.try_lock(descriptor)
        finally:
            os.close(descriptor)

    def comparisons(self) -> dict[str, InboxComparison]:
        """Return the comparisons of large inboxes with their indexes that this thread has begun, by agent."""
        found: dict[str, InboxComparison] | None = getattr(self._threads, "comparisons", None)
        if found is None:
            found = self._threads.comparisons = {}
        return found

    def buildings(self) -> dict[str, FirstFiles]:
        """Return the searches for the first files of large inboxes that this thread has begun, by agent."""
        found: dict[str, FirstFiles] | None = getattr(self._threads, "buildings", None)
        if found is None:
            found = self._threads.buildings = {}
        return found

    def known_key(self, state: tuple[int, ...]) -> bytes | None:
        """Return the key used to sign messages, if its file is in the state in which it was read before."""
        return self._key[1] if self._key is not None and self._key[0] == state else None

    def remember_key(self, state: tuple[int, ...], key: bytes) -> None:
        """Remember the key until its file changes."""
        self._key = (state, key) if state else None

    def remember_published(self, agent: str, message: VerifiedMessage) -> None:
        """Remember a message that was written just now, so that it needs not be read to be listed."""
        if self._published_count >= MAX_PUBLISHED:
            self.published, self._published_count = {}, 0
        self.published.setdefault(agent, {})[message.entry.name] = message
        self._published_count += 1

    def stay_alive(self, tx: Transaction) -> None:
        """Lock again if the lock file was deleted: other processes would remove our temporary files."""
        if self._alive >= 0 and not file_operations.exists(tx.folder("tmp"), f"{self.writer}.lock"):
            os.close(self._alive)
            self._alive = -1
            self._stay_alive(tx.root)

    def close(self) -> None:
        """Release the lock of this process."""
        self.journal.close()
        self.fsync.close()
        self.index.close_thread()
        if self._alive < 0:
            return
        try:
            with self.transaction() as tx:
                file_operations.remove(tx.folder("tmp"), f"{self.writer}.lock")
        except (OSError, SwitchboardError):
            pass  # The directory may be gone or read-only by now.
        os.close(self._alive)
        self._alive = -1

    @contextmanager
    def transaction(
        self, numbers: int = 0, *, journaled: bool = False, folders: OpenFolders | None = None
    ) -> Iterator[Transaction]:
        """Open a transaction and reserve `numbers` order numbers. A `journaled` one syncs the journal alone.

        `folders` stay open for the next transaction of the same thread.
        """
        used = OpenFolders() if folders is None else folders
        try:
            try:
                root = used.open((), self.path)
            except OSError as problem:
                raise SwitchboardError(file_operations.failure_for(problem, self.path)) from None
            tx = Transaction(self, used, root, numbers, journaled=journaled)
            try:
                yield tx
            finally:
                tx.close()
        finally:
            used.close(keep=0 if folders is None else MAX_KEPT_FOLDERS)


class VerifiedMessage(Struct, frozen=True):
    """A message with a valid signature, and what its claim order depends on; valid while the inode is the same."""

    entry: MessageFile
    inode: int
    sender: str
    priority: str


class InboxChanges(Struct):
    """Changes of one inbox under its lock, for the index; `trusted` if that was right for the state `before` them.

    The index of a `large` inbox gets them in any case.
    """

    folder: int
    before: int
    trusted: bool
    large: bool = False
    added: dict[str, IndexRow] = {}
    removed: set[str] = set()


class _NamedLock:
    """A lock in `locks/`, for one transaction; a class, since a claim takes three and a generator costs more."""

    def __init__(self, folder: int, path: str, name: str, held: dict[str, int], timeout_s: float) -> None:
        self._folder, self._path, self._name = folder, path, name
        self._held = held
        self._timeout_s = timeout_s
        self._descriptor = -1

    def __enter__(self) -> int:
        if self._name in self._held:
            raise RuntimeError(f"{self._name} is already locked")
        self._descriptor = file_operations.take_lock(
            self._folder, self._name, self._path, timeout_s=self._timeout_s
        )
        self._held[self._name] = self._descriptor
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock, if it was taken."""
        if self._descriptor >= 0:
            del self._held[self._name]
            os.close(self._descriptor)
            self._descriptor = -1


class Transaction:
    """Open folders of a transaction, with the files and folders still to sync."""

    def __init__(
        self, directory: StoreDirectory, folders: OpenFolders, root: int, numbers: int, *, journaled: bool
    ) -> None:
        self.directory = directory
        self._open_folders = folders
        self._journaled = journaled
        # Changes that are not in the journal yet.
        self._journal: list[commit_journal.Change] = []
        self._sync_all = False
        self.root = root
        self.clocks = directory.clocks
        self._folders: dict[tuple[str, ...], int] = {}
        self._parts: dict[int, tuple[str, ...]] = {root: ()}
        self._temp_files: list[TempFile] = []
        self._dirty: set[int] = set()
        self._reserve = numbers
        self._numbers: list[int] = []
        # Descriptors of the locks that are held, by name.
        self._held: dict[str, int] = {}
        self._key: bytes | None = None
        # Inboxes by descriptor, and the changes made to each under its lock.
        self._inboxes: dict[int, str] = {}
        self._changes: dict[str, InboxChanges] = {}
        # State of an inbox for which its index was found to be right.
        self._trusted: dict[str, int] = {}
        # Open indexes of segments, by place and agent.
        self.segment_indexes: dict[tuple[str, str], day_segments.SegmentIndex] = {}
        # False for work in the background that comes back once segments are indexed.
        self.waits_for_segments = True
        # Where receipts of a sender are noted; -1 if they are not.
        self._recent: dict[str, int] = {}

    def close(self) -> None:
        """Remove unpublished temporary files and close other files."""
        for file in tuple(self._temp_files):
            try:
                self.discard(file)
            except OSError:
                pass  # The disk that failed the job fails this too; `repair` removes them later.
        try:
            # Receipts, which `repair` could restore: durable with the next group.
            self._write_journal(sync=False)
        except OSError:
            pass
        for index in self.segment_indexes.values():
            index.close()
        for descriptor in self._recent.values():
            if descriptor >= 0:
                os.close(descriptor)

    def folder(self, *parts: str, make: bool = False) -> int:
        """Return the descriptor of a folder below the root. Raises FileNotFoundError if missing, unless `make`."""
        if parts in self._folders:
            return self._folders[parts]
        parent = self.root if len(parts) == 1 else self.folder(*parts[:-1], make=make)
        try:
            descriptor = self._open_folders.open(parts, parts[-1], parent)
        except FileNotFoundError:
            if not make:
                raise
            file_operations.make_folder(parts[-1], parent)
            descriptor = self._open_folders.open(parts, parts[-1], parent)
        self._folders[parts] = descriptor
        self._parts[descriptor] = parts
        if len(parts) == 2 and parts[0] == "inbox":
            self._inboxes[descriptor] = parts[1]
        return descriptor

    def forget_folder(self, *parts: str) -> None:
        """Close a folder that was removed."""
        descriptor = self._folders.pop(parts, None)
        if descriptor is not None:
            self._dirty.discard(descriptor)
            del self._parts[descriptor]
            self._inboxes.pop(descriptor, None)
            self._open_folders.forget(parts)

    def has(self, *parts: str) -> bool:
        """Return True if the folder exists."""
        try:
            self.folder(*parts)
        except FileNotFoundError:
            return False
        return True

    def names(self, *parts: str) -> list[str]:
        """List the names in a folder, unordered; empty if the folder is missing."""
        return file_operations.names(self.folder(*parts)) if self.has(*parts) else []

    def all_names(self, place: str, agent: str) -> list[str]:
        """List the names in a mailbox folder with those in its segments, unordered."""
        found = self.names(place, agent)
        return list({*found, *packed}) if (packed := list(day_segments.names(self, place, agent))) else found

    def read(self, place: str, agent: str, name: str, limit: int) -> FileContent | RejectedFile:
        """Read a file of a mailbox, wherever it is: on its own or in a segment."""
        content = file_operations.read(self.folder(place, agent), name, limit)
        if isinstance(content, RejectedFile) and content.gone:
            return day_segments.read(self, place, agent, name) or content
        return content

    def exists(self, place: str, agent: str, name: str) -> bool:
        """Return True if a mailbox has this file, on its own or in a segment."""
        if not self.has(place, agent):
            return False
        return (
            file_operations.exists(self.folder(place, agent), name)
            or day_segments.read(self, place, agent, name) is not None
        )

    def write(self, data: bytes) -> TempFile:
        """Write a temporary file. It is removed at the end unless published."""
        if not self._temp_files:
            self.directory.stay_alive(self)
        name = self.directory.next_temporary()
        kept = data if self._journaled and len(data) <= commit_journal.MAX_DATA_BYTES else b""
        descriptor = file_operations.create(self.folder("tmp"), name, data)
        file = TempFile(name, os.fstat(descriptor).st_ino, descriptor, kept)
        self._temp_files.append(file)
        return file

    def sync_file(self, file: TempFile) -> None:
        """Sync the content of a temporary file now, without the journal."""
        file.data = b""
        problem = self.sync_files([file])[0]
        if problem is not None:
            raise problem

    def sync_files(self, files: Sequence[TempFile]) -> list[OSError | None]:
        """Sync the content of several files; returns the error of each, or None."""
        problems: dict[str, OSError | None] = {}
        # Those with their content in the journal are synced by the next checkpoint.
        direct = [file for file in files if not file.data]
        for file, problem in zip(
            direct, self.directory.fsync.sync([file.descriptor for file in direct]), strict=True
        ):
            problems[file.name] = problem
        for file in files:
            os.close(file.descriptor)
            file.descriptor = -1
        return [problems.get(file.name) for file in files]

    def discard(self, file: TempFile) -> None:
        """Remove a temporary file."""
        self._temp_files.remove(file)
        if file.descriptor >= 0:
            os.close(file.descriptor)
        file_operations.remove(self.folder("tmp"), file.name)

    def publish(self, file: TempFile, folder: int, name: str, row: IndexRow | None = None) -> None:
        """Move a temporary file to its final name. Raises FileExistsError if that is taken.

        `row` describes a message that is published to an inbox.
        """
        self._before_change(folder)
        self._before_receipt(folder, name)
        file_operations.move(self.folder("tmp"), file.name, folder, name)
        self._published(file, folder, name)
        row = replace(row, inode=file.inode) if row is not None else None
        if not self._note_change(folder, added=name, row=row) and row is not None:
            self._remember_published(folder, row)

    def _remember_published(self, folder: int, row: IndexRow) -> None:
        agent, entry = self._inboxes.get(folder), parse("inbox", row.name)
        if agent is not None and entry is not None:
            message = VerifiedMessage(entry, row.inode, row.sender, row.priority)
            self.directory.remember_published(agent, message)

    def put(self, file: TempFile, folder: int, name: str) -> None:
        """Move a temporary file to its final name, replacing any existing file."""
        self._before_receipt(folder, name)
        file_operations.replace(self.folder("tmp"), file.name, folder, name)
        self._published(file, folder, name)

    def _before_receipt(self, folder: int, name: str) -> None:
        """Note a receipt for a sender that has very many."""
        parts = self._parts[folder]
        if len(parts) != 2 or parts[0] != "outbox" or (receipt := parse_receipt_name(name)) is None:
            return
        recent = self.recent_receipts(parts[1])
        descriptor = self._recent.get(parts[1])
        if descriptor is None:
            descriptor = self._recent[parts[1]] = recent.open()
        if descriptor >= 0:
            recent.append(descriptor, receipt[0])

    def recent_receipts(self, sender: str) -> RecentReceipts:
        """Return the newest receipts of a sender."""
        return RecentReceipts(self.directory.path, self.clocks.boot, sender)

    def _published(self, file: TempFile, folder: int, name: str) -> None:
        self._temp_files.remove(file)
        if file.data:
            self._journal.append(commit_journal.published(self._parts[folder], name, file.data))
        else:
            self._dirty.add(folder)

    def move(
        self,
        folder: int,
        name: str,
        target_folder: int,
        target: str,
        row: IndexRow | None = None,
        data: bytes | None = None,
    ) -> None:
        """Move a file within the directory. Raises FileExistsError if the target exists.

        `row` describes a message that is moved to an inbox. `data` is the content of the file, if it is known.
        """
        self._before_change(folder)
        self._before_change(target_folder)
        file_operations.move(folder, name, target_folder, target)
        if self._journaled:
            if data is None or len(data) > commit_journal.MAX_DATA_BYTES:
                content = file_operations.read(target_folder, target, commit_journal.MAX_DATA_BYTES)
                data = content.data if isinstance(content, file_operations.FileContent) else None
            source = (*self._parts[folder], name)
            self._journal.append(commit_journal.moved(source, self._parts[target_folder], target, data))
            if data is None:
                self._dirty |= {folder, target_folder}
        else:
            self._dirty |= {folder, target_folder}
            if self._parts[folder][:1] in (("deadletter",), ("shipped",)):
                self._forget(folder, name)
        self._note_change(folder, removed=name)
        self._note_change(target_folder, added=target, row=row)

    def remove(self, folder: int, name: str) -> None:
        """Remove a file name."""
        self._before_change(folder)
        file_operations.remove(folder, name)
        self._dirty.add(folder)
        self._forget(folder, name)
        self._note_change(folder, removed=name)

    def _forget(self, folder: int, name: str) -> None:
        """Keep a replay from writing or moving a file again."""
        parts = self._parts[folder]
        if parts and parts != ("tmp",) and self.directory.journal.exists():
            self._journal.append(commit_journal.removed(parts, name))

    def _write_journal(self, *, sync: bool) -> None:
        changes, self._journal = self._journal, []
        if changes:
            self.directory.journal.append(changes, sync=sync)

    def trust_index(self, agent: str, stamp: int) -> None:
        """Remember that the index of an inbox is right for this state of the folder."""
        self._trusted[agent] = stamp

    def _before_change(self, folder: int) -> None:
        """Find out whether the index of an inbox is right, before the first change under its lock."""
        agent = self._inboxes.get(folder)
        if agent is None or agent in self._changes or f"{agent}.lock" not in self._held:
            return
        stamp = stamp_of(folder)
        trusted = self._trusted.get(agent) == stamp or (
            self.directory.index.view(agent, stamp, partial=True) is not None
        )
        large = not trusted and self.directory.index.is_large(agent)
        self._changes[agent] = InboxChanges(folder, stamp, trusted, large, {}, set())

    def _note_change(
        self, folder: int, *, added: str = "", removed: str = "", row: IndexRow | None = None
    ) -> bool:
        """Note a change for the index; returns False if there is none that is right."""
        agent = self._inboxes.get(folder, "")
        changes = self._changes.get(agent)
        if changes is None or not (changes.trusted or changes.large):
            return False
        if removed:
            changes.removed.add(removed)
            changes.added.pop(removed, None)
        if added:
            if row is None:
                # Only a publisher knows its message; the next reader lists the folder, or handles it as dropped.
                changes.trusted, changes.large = False, self.directory.index.is_large(agent)
                changes.added[added] = IndexRow(added, 0)
            else:
                inode = row.inode or file_operations.inode(folder, added)
                changes.added[added] = replace(row, inode=inode)
        return True

    def _update_index(self) -> None:
        """Apply the changes to the indexes, before the locks are released."""
        changes, self._changes = self._changes, {}
        for agent, each in changes.items():
            if each.trusted:
                stamp = stamp_of(each.folder)
                self.directory.index.update(agent, each.before, stamp, each.added.values(), each.removed)
            elif each.large:
                self.directory.index.correct(agent, None, each.added.values(), each.removed)

    def mark_unsynced(self, agent: str) -> None:
        """Also sync the messages of this agent: those seen there may not have been synced by their writer."""
        self._sync_all = file_operations.can_sync_all()
        for place in ("inbox", "claimed", "archive", "deadletter"):
            if self.has(place, agent):
                self._dirty.add(self.folder(place, agent))

    def sync_folders(self) -> None:
        """Make all changes of this transaction durable: in the journal, or by syncing the folders."""
        self._write_journal(sync=True)
        if self._sync_all:
            # Another process may be about to write them to its journal.
            file_operations.sync_all(self.root)
            self._sync_all = False
            self._dirty.clear()
        dirty, self._dirty = self._dirty, set()
        for problem in self.directory.fsync.sync(sorted(dirty)):
            if problem is not None:
                raise problem

    @contextmanager
    def locked(self, *agents: str) -> Iterator[None]:
        """Lock the mailboxes of these agents. Locks are taken in sorted order to avoid deadlocks."""
        locks: list[_NamedLock] = []
        try:
            for agent in sorted(set(agents)):
                locks.append(self._lock(f"{agent}.lock"))
                locks[-1].__enter__()
            try:
                yield
            finally:
                self._update_index()
        finally:
            for lock in reversed(locks):
                lock.release()

    def holds(self, agent: str) -> bool:
        """Return True if this transaction has locked the mailbox."""
        return f"{agent}.lock" in self._held

    @contextmanager
    def locked_to_read(self, agent: str) -> Iterator[None]:
        """Lock a mailbox for a consistent listing; on a read-only file system nobody can change it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock(f"{agent}.lock"))
            except OSError as problem:
                if problem.errno not in file_operations.READ_ONLY:
                    raise
            yield

    @contextmanager
    def delivering(self, agent: str, wait_s: float) -> Iterator[bool]:
        """Be the only process that delivers this agent's dropped files; yields False if another does so for long.

        The mailbox stays open for everything else meanwhile.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock(f"{agent}.dropped", wait_s))
            except SwitchboardError as busy:
                if busy.failure.code != "mail_not_stored":
                    raise
                yield False
                return
            yield True

    def _lock(self, name: str, timeout_s: float = file_operations.LOCK_TIMEOUT_S) -> _NamedLock:
        return _NamedLock(self.folder("locks"), f"{self.directory.path}/locks", name, self._held, timeout_s)

    def mailbox_record(self, agent: str) -> int:
        """Return the descriptor of a small record about a mailbox, whose lock must be held: it is in the lock file."""
        return self._held[f"{agent}.lock"]

    def record(self, name: str) -> AbstractContextManager[int]:
        """Lock a small record in `locks/`, and yield its descriptor to read and write it."""
        return self._lock(name)

    @contextmanager
    def state_locked(self) -> Iterator[None]:
        """Lock `state.json` for writing."""
        with self._lock("state"):
            yield

    def next_number(self) -> int:
        """Return the next order number."""
        if not self._numbers:
            self._numbers = self._reserve_numbers(max(1, self._reserve))
            self._numbers.reverse()
            self._reserve = 1
        return self._numbers.pop()

    def _reserve_numbers(self, count: int) -> list[int]:
        with self._lock(COUNTER) as descriptor:
            before = self._parse_counter(os.pread(descriptor, _COUNTER_BYTES, 0))
            reserved = reserve(before, count, self.clocks.boot, self.clocks.microseconds())
            os.pwrite(descriptor, msgspec.json.encode(reserved.counter).ljust(_COUNTER_BYTES), 0)
            if reserved.durable:
                file_operations.sync(descriptor)
                file_operations.sync(self.folder("locks"))
            return list(range(reserved.first, reserved.first + count))

    def _parse_counter(self, data: bytes) -> Counter:
        try:
            return msgspec.json.decode(data, type=Counter)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # New or corrupt: continue above every number found in a file name.
            return Counter("", self._highest_on_disk(), 0)

    def _highest_on_disk(self) -> int:
        highest = 0
        for place in ("inbox", "claimed", "shipped", "archive", "deadletter"):
            for agent in self.agents(place):
                files = file_operations.each_name(self.folder(place, agent))
                for name in chain(files, day_segments.names(self, place, agent)):
                    numbers = map(int, re.findall(r"(?<!\d)\d{16}(?!\d)", name))
                    highest = max(highest, *(number for number in numbers if number < _HIGHEST), 0)
        return highest

    def agents(self, place: str = "inbox") -> list[str]:
        """List the agents that have a folder in this place, by name; skips anything else."""
        agents = []
        # `shipped` exists only if there is another machine to ship to.
        for name in self.names(place) if place == "shipped" else file_operations.names(self.folder(place)):
            try:
                if is_agent_name(name) and self.has(place, name):
                    agents.append(name)
            except (OSError, SwitchboardError):
                continue  # A link, a file, another user's folder: reported by `verify`.
        return sorted(agents)

    def is_remote(self, agent: str) -> bool:
        """Return True if the agent lives on another machine; its inbox here holds what waits to be shipped."""
        return self.has(REMOTE_AGENTS) and file_operations.exists(self.folder(REMOTE_AGENTS), agent)

    def signing_key(self) -> bytes:
        """Return the key used to sign messages."""
        if self._key is not None:
            return self._key
        state = file_operations.state(self.root, SIGNING_KEY)
        self._key = self.directory.known_key(state)
        if self._key is None:
            content = file_operations.read(self.root, SIGNING_KEY, 1024)
            if isinstance(content, file_operations.RejectedFile):
                content = self._create_key(content)
            # A checkout is readable by others: whoever wrote the repository knows a key that came with it.
            if os.stat(SIGNING_KEY, dir_fd=self.root).st_mode & 0o077:
                raise refused(
                    "mail_unsafe",
                    f"{self.directory.path}/{SIGNING_KEY} can be read by others, or came with a checkout.",
                    hint="Delete it. A new one is created, and messages until then count as unverified.",
                )
            self._key = content.data.strip()[:64]
            self.directory.remember_key(state, self._key)
        return self._key

    def _create_key(self, rejected: file_operations.RejectedFile) -> file_operations.FileContent:
        if not rejected.gone:
            raise refused("mail_unsafe", f"{self.directory.path}/{SIGNING_KEY}: {rejected.reason}.")
        file = self.write(os.urandom(24).hex().encode())
        self.sync_file(file)
        try:
            self.publish(file, self.root, SIGNING_KEY)
        except FileExistsError:
            self.discard(file)
        file_operations.sync(self.root)
        content = file_operations.read(self.root, SIGNING_KEY, 1024)
        if isinstance(content, file_operations.RejectedFile):
            raise refused("mail_unsafe", f"{self.directory.path}/{SIGNING_KEY}: {content.reason}.")
        return content
