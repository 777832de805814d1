"""Changes files so that the change can be reverted, even after a crash.

The journal comes first: a copy of every file and the hash of its new content, in the user's state folder. Then each
file is written to a temporary file, synced and renamed. A process that dies at any moment leaves every file either old
or new, and the journal knows which.

A journal decides which files are overwritten and deleted, so it is never taken from a workspace, which may be a cloned
repository: it is kept outside, readable by its user only, and sealed with a key of that user. Not aware of what the
files contain.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.system.atomic_write import sync_folder
from switchboard_mcp.system.user_folders import state_folder
from switchboard_mcp.system.user_key import KEY_BYTES, read_private, user_key

# Earlier releases kept their journals here, in the workspace. They are shown, and never used.
LEGACY_FOLDER = os.path.join(".switchboard", "backup")
FILE = "journal.json"
SEAL_KEY = "seal.key"
MAX_JOURNAL_BYTES = 16 * 1_048_576
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
    workspace: str = ""
    named: list[str] = []
    """Files that were named on the command line."""
    records: list[JournalEntry] = []
    seal: str = ""
    """The HMAC of everything else, with the user's key."""


class JournalFolder(Struct, frozen=True):
    """The folder with the journals of one workspace, and the user's key."""

    workspace: str
    path: str
    key_file: str


class JournalRun(Struct, kw_only=True):
    """A journal and its folder."""

    folder: str
    journal: Journal
    key: bytes
    # Time of the last change of the journal, in nanoseconds. It decides the order of runs of several workspaces.
    written_ns: int = 0

    def backup(self, record: JournalEntry) -> bytes:
        """Return the original content of a file."""
        path = os.path.join(self.folder, os.path.basename(record.backup))
        data = _read_private(path)
        if data is None or digest(data) != record.before:
            message = f"{path} is not the copy of {record.path} that was made."
            raise refused("setup_refused", message, hint="Restore that file by hand.")
        return data

    def mark(self, state: State) -> None:
        """Record the state of the run."""
        self.journal.state = state
        self.journal.seal = _seal(self.journal, self.key)
        write(os.path.join(self.folder, FILE), encode(self.journal), 0o600)


def digest(data: bytes | None) -> str:
    """Return the hash of a content; empty for a file that does not exist."""
    return ABSENT if data is None else sha256(data).hexdigest()


def encode(journal: Journal) -> bytes:
    """Return the journal as JSON."""
    return msgspec.json.format(msgspec.json.encode(journal), indent=2) + b"\n"


def journal_folder(workspace: str, environ: Mapping[str, str]) -> JournalFolder:
    """Return the folder with the journals of a workspace. Raises if this user has no folder outside of it."""
    home = state_folder(environ, "setup")
    if not os.path.isabs(home):
        message = "There is no folder outside of the workspace for copies of your files."
        raise refused("setup_refused", message, hint="Set HOME, or XDG_STATE_HOME to an absolute path.")
    real = os.path.realpath(workspace)
    return JournalFolder(real, os.path.join(home, _folder_name(real)), os.path.join(home, SEAL_KEY))


def _folder_name(workspace: str) -> str:
    return sha256(os.fsencode(workspace)).hexdigest()[:32]


def journal_folders(environ: Mapping[str, str]) -> list[JournalFolder]:
    """Return the folders with the journals of all workspaces of this user, also of those that are gone."""
    home = state_folder(environ, "setup")
    folders: list[JournalFolder] = []
    for name in sorted(os.listdir(home)) if os.path.isabs(home) and os.path.isdir(home) else []:
        path = os.path.join(home, name)
        for run in sorted(os.listdir(path)) if os.path.isdir(path) and not os.path.islink(path) else []:
            workspace = _workspace_of(os.path.join(path, run, FILE))
            # The seal is checked when the runs are loaded.
            if workspace and _folder_name(workspace) == name:
                folders.append(JournalFolder(workspace, path, os.path.join(home, SEAL_KEY)))
                break
    return folders


