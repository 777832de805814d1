"""Inspects the files that a launch depends on: who can write them, their hashes, and whether they changed.

It knows nothing about children.
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
# A larger tree is not a package; hashing it would take minutes.
MAX_TREE_FILES = 20_000
# Created by running or installing a package; not its own code.
_SKIPPED = frozenset({"__pycache__", ".git", "node_modules"})


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


def hash_path(path: str) -> HashedFile:
    """Hash a file, or all files in a folder. Raises OSError."""
    if not os.path.isdir(path):
        digest, identity = _read(path)
        return HashedFile(digest, (identity,))
    total = hashlib.sha256()
    files = []
    for name in _tree(path):
        inner = os.path.join(path, name)
        if os.path.islink(inner) and not os.path.isfile(inner):
            # Not followed: it may lead anywhere, even in a circle. Its target is hashed instead.
            digest = f"link {os.readlink(inner)}"
        else:
            digest, identity = _read(inner)
            files.append(identity)
        total.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
    return HashedFile(total.hexdigest(), tuple(files))


def first_changed(files: Sequence[FileIdentity]) -> str:
    """Return the path of the first file that has changed since it was read, or an empty string."""
    for file in files:
        try:
            if identify(file.path, os.stat(file.path)) != file:
                return file.path
        except OSError:
            return file.path
    return ""


def _read(path: str) -> tuple[str, FileIdentity]:
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
    """Return the relative paths of all files and of links to folders, sorted."""
    paths: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        inner = os.path.relpath(place, folder)
        here = [*links, *(name for name in files if not name.endswith(".pyc"))]
        paths += [name if inner == "." else f"{inner}/{name}" for name in here]
        if len(paths) > MAX_TREE_FILES:
            raise OSError(7, f"contains more than {MAX_TREE_FILES} files", folder)
    return sorted(paths)


class FileInspector:
    """Inspects files with a cache of resolved paths and folders. Short-lived: results are not updated."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}
        self._folders: dict[str, str] = {}

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
        """Return why a file or folder must not be trusted, or an empty string.

        Links are followed. A user who can write the file, or replace it through a parent folder, decides what runs.
        """
        real = self.resolve(path)
        try:
            status = os.stat(real)
        except OSError as problem:
            return (problem.strerror or "cannot be read").lower()
        if places and not any(self.is_inside(real, place) for place in places):
            return f"is at {real}, outside governance.places"
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            return "is not a regular file"
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            return "runs with another user's rights (setuid or setgid)"
        if open_to := writable_by_others(real, status):
            return open_to
        return self._folder_flaw(os.path.dirname(real)) or self._folder_flaw(
            os.path.dirname(os.path.abspath(path))
        )

    def _folder_flaw(self, folder: str) -> str:
        """Return why a folder or one of its parents must not be trusted, or an empty string."""
        if folder not in self._folders:
            open_to = writable_by_others(folder, os.stat(folder))
            above = os.path.dirname(folder)
            self._folders[folder] = (
                f"is in {folder}, which {open_to}"
                if open_to
                else self._folder_flaw(above)
                if above != folder
                else ""
            )
        return self._folders[folder]


def find_flaw(path: str, *, places: Sequence[str] = ()) -> str:
    """Inspect one path; see `FileInspector.find_flaw`."""
    return FileInspector().find_flaw(path, places=places)


def is_inside(path: str, folder: str) -> bool:
    """Check one path; see `FileInspector.is_inside`."""
    return FileInspector().is_inside(path, folder)


def writable_by_others(path: str, status: os.stat_result) -> str:
    """Return which other users can change a file, or an empty string. Root and we ourselves do not count."""
    if status.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""  # sticky: only the owner of an entry can replace it
    if status.st_mode & stat.S_IWOTH:
        return "is writable by everybody"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
        return "is writable by a group"
    return ""


def _is_private_group(group: int, user: int) -> bool:
    """Return True if the user is the only member of the group."""
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
    """Return True if the file has a shebang line, so the system would run another program."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def is_shell(path: str) -> bool:
    """Return True if the file is a link to, or a copy of, a shell of this machine."""
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
