"""Inspects the files that a launch depends on: who can write them, their hashes, and whether they changed.

It knows nothing about children.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from switchboard_mcp.system.write_access import WriteAccess

_CHUNK = 1 << 20
_PROGRAM_FOLDERS = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin")
# A larger tree is not a package; hashing it would take minutes.
MAX_TREE_FILES = 20_000
# The checksum of names in a folder that has none of them.
NOTHING_THERE = hashlib.sha256().hexdigest()
_MAX_LINKS = 40  # as in Linux
# Created by running or installing a package; not its own code.
_SKIPPED = frozenset({".git", "node_modules"})
_CACHE = "__pycache__"


class FileIdentity(Struct, frozen=True):
    """Identifies one version of a file: any write, rename or permission change alters one of these."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


class HashedFile(Struct, frozen=True):
    """A hashed file or folder, with the identities of all files that were read."""

    sha256: str
    files: tuple[FileIdentity, ...]


def hash_path(path: str, names: Sequence[str] = ()) -> HashedFile:
    """Hash a file, all files in a folder, or its entries with certain names. Raises OSError."""
    if names:
        return _hash_names(path, names)
    if not os.path.isdir(path):
        digest, identity = read_file(path)
        return HashedFile(digest, (identity,))
    total = hashlib.sha256()
    files = []
    for name in _tree(path):
        inner = os.path.join(path, name)
        if os.path.islink(inner) and not os.path.isfile(inner):
            # A link to a folder, or a broken one. What is behind it is hashed by itself, if it is not in here anyway.
            digest = f"link {os.readlink(inner)}"
        else:
            digest, identity = read_file(inner)
            files.append(identity)
        total.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
    return HashedFile(total.hexdigest(), tuple(files))


def _hash_names(folder: str, names: Sequence[str]) -> HashedFile:
    total = hashlib.sha256()
    files: list[FileIdentity] = []
    for name in _matching(folder, names):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            hashed = hash_path(path)
            total.update(f"{hashed.sha256} {name}\n".encode("utf-8", "surrogateescape"))
            files += hashed.files
        else:
            total.update(f"link {os.readlink(path)} {name}\n".encode("utf-8", "surrogateescape"))
    return HashedFile(total.hexdigest(), tuple(files))


def _matching(folder: str, names: Sequence[str]) -> list[str]:
    return sorted(name for name in os.listdir(folder) if any(fnmatchcase(name, glob) for glob in names))


def first_changed(files: Sequence[FileIdentity]) -> str:
    """Return the path of the first file that has changed since it was read, or an empty string."""
    for file in files:
        try:
            if identify(file.path, os.stat(file.path)) != file:
                return file.path
        except OSError:
            return file.path
    return ""


def read_file(path: str) -> tuple[str, FileIdentity]:
    """Return the checksum and the identity of one file. Raises OSError."""
    # Non-blocking: a FIFO in place of the file must not block us.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(22, "is not a regular file", path)
        digest = hashlib.sha256()
        while block := os.read(fd, _CHUNK):
            digest.update(block)
        identity = identify(path, before)
        if identify(path, os.fstat(fd)) != identity or identify(path, os.stat(path)) != identity:
            raise OSError(16, "changed while it was read", path)
    finally:
        os.close(fd)
    return digest.hexdigest(), identity