def _workspace_of(path: str) -> str:
    """Return the workspace that a journal names, or an empty string if it cannot be read."""
    try:
        return msgspec.json.decode(_read_private(path) or b"", type=Journal).workspace
    except (SwitchboardError, msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def load_runs(place: JournalFolder) -> list[JournalRun]:
    """Return all runs of a workspace, oldest first. A run without a journal has changed nothing."""
    loaded: list[JournalRun] = []
    for name in sorted(os.listdir(place.path)) if os.path.isdir(place.path) else []:
        path = os.path.join(place.path, name, FILE)
        data = _read_private(path) if name.isdecimal() else None
        if data is None:
            continue
        key = _read_private(place.key_file) or b""
        try:
            journal = msgspec.json.decode(data, type=Journal)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise _unusable(path, f"cannot be read: {problem}") from None
        # Without the key anybody can compute the seal.
        sealed = len(key) == KEY_BYTES and hmac.compare_digest(
            journal.seal.encode(), _seal(journal, key).encode()
        )
        if not sealed or journal.workspace != place.workspace:
            raise _unusable(path, "was not written by you, or was changed since")
        written = os.stat(path).st_mtime_ns
        loaded.append(JournalRun(folder=os.path.dirname(path), journal=journal, key=key, written_ns=written))
    return loaded


def _unusable(path: str, reason: str) -> SwitchboardError:
    hint = "The copies next to it are your original files. Restore them by hand."
    return refused("setup_refused", f"{path} {reason}.", hint=hint)


def _seal(journal: Journal, key: bytes) -> str:
    plain = msgspec.structs.replace(journal, seal="")
    return hmac.new(key, msgspec.json.encode(plain), "sha256").hexdigest()


def _read_private(path: str) -> bytes | None:
    """Return a file of ours, or None if it does not exist. Raises if it is a link or belongs to somebody else."""
    try:
        return read_private(path, MAX_JOURNAL_BYTES)
    except OSError as problem:
        raise _unusable(path, f"cannot be used: {problem.strerror}") from None


def _make_key(path: str) -> bytes:
    try:
        return user_key(path)
    except OSError as problem:
        raise _unusable(path, f"cannot be used: {problem.strerror}") from None


def begin(place: JournalFolder, changes: Sequence[FileChange], named: Sequence[str] = ()) -> JournalRun:
    """Write the journal of a run. From then on everything can be reverted."""
    make_private_folder(os.path.dirname(place.key_file))
    make_private_folder(place.path)
    key = _make_key(place.key_file)
    numbers = [int(name) for name in os.listdir(place.path) if name.isdecimal()]
    folder = os.path.join(place.path, f"{max(numbers, default=0) + 1:04d}")
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
    journal = Journal(workspace=place.workspace, named=list(named), records=records)
    run = JournalRun(folder=folder, journal=journal, key=key)
    run.mark("begun")
    return run


def require_writable(paths: Sequence[str]) -> None:
    """Raise if one of these files cannot be written. Creates nothing: a file is replaced, so its folder counts."""
    for path in paths:
        folder = os.path.dirname(path)
        while folder and not os.path.lexists(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
        if os.path.isdir(path):
            reason = "is a folder"
        elif not os.path.isdir(folder):
            reason = f"cannot be written: {folder} is not a folder"
        elif not os.access(folder, os.W_OK | os.X_OK):
            reason = f"cannot be written: you have no permission to change {folder}"
        else:
            continue
        hint = "Nothing was changed. Fix that, then run the command again."
        raise refused("setup_refused", f"{path} {reason}.", hint=hint)


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
    """Make a folder accessible only to its owner, as the HTTP server requires. Raises if it is a link."""
    make_folders(path)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise _linked(path)
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        os.chmod(path, 0o700)


def require_real_folders(workspace: str, paths: Sequence[str]) -> None:
    """Raise if one of these files of the workspace lies in a folder that is a link: it may lead anywhere."""
    for path in paths:
        inside = os.path.relpath(path, workspace)
        folder = workspace
        for part in os.path.dirname(inside).split(os.sep) if not inside.startswith(os.pardir) else []:
            folder = os.path.join(folder, part)
            if os.path.islink(folder):
                raise _linked(folder)


def _linked(path: str) -> SwitchboardError:
    message = f"{path} is a symbolic link, so files would be written elsewhere."
    return refused("setup_refused", message, hint="Replace it with a folder, or remove it.")


class LegacyCopy(Struct, frozen=True):
    """A copy that an earlier release made in the workspace, and the file it claims to be of."""

    copy: str
    file: str


def legacy_copies(workspace: str) -> list[LegacyCopy]:
    """Return the copies in a workspace, to be shown: anybody may have written them, so they are never used."""
    home = os.path.join(workspace, LEGACY_FOLDER)
    copies: list[LegacyCopy] = []
    for name in sorted(os.listdir(home)) if os.path.isdir(home) and not os.path.islink(home) else []:
        folder = os.path.join(home, name)
        path = os.path.join(folder, FILE)
        if not name.isdecimal() or os.path.islink(folder) or os.path.islink(path) or not os.path.isfile(path):
            continue
        try:
            with open(path, "rb") as file:
                journal = msgspec.json.decode(file.read(MAX_JOURNAL_BYTES), type=Journal)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            copies.append(LegacyCopy(folder, ""))
            continue
        copies += [
            LegacyCopy(os.path.join(folder, os.path.basename(record.backup)), record.path)
            for record in journal.records
            if record.backup and journal.state != "reverted"
        ]
    return copies
