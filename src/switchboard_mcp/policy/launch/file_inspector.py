"""The files a launch depends on: who could change them, and whether somebody did.

Owns what makes a file safe to run, checksums of files and folders, and the marks by which a file is known to be the
same as a moment ago. Knows nothing of children.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence

from msgspec import Struct

_CHUNK = 1 << 20
_SHELLS = tuple(
    f"{folder}/{name}"
    for folder in ("/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
    for name in ("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "tcsh", "csh")
)
# A package with more is no package; counting would go on for minutes.
MAX_TREE_FILES = 20_000
# Made by running or installing what is there, and read by no program as its own code.
_SKIPPED = frozenset({"__pycache__", ".git", "node_modules"})


class FileIdentity(Struct, frozen=True):
    """By which a file is known to be the same: any write, rename or change of rights moves one of these."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


class HashedFile(Struct, frozen=True):
    """A file or folder with its checksum, and the marks of all that was read for it."""

    sha256: str
    marks: tuple[FileIdentity, ...]


def seal(path: str) -> HashedFile:
    """The checksum of a file, or of all files of a folder, read through descriptors. Raises OSError."""
    if not os.path.isdir(path):
        digest, noted = _read(path)
        return HashedFile(digest, (noted,))
    whole = hashlib.sha256()
    marks = []
    for name in _tree(path):
        inner = os.path.join(path, name)
        if os.path.islink(inner) and not os.path.isfile(inner):
            # Not followed: it may lead anywhere, in a circle too. Where it leads is part of the package.
            digest = f"link {os.readlink(inner)}"
        else:
            digest, noted = _read(inner)
            marks.append(noted)
        whole.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
    return HashedFile(whole.hexdigest(), tuple(marks))


def moved(marks: Sequence[FileIdentity]) -> str:
    """The first file that is not the one that was read, or an empty string."""
    for noted in marks:
        try:
            if mark(noted.path, os.stat(noted.path)) != noted:
                return noted.path
        except OSError:
            return noted.path
    return ""


def _read(path: str) -> tuple[str, FileIdentity]:
    # Not blocking: a pipe put in the file's place must not hold us up.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(22, "is no regular file", path)
        digest = hashlib.sha256()
        while block := os.read(fd, _CHUNK):
            digest.update(block)
        noted = mark(path, before)
        if mark(path, os.fstat(fd)) != noted or mark(path, os.stat(path)) != noted:
            raise OSError(16, "changed while it was read", path)
    finally:
        os.close(fd)
    return digest.hexdigest(), noted


def mark(path: str, found: os.stat_result) -> FileIdentity:
    """The marks of a file as it was found."""
    return FileIdentity(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _tree(folder: str) -> list[str]:
    """Names of all files beneath and of links to folders, relative and sorted."""
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        inner = os.path.relpath(place, folder)
        here = [*links, *(name for name in files if not name.endswith(".pyc"))]
        found += [name if inner == "." else f"{inner}/{name}" for name in here]
        if len(found) > MAX_TREE_FILES:
            raise OSError(7, f"holds more than {MAX_TREE_FILES} files", folder)
    return sorted(found)


class FileInspector:
    """One look at the file system: what was seen once is not looked at again. For a moment, not to be kept."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def real(self, path: str) -> str:
        """Where a path really leads."""
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]

    def inside(self, path: str, folder: str) -> bool:
        """Whether a path is beneath a folder, links followed on both sides."""
        real, place = self.real(path), self.real(folder)
        return real == place or real.startswith(place.rstrip("/") + "/")

    def flaw(self, path: str, *, places: Sequence[str] = ()) -> str:
        """Why a file or folder must not be relied on, or an empty string.

        Links are followed. Whoever can write a file, or move it by writing a folder on the way, decides what runs.
        """
        real = self.real(path)
        try:
            found = os.stat(real)
        except OSError as problem:
            return (problem.strerror or "cannot be read").lower()
        if places and not any(self.inside(real, place) for place in places):
            return f"really is {real}, which is in none of governance.places"
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            return "is no regular file"
        if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_ISUID | stat.S_ISGID):
            return "runs with the rights of another (setuid or setgid)"
        if open_to := writable_by_others(real, found):
            return open_to
        return self._way_flaw(os.path.dirname(real)) or self._way_flaw(os.path.dirname(os.path.abspath(path)))

    def _way_flaw(self, folder: str) -> str:
        """The same of a folder and all above it."""
        if folder not in self._folders:
            open_to = writable_by_others(folder, os.stat(folder))
            above = os.path.dirname(folder)
            self._folders[folder] = (
                f"lies in {folder}, which {open_to}"
                if open_to
                else self._way_flaw(above)
                if above != folder
                else ""
            )
        return self._folders[folder]


def flaw(path: str, *, places: Sequence[str] = ()) -> str:
    """See `Look.flaw`."""
    return FileInspector().flaw(path, places=places)


def inside(path: str, folder: str) -> bool:
    """See `Look.inside`."""
    return FileInspector().inside(path, folder)


def writable_by_others(path: str, found: os.stat_result) -> str:
    """Who besides root and ourselves could change it, or an empty string."""
    if found.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""  # there only the owner of an entry can move it
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if found.st_mode & stat.S_IWGRP and not _alone(found.st_gid, found.st_uid):
        return "can be written by a group"
    return ""


def _alone(group: int, user: int) -> bool:
    """Whether the group is the user's own and has nobody else in it."""
    import grp
    import pwd

    try:
        owner = pwd.getpwuid(user).pw_name
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    others = [entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group and entry.pw_uid != user]
    return not members - {owner} and not others


def is_script(path: str) -> bool:
    """Whether the system would start another program to run it, as its first line says."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def is_shell(path: str) -> bool:
    """Whether it is a shell of this machine under another name, linked or copied."""
    try:
        size = os.stat(path).st_size
        return any(_size(shell) == size and _same(path, shell) for shell in _SHELLS)
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _same(one: str, other: str) -> bool:
    return os.path.samefile(one, other) or _read(one)[0] == _read(other)[0]