def identify(path: str, status: os.stat_result) -> FileIdentity:
    """Return the identity of a file from its status."""
    return FileIdentity(
        path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def _tree(folder: str) -> list[str]:
    """Return the relative paths of all files and of links to folders, sorted. Follows links out of the folder."""
    paths: list[str] = []
    roots, waiting = [os.path.realpath(folder)], [folder]
    for start in waiting:
        for place, folders, files in os.walk(start):
            folders[:] = [name for name in folders if name not in _SKIPPED]
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            inner = os.path.relpath(place, folder)
            in_cache = os.path.basename(place) == _CACHE
            here = [
                *links,
                *(name for name in files if not in_cache or is_hash_based(os.path.join(place, name))),
            ]
            paths += [name if inner == "." else f"{inner}/{name}" for name in here]
            if len(paths) > MAX_TREE_FILES:
                raise OSError(7, f"contains more than {MAX_TREE_FILES} files", folder)
            for link in links:
                real = os.path.realpath(os.path.join(place, link))
                if not any(f"{real}/".startswith(f"{root}/") for root in roots):
                    roots.append(real)
                    waiting.append(os.path.join(place, link))
    return sorted(paths)


def is_hash_based(path: str) -> bool:
    """Return True for compiled Python that is loaded whatever the time of its source: it can come with a checkout.

    Python itself writes compiled files with the time of their source (PEP 552), each time it runs.
    """
    if not path.endswith(".pyc"):
        return False
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        flags = os.read(fd, 8)[4:5] if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        return bool(flags and flags[0] & 1)
    finally:
        os.close(fd)


class FileInspector:
    """Inspects files with a cache of resolved paths and folders. Short-lived: results are not updated."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._inspected: set[tuple[int, int]] = set()  # folders of inspected trees, by device and inode
        self._access = WriteAccess()

    def resolve(self, path: str) -> str:
        """Return the path with all links resolved."""
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]

    def is_inside(self, path: str, folder: str) -> bool:
        """Return True if a path is in a folder, with links resolved on both sides."""
        real, place = self.resolve(path), self.resolve(folder)
        return real == place or real.startswith(place.rstrip("/") + "/")

    def find_flaw(self, path: str, *, places: Sequence[str] = ()) -> str:
        """Return why a file or folder must not be trusted, or an empty string. Does not look into a folder.

        Links are followed. A user who can write the file, or replace it through a folder or link on the way to it,
        decides what runs.
        """
        real = self.resolve(path)
        try:
            status = os.stat(real)
            if places and not any(self.is_inside(real, place) for place in places):
                return f"is at {real}, outside governance.places"
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                return "is not a regular file"
            if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                return "runs with another user's rights (setuid or setgid)"
            return self._access.others(real, status) or self._way_flaw(path)
        except OSError as problem:
            return (problem.strerror or "cannot be read").lower()

    def find_tree_flaw(self, path: str) -> str:
        """Return why a file or folder, or anything in it, must not be trusted, or an empty string. Reads every status.

        Nothing is skipped: compiled modules and dependencies run too. Links are followed, also out of the folder.
        """
        if flaw := self.find_flaw(path):
            return flaw
        waiting = [self.resolve(path)]
        try:
            while waiting:
                folder = waiting.pop()
                status = os.stat(folder)
                if not stat.S_ISDIR(status.st_mode) or self._was_inspected(status):
                    continue
                if open_to := self._access.others(folder, status, entries=True):
                    return _inner(path, folder, open_to)
                entry_flaw, folders = self._entries_flaw(folder)
                if entry_flaw is not None:
                    return _inner(path, *entry_flaw)
                waiting += folders
        except OSError as problem:
            return f"{problem.filename or path}: {problem.strerror}"
        return ""

    def find_names_flaw(self, folder: str, names: Sequence[str]) -> str:
        """Return why entries of a folder with certain names must not be trusted, or an empty string."""
        try:
            real = self.resolve(folder)
            if open_to := self._access.others(real, os.stat(real), entries=True):
                return open_to
            for name in _matching(folder, names):
                path = os.path.join(folder, name)
                flaw = self.find_tree_flaw(path) if os.path.exists(path) else self._link_flaw(path)
                if flaw:
                    return _inner(folder, path, flaw)
        except OSError as problem:
            return f"{problem.filename or folder}: {problem.strerror}"
        return ""

    def _was_inspected(self, status: os.stat_result) -> bool:
        key = (status.st_dev, status.st_ino)
        if key in self._inspected:
            return True
        self._inspected.add(key)
        return False

    def _entries_flaw(self, folder: str) -> tuple[tuple[str, str] | None, list[str]]:
        """Return the first entry of a folder that others can write, with the reason, and the folders to look into."""
        folders: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    if flaw := self._link_flaw(entry.path):
                        return (entry.path, flaw), []
                    if entry.is_dir():
                        folders.append(self.resolve(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif open_to := self._access.others(entry.path, entry.stat(follow_symlinks=False)):
                    return (entry.path, open_to), []
        return None, folders

    def _link_flaw(self, path: str) -> str:
        """Return why the target of a link must not be trusted, or an empty string. It may be missing."""
        if os.path.exists(path):
            return self.find_flaw(path)
        target = os.path.dirname(self.resolve(path))
        while not os.path.isdir(target):
            target = os.path.dirname(target)
        # Others must not be able to create the target.
        open_to = self._access.others(target, os.stat(target), entries=True)
        return f"leads into {target}, which {open_to}" if open_to else self._way_flaw(target)

    def _way_flaw(self, path: str) -> str:
        """Return why a folder or link on the way to a path must not be trusted, or an empty string.

        Resolves the path name by name, as the system does, so no folder in a chain of links is left out.
        """
        place, names, links = "/", _names(os.path.abspath(path)), 0
        while names:
            if flaw := self._folder_flaw(place):
                return flaw
            name = names.pop()
            if name == "..":
                place = os.path.dirname(place)
                continue
            inner = os.path.join(place, name)
            status = os.lstat(inner)
            if not stat.S_ISLNK(status.st_mode):
                place = inner
                continue
            if open_to := self._access.others(inner, status):
                return f"is behind the link {inner}, which {open_to}"
            links += 1
            if links > _MAX_LINKS:
                return "is behind too many links"
            target = os.readlink(inner)
            place = "/" if target.startswith("/") else place
            names += _names(target)
        return ""

    def _folder_flaw(self, folder: str) -> str:
        """Return why entries of a folder could be replaced, or an empty string."""
        if folder not in self._folders:
            open_to = self._access.others(folder, os.stat(folder))
            self._folders[folder] = f"is in {folder}, which {open_to}" if open_to else ""
        return self._folders[folder]


def _names(path: str) -> list[str]:
    """Return the names in a path, last first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _inner(path: str, entry: str, flaw: str) -> str:
    return flaw if entry == path else f"contains {entry}, which {flaw}"


def find_flaw(path: str, *, places: Sequence[str] = ()) -> str:
    """Inspect one path; see `FileInspector.find_flaw`."""
    return FileInspector().find_flaw(path, places=places)


def is_inside(path: str, folder: str) -> bool:
    """Check one path; see `FileInspector.is_inside`."""
    return FileInspector().is_inside(path, folder)


def is_script(path: str) -> bool:
    """Return True if the file has a shebang line, so the system would run another program."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def original_names(path: str) -> set[str]:
    """Return the names of the system's programs that a file is a link to, or a copy of."""
    names: set[str] = set()
    size, folders = _size(path), {os.path.realpath(folder) for folder in _PROGRAM_FOLDERS}
    for folder in folders:
        try:
            paths = [entry.path for entry in os.scandir(folder)]
        except OSError:
            continue
        for other in paths:
            try:
                if _size(other) == size and _same(path, other):
                    names.add(os.path.basename(other))
            except OSError:
                continue  # cannot be read, so it cannot have been copied by us
    return names


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _same(one: str, other: str) -> bool:
    return os.path.samefile(one, other) or read_file(one)[0] == read_file(other)[0]
