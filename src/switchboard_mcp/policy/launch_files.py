"""The files a launch depends on: who could change them, and whether somebody did.

Owns what makes a file safe to run, checksums of files and folders, and the marks by which a file is known to be the
same as a moment ago. Knows nothing of children.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence

from msgspec import Struct

_CHUNK = 1 << 20
# A package with more is no package; counting would go on for minutes.
MAX_TREE_FILES = 20_000
# Made by running or installing what is there, and read by no program as its own code.
_SKIPPED = frozenset({"__pycache__", ".git", "node_modules"})


class Mark(Struct, frozen=True):
    """By which a file is known to be the same: any write, rename or change of rights moves one of these."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


class Sealed(Struct, frozen=True):
    """A file or folder with its checksum, and the marks of all that was read for it."""

    sha256: str
    marks: tuple[Mark, ...]


def seal(path: str) -> Sealed:
    """The checksum of a file, or of all files of a folder, read through descriptors. Raises OSError."""
    if not os.path.isdir(path):
        digest, mark = _read(path)
        return Sealed(digest, (mark,))
    whole = hashlib.sha256()
    marks = []
    for name in _tree(path):
        inner = os.path.join(path, name)
        if os.path.islink(inner) and not os.path.isfile(inner):
            # Not followed: it may lead anywhere, in a circle too. Where it leads is part of the package.
            digest = f"link {os.readlink(inner)}"
        else:
            digest, mark = _read(inner)
            marks.append(mark)
        whole.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
    return Sealed(whole.hexdigest(), tuple(marks))


def moved(marks: Sequence[Mark]) -> str:
    """The first file that is not the one that was read, or an empty string."""
    for mark in marks:
        try:
            if _mark(mark.path, os.stat(mark.path)) != mark:
                return mark.path
        except OSError:
            return mark.path
    return ""


def _read(path: str) -> tuple[str, Mark]:
    # Not blocking: a pipe put in the file's place must not hold us up.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(22, "is no regular file", path)
        digest = hashlib.sha256()
        while block := os.read(fd, _CHUNK):
            digest.update(block)
        mark = _mark(path, before)
        if _mark(path, os.fstat(fd)) != mark or _mark(path, os.stat(path)) != mark:
            raise OSError(16, "changed while it was read", path)
    finally:
        os.close(fd)
    return digest.hexdigest(), mark


def _mark(path: str, found: os.stat_result) -> Mark:
    return Mark(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


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


def flaw(path: str, *, places: Sequence[str] = ()) -> str:
    """Why a file or folder must not be relied on, or an empty string.

    Links are followed. Whoever can write a file, or move it by writing a folder on the way, decides what runs.
    """
    try:
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
    except OSError as problem:
        return (problem.strerror or "cannot be read").lower()
    if places and not any(inside(real, place) for place in places):
        return f"really is {real}, which is in none of governance.places"
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return "is no regular file"
    if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "runs with the rights of another (setuid or setgid)"
    if open_to := writable_by_others(real, found):
        return open_to
    for folder in dict.fromkeys((*_above(real), *_above(os.path.abspath(path)))):
        if open_to := writable_by_others(folder, os.stat(folder)):
            return f"lies in {folder}, which {open_to}"
    return ""


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


def _above(path: str) -> Iterator[str]:
    while path not in ("/", ""):
        path = os.path.dirname(path)
        yield path


def inside(path: str, folder: str) -> bool:
    """Whether a path is beneath a folder, links followed on both sides."""
    real, place = os.path.realpath(path), os.path.realpath(folder)
    return real == place or real.startswith(place.rstrip("/") + "/")
