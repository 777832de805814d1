"""Changing files so that it can be taken back, whatever happens in between.

First the journal: a copy of every file as it was, and what it is going to be, under `.switchboard/backup/`. Then each
file, one after the other, whole: written beside, synced, renamed. A process that dies at any moment leaves every file
as it was or as it should be, and a journal that knows which. Does not know what the files are.
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
# Beside the file that is being written, so that the rename stays within one file system.
TEMP_SUFFIX = ".switchboard-new"
# A file that did not exist.
ABSENT = ""
State = Literal["begun", "done", "reverted"]


class ServerMapEdit(Struct, kw_only=True, rename="camel"):
    """What was changed in a map of servers: names that were taken out, and our entry, if one was put in."""

    form: Literal["json", "toml", "yaml", "yaml-list"]
    key: list[str]
    names: list[str]
    entry: str


class FileChange(Struct, kw_only=True):
    """One file before and after. `mode` is that of a new file; an old one keeps its own."""

    path: str
    before: bytes | None
    after: bytes
    mode: int
    edits: list[ServerMapEdit] = []

    @classmethod
    def creating(cls, path: str, data: bytes, *, mode: int) -> FileChange:
        """A file that is not there yet."""
        return cls(path=path, before=None, after=data, mode=mode)


class JournalEntry(Struct, kw_only=True, rename="camel"):
    """One file in the journal. Hashes are of whole files; `backup` is the name of the copy."""

    path: str
    before: str
    after: str
    backup: str
    edits: list[ServerMapEdit]


class Journal(Struct, kw_only=True, rename="camel"):
    """One run."""

    version: int = VERSION
    state: State = "begun"
    command: str = "init"
    records: list[JournalEntry] = []


class JournalRun(Struct, kw_only=True):
    """A journal and the folder it is in."""

    folder: str
    journal: Journal

    def backup(self, record: JournalEntry) -> bytes:
        """A file as it was."""
        with open(os.path.join(self.folder, record.backup), "rb") as file:
            return file.read()

    def mark(self, state: State) -> None:
        """Write down how far it is."""
        self.journal.state = state
        write(os.path.join(self.folder, FILE), encode(self.journal), 0o600)


def digest(data: bytes | None) -> str:
    """What tells one content from another; empty for a file that does not exist."""
    return ABSENT if data is None else sha256(data).hexdigest()


def encode(journal: Journal) -> bytes:
    """The journal as it is written."""
    return msgspec.json.format(msgspec.json.encode(journal), indent=2) + b"\n"


def load_runs(workspace: str) -> list[JournalRun]:
    """All runs of a workspace, oldest first. A folder without a journal is of a run that changed nothing."""
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
            hint = "The copies beside it are your files as they were; put them back by hand."
            raise refused("setup_refused", message, hint=hint) from None
    return loaded


def begin(workspace: str, changes: Sequence[FileChange]) -> JournalRun:
    """Write the journal of a run; after this everything can be taken back."""
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
    """Make every change; stops where a file is no longer what it was when it was looked at."""
    for number, change in enumerate(changes):
        if digest(read(change.path)) != digest(change.before):
            message = f"{change.path} has changed in the meantime. {number} of {len(changes)} files are done."
            hint = "Run `switchboard init` again to go on, or `switchboard revert` to go back."
            raise refused("setup_refused", message, hint=hint)
        make_folders(os.path.dirname(change.path))
        write(change.path, change.after, change.mode)
    run.mark("done")


def write(path: str, data: bytes, mode: int) -> None:
    """Put a file in place, whole. One that is there keeps its mode and its owner."""
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
        hint = "Mend that, then run the command again; `switchboard revert` takes back what was done."
        raise refused("setup_refused", message, hint=hint) from None


def _restore_owner(path: str, owner: tuple[int, int]) -> None:
    try:
        os.chown(path, *owner)
    except PermissionError:
        pass  # Only root may; the content counts.


def read(path: str) -> bytes | None:
    """The content of a file; None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def make_folders(path: str) -> None:
    """Make the folders that are missing; only their owner may look into them."""
    if path and not os.path.isdir(path):
        make_folders(os.path.dirname(path))
        os.mkdir(path, 0o700)


def make_private_folder(path: str) -> None:
    """A folder that only its owner may look into, as the HTTP front demands it."""
    make_folders(path)
    status = os.stat(path)
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        os.chmod(path, 0o700)


def sync_folder(path: str) -> None:
    """Make a rename last."""
    descriptor = os.open(path or os.curdir, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
