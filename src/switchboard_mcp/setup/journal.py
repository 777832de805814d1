"""Changes files so that the change can be reverted, even after a crash.

The journal comes first: a copy of every file and the hash of its new content, under `.switchboard/backup/`. Then each
file is written to a temporary file, synced and renamed. A process that dies at any moment leaves every file either old
or new, and the journal knows which. Not aware of what the files contain.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import refused

FOLDER = os.path.join(".switchboard", "backup")
FILE = "journal.json"
VERSION = 1
# In the same folder as the file, so that the rename stays within one file system.
TEMP_SUFFIX = ".switchboard-new"
# The hash of a file that does not exist.
ABSENT = ""
State = Literal["begun", "done", "reverted"]


class ServerMapEdit(Struct, kw_only=True, rename="camel"):
    """A change of a map of servers: the removed names, and the name of our entry if one was added."""

    form: Literal["json", "toml", "yaml", "yaml-list"]
    key: list[str]
    names: list[str]
    entry: str


class FileChange(Struct, kw_only=True):
    """A file before and after. `mode` applies to a new file; an existing one keeps its mode."""

    path: str
    before: bytes | None
    after: bytes
    mode: int
    edits: list[ServerMapEdit] = []

    @classmethod
    def creating(cls, path: str, data: bytes, *, mode: int) -> FileChange:
        """Return the change that creates a file."""
        return cls(path=path, before=None, after=data, mode=mode)


class JournalEntry(Struct, kw_only=True, rename="camel"):
    """One file in the journal. `before` and `after` are hashes of the whole file; `backup` is the name of the copy."""

    path: str
    before: str
    after: str
    backup: str
    edits: list[ServerMapEdit]


class Journal(Struct, kw_only=True, rename="camel"):
    """The journal of one run."""

    version: int = VERSION
    state: State = "begun"
    command: str = "init"
    records: list[JournalEntry] = []


class JournalRun(Struct, kw_only=True):
    """A journal and its folder."""

    folder: str
    journal: Journal

    def backup(self, record: JournalEntry) -> bytes:
        """Return the original content of a file."""
        with open(os.path.join(self.folder, record.backup), "rb") as file:
            return file.read()

    def mark(self, state: State) -> None:
        """Record the state of the run."""
        self.journal.state = state
        write(os.path.join(self.folder, FILE), encode(self.journal), 0o600)


def digest(data: bytes | None) -> str:
    """Return the hash of a content; empty for a file that does not exist."""
    return ABSENT if data is None else sha256(data).hexdigest()


def encode(journal: Journal) -> bytes:
    """Return the journal as JSON."""
    return msgspec.json.format(msgspec.json.encode(journal), indent=2) + b"\n"


def load_runs(workspace: str) -> list[JournalRun]:
    """Return all runs of a workspace, oldest first. A run without a journal has changed nothing."""
    home = os.path.join(workspace, FOLDER)
    loaded: list[JournalRun] = []
    for name in sorted(os.listdir(home)) if os.path.isdir(home) else []:
        folder = os.path.join(home, name)
        data = read(os.path.join(folder, FILE))
        if data is None:
            continue
        try:
            loaded.append(JournalRun(folder=folder, journal=msgspec.json.decode(data, type=Journal)))
        except msgspec.MsgspecError as problem:
            message = f"{os.path.join(folder, FILE)} cannot be read: {problem}."
            hint = "The copies next to it are your original files. Restore them by hand."
            raise refused("setup_refused", message, hint=hint) from None
    return loaded


def begin(workspace: str, changes: Sequence[FileChange]) -> JournalRun:
    """Write the journal of a run. From then on everything can be reverted."""
    make_private_folder(os.path.join(workspace, ".switchboard"))
    home = os.path.join(workspace, FOLDER)
    make_private_folder(home)
    numbers = [int(name) for name in os.listdir(home) if name.isdecimal()]
    folder = os.path.join(home, f"{max(numbers, default=0) + 1:04d}")
    make_private_folder(folder)
    records: list[JournalEntry] = []
    for number, change in enumerate(changes):
        backup = ""
        if change.before is not None:
            backup = f"{number:03d}-{os.path.basename(change.path).lstrip('.')}"
            write(os.path.join(folder, backup), change.before, 0o600)
        records.append(
            JournalEntry(
                path=change.path,
                before=digest(change.before),
                after=digest(change.after),
                backup=backup,
                edits=change.edits,
            )
        )
    run = JournalRun(folder=folder, journal=Journal(records=records))
    run.mark("begun")
    return run


def perform(changes: Sequence[FileChange], run: JournalRun) -> None:
    """Make all changes. Stops at a file that has changed since it was read."""
    for number, change in enumerate(changes):
        if digest(read(change.path)) != digest(change.before):
            message = (
                f"{change.path} was changed by another program. {number} of {len(changes)} files are done."
            )
            hint = "Run `switchboard init` again to continue, or `switchboard revert` to undo it."
            raise refused("setup_refused", message, hint=hint)
        make_folders(os.path.dirname(change.path))
        write(change.path, change.after, change.mode)
    run.mark("done")


def write(path: str, data: bytes, mode: int) -> None:
    """Write a file atomically. An existing file keeps its mode and owner."""
    owner: tuple[int, int] | None = None
    try:
        status = os.stat(path)
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    except FileNotFoundError:
        pass
    fresh = path + TEMP_SUFFIX
    remove(fresh)
    try:
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600
        )
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                _restore_owner(fresh, owner)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(fresh, path)
        sync_folder(os.path.dirname(path))
    except OSError as problem:
        message = f"{path} cannot be written: {problem.strerror}."
        hint = "Fix that, then run the command again. `switchboard revert` undoes what was done."
        raise refused("setup_refused", message, hint=hint) from None


def _restore_owner(path: str, owner: tuple[int, int]) -> None:
    try:
        os.chown(path, *owner)
    except PermissionError:
        pass  # Only root may change the owner; the content matters more.


def read(path: str) -> bytes | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def remove(path: str) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def make_folders(path: str) -> None:
    """Create missing folders, accessible only to their owner."""
    if path and not os.path.isdir(path):
        make_folders(os.path.dirname(path))
        os.mkdir(path, 0o700)


def make_private_folder(path: str) -> None:
    """Make a folder accessible only to its owner, as the HTTP server requires."""
    make_folders(path)
    status = os.stat(path)
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        os.chmod(path, 0o700)


def sync_folder(path: str) -> None:
    """Sync a folder, so that a rename survives a power failure."""
    descriptor = os.open(path or os.curdir, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
