"""The folders below `.switchboard/`, and one round of work in them.

A `Visit` opens the tree by its path, so that a folder that was moved or replaced is noticed, and closes everything at
its end. It also collects what a round of several jobs has to bring to the disk, so that each file and folder is
synced once. Owns folders, temporary files, locks and numbers. Keeps what others know of messages, and does not know
what one is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.agent_names import is_agent_name
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.clocks import Clocks
from switchboard_mcp.mail.store.filenames import MessageFile
from switchboard_mcp.mail.store.fsync import FsyncBatcher
from switchboard_mcp.mail.store.ordering import Counter, reserve
from switchboard_mcp.system.atomic_write import write_gitignore

AGENT_FOLDERS = ("inbox", "claimed", "archive", "deadletter", "outbox", "keys")
FOLDERS = (*AGENT_FOLDERS, "attachments", "reviews", "locks", "tmp")
COUNTER = "order"
# One file for each agent that lives on another machine; the bus writes them.
REMOTE_AGENTS = "elsewhere"
SIGNING_KEY = "seal.key"
_COUNTER_BYTES = 256
# Names with higher numbers were not made here; to go on from there would use the digits up.
_HIGHEST = 8_000_000_000_000_000


class TempFile(Struct):
    """A file that has no public name yet."""

    name: str
    descriptor: int = -1


class StoreDirectory:
    """The tree of one workspace, as one process uses it."""

    def __init__(self, workspace: str, clocks: Clocks) -> None:
        self.workspace = os.path.abspath(workspace)
        self.path = os.path.join(self.workspace, FOLDER)
        self.clocks = clocks
        # Whoever holds the lock of this name is alive, and its temporary files are wanted.
        self.writer = os.urandom(6).hex()
        self._alive = -1
        self._files = 0
        self.fsync = FsyncBatcher()
        # Files whose seal was found right, by agent and name.
        self.verified: dict[str, dict[str, VerifiedMessage]] = {}
        # Under which name a message was claimed, by agent and id. A hint: others move files too.
        self.claimed: dict[tuple[str, str], MessageFile] = {}

    def next_temporary(self) -> str:
        """A name nobody else uses."""
        self._files += 1
        return f"{self.writer}.{self._files}"

    def make(self) -> None:
        """The folders, where they are missing."""
        try:
            parent = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if file_operations.make_folder(FOLDER, parent):
                    write_gitignore(self.path)
                root = file_operations.open_folder(FOLDER, parent)
            finally:
                os.close(parent)
            try:
                for name in FOLDERS:
                    file_operations.make_folder(name, root)
                self._stay_alive(root)
            finally:
                os.close(root)
        except OSError as problem:
            raise SwitchboardError(file_operations.failure_for(problem, self.path)) from None

    def _stay_alive(self, root: int) -> None:
        folder = file_operations.open_folder("tmp", root)
        try:
            descriptor = file_operations.create(folder, f"{self.writer}.lock", b"")
        finally:
            os.close(folder)
        try:
            if not file_operations.try_lock(descriptor):
                raise refused("mail_not_stored", f"{self.path}/tmp is locked.")
        except OSError as problem:
            os.close(descriptor)
            message = f"The file system of {self.path} cannot lock files: {problem.strerror}."
            hint = "Put the workspace on a local disk, or mount it with locks."
            raise refused("mail_not_stored", message, hint=hint) from None
        self._alive = descriptor

    def stay_alive(self, tx: Transaction) -> None:
        """Hold the lock again where somebody has taken its file away: the temporary files would seem left over."""
        if self._alive >= 0 and not file_operations.exists(tx.folder("tmp"), f"{self.writer}.lock"):
            os.close(self._alive)
            self._alive = -1
            self._stay_alive(tx.root)

    def close(self) -> None:
        """Nothing of this process is wanted any more."""
        self.fsync.close()
        if self._alive < 0:
            return
        try:
            with self.transaction() as tx:
                file_operations.remove(tx.folder("tmp"), f"{self.writer}.lock")
        except (OSError, SwitchboardError):
            pass  # The tree may be gone, or not be ours to write any more.
        os.close(self._alive)
        self._alive = -1

    @contextmanager
    def transaction(self, numbers: int = 0) -> Iterator[Transaction]:
        """One round of work; `numbers` are needed for certain."""
        with ExitStack() as stack:
            try:
                root = file_operations.open_folder(self.path)
            except OSError as problem:
                raise SwitchboardError(file_operations.failure_for(problem, self.path)) from None
            stack.callback(os.close, root)
            tx = Transaction(self, root, numbers)
            stack.callback(tx.close)
            yield tx


class VerifiedMessage(Struct, frozen=True):
    """A message that was found sealed, with what its turn at claiming depends on; good while the file is the same."""

    entry: MessageFile
    inode: int
    sender: str
    priority: str


class Transaction:
    """The open folders of a round, and what it has left to sync."""

    def __init__(self, directory: StoreDirectory, root: int, numbers: int) -> None:
        self.directory = directory
        self.root = root
        self.clocks = directory.clocks
        self._folders: dict[tuple[str, ...], int] = {}
        self._temp_files: list[TempFile] = []
        self._dirty: set[int] = set()
        self._reserve = numbers
        self._numbers: list[int] = []
        self._held: set[str] = set()
        self._key: bytes | None = None

    def close(self) -> None:
        """Take away what was not published, and let go of the folders."""
        for draft in tuple(self._temp_files):
            try:
                self.discard(draft)
            except OSError:
                pass  # The disk that failed the job fails this too; `repair` takes them away.
        for descriptor in self._folders.values():
            os.close(descriptor)

    def folder(self, *parts: str, make: bool = False) -> int:
        """The descriptor of a folder below the root. FileNotFoundError unless it is there or to be made."""
        if parts in self._folders:
            return self._folders[parts]
        parent = self.root if len(parts) == 1 else self.folder(*parts[:-1], make=make)
        try:
            descriptor = file_operations.open_folder(parts[-1], parent)
        except FileNotFoundError:
            if not make:
                raise
            file_operations.make_folder(parts[-1], parent)
            descriptor = file_operations.open_folder(parts[-1], parent)
        self._folders[parts] = descriptor
        return descriptor

    def has(self, *parts: str) -> bool:
        """Whether the folder is there."""
        try:
            self.folder(*parts)
        except FileNotFoundError:
            return False
        return True

    def names(self, *parts: str) -> list[str]:
        """Every name in a folder, in no order; none where it is not there."""
        return file_operations.names(self.folder(*parts)) if self.has(*parts) else []

    def write(self, data: bytes) -> TempFile:
        """A temporary file; it goes away at the end unless it is published."""
        if not self._temp_files:
            self.directory.stay_alive(self)
        name = self.directory.next_temporary()
        draft = TempFile(name, file_operations.create(self.folder("tmp"), name, data))
        self._temp_files.append(draft)
        return draft

    def sync_file(self, draft: TempFile) -> None:
        """Its content is on the disk when this returns."""
        problem = self.sync_files([draft])[0]
        if problem is not None:
            raise problem

    def sync_files(self, drafts: Sequence[TempFile]) -> list[OSError | None]:
        """Their content is on the disk when this returns; what went wrong with each."""
        problems = self.directory.fsync.sync([draft.descriptor for draft in drafts])
        for draft in drafts:
            os.close(draft.descriptor)
            draft.descriptor = -1
        return problems

    def discard(self, draft: TempFile) -> None:
        """It is not needed after all."""
        self._temp_files.remove(draft)
        if draft.descriptor >= 0:
            os.close(draft.descriptor)
        file_operations.remove(self.folder("tmp"), draft.name)

    def publish(self, draft: TempFile, folder: int, name: str) -> None:
        """Give it its name, unless that is taken (FileExistsError)."""
        file_operations.move(self.folder("tmp"), draft.name, folder, name)
        self._temp_files.remove(draft)
        self._dirty.add(folder)

    def put(self, draft: TempFile, folder: int, name: str) -> None:
        """Give it its name, in place of what had it."""
        file_operations.replace(self.folder("tmp"), draft.name, folder, name)
        self._temp_files.remove(draft)
        self._dirty.add(folder)

    def move(self, folder: int, name: str, target_folder: int, target: str) -> None:
        """Move a file within the tree, unless the target is taken (FileExistsError)."""
        file_operations.move(folder, name, target_folder, target)
        self._dirty |= {folder, target_folder}

    def remove(self, folder: int, name: str) -> None:
        """Take a name away."""
        file_operations.remove(folder, name)
        self._dirty.add(folder)

    def mark_unsynced(self, agent: str) -> None:
        """Messages of this agent were seen that somebody else may not have brought to the disk yet."""
        for place in ("inbox", "claimed", "archive", "deadletter"):
            if self.has(place, agent):
                self._dirty.add(self.folder(place, agent))

    def sync_folders(self) -> None:
        """All names of this round are on the disk when this returns."""
        dirty, self._dirty = self._dirty, set()
        for problem in self.directory.fsync.sync(sorted(dirty)):
            if problem is not None:
                raise problem

    @contextmanager
    def locked(self, *agents: str) -> Iterator[None]:
        """Nobody else moves messages of these agents meanwhile. Taken in one order, so that nobody waits in a ring."""
        with ExitStack() as stack:
            for agent in sorted(set(agents)):
                stack.enter_context(self._lock(f"{agent}.lock"))
            yield

    @contextmanager
    def _lock(self, name: str) -> Iterator[int]:
        if name in self._held:
            raise RuntimeError(f"{name} is held already")
        with file_operations.lock(self.folder("locks"), name, f"{self.directory.path}/locks") as descriptor:
            self._held.add(name)
            try:
                yield descriptor
            finally:
                self._held.discard(name)

    @contextmanager
    def state_locked(self) -> Iterator[None]:
        """Nobody else writes `state.json` meanwhile."""
        with self._lock("state"):
            yield

    def next_number(self) -> int:
        """The next number of the tree."""
        if not self._numbers:
            self._numbers = self._reserve_numbers(max(1, self._reserve))
            self._numbers.reverse()
            self._reserve = 1
        return self._numbers.pop()

    def _reserve_numbers(self, count: int) -> list[int]:
        with self._lock(COUNTER) as descriptor:
            before = self._parse_counter(os.pread(descriptor, _COUNTER_BYTES, 0))
            taken = reserve(before, count, self.clocks.boot, self.clocks.microseconds())
            os.pwrite(descriptor, msgspec.json.encode(taken.counter).ljust(_COUNTER_BYTES), 0)
            if taken.durable:
                file_operations.sync(descriptor)
                file_operations.sync(self.folder("locks"))
            return list(range(taken.first, taken.first + count))

    def _parse_counter(self, data: bytes) -> Counter:
        try:
            return msgspec.json.decode(data, type=Counter)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # New, or spoilt: whatever stands in a name is lower than what comes now.
            return Counter("", self._highest_on_disk(), 0)

    def _highest_on_disk(self) -> int:
        from re import findall  # Only where the counter is new or spoilt.

        found = [0]
        for place in ("inbox", "claimed", "shipped", "archive", "deadletter"):
            for agent in self.agents(place):
                for name in self.names(place, agent):
                    found += [int(digits) for digits in findall(r"(?<!\d)\d{16}(?!\d)", name)]
        return max(number for number in found if number < _HIGHEST)

    def agents(self, place: str = "inbox") -> list[str]:
        """Everybody who has a folder there, by name; what is no folder of ours is left out."""
        found = []
        # There is no `shipped` where there is no other machine to ship to.
        for name in self.names(place) if place == "shipped" else file_operations.names(self.folder(place)):
            try:
                if is_agent_name(name) and self.has(place, name):
                    found.append(name)
            except (OSError, SwitchboardError):
                continue  # A link, a file, somebody else's: `verify` tells of it.
        return sorted(found)

    def is_remote(self, agent: str) -> bool:
        """Whether the agent lives on another machine: its inbox here is what waits to be shipped."""
        return self.has(REMOTE_AGENTS) and file_operations.exists(self.folder(REMOTE_AGENTS), agent)

    def signing_key(self) -> bytes:
        """What seals are made with."""
        if self._key is None:
            found = file_operations.read(self.root, SIGNING_KEY, 1024)
            if isinstance(found, file_operations.RejectedFile):
                found = self._create_key(found)
            self._key = found.data.strip()[:64]
        return self._key

    def _create_key(self, why: file_operations.RejectedFile) -> file_operations.FileContent:
        if not why.gone:
            raise refused("mail_unsafe", f"{self.directory.path}/{SIGNING_KEY}: {why.reason}.")
        draft = self.write(os.urandom(24).hex().encode())
        self.sync_file(draft)
        try:
            self.publish(draft, self.root, SIGNING_KEY)
        except FileExistsError:
            self.discard(draft)
        file_operations.sync(self.root)
        found = file_operations.read(self.root, SIGNING_KEY, 1024)
        if isinstance(found, file_operations.RejectedFile):
            raise refused("mail_unsafe", f"{self.directory.path}/{SIGNING_KEY}: {found.reason}.")
        return found
