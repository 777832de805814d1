"""Pins the packages that are installed beside a launch: all of `node_modules` or `site-packages`, since they run too.

The folder is read whole when a child is approved, and by `lock --check`. A start compares the status of every file with
that of the last time it was read, and reads the folder again only if one differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.policy.launch import file_inspector
from switchboard_mcp.policy.launch.file_inspector import FileIdentity, HashedFile
from switchboard_mcp.policy.launch.surroundings import (
    JAVASCRIPT,
    PYTHONS,
    imported_modules,
    library_folders,
)
from switchboard_mcp.policy.launch.text_rules import program_name
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.user_folders import state_folder

# Read in about two minutes. A larger folder is named as one that is not pinned.
MAX_FILES = 100_000
_MARKS = re.compile(r"/(?:node_modules|site-packages|dist-packages)(?=/)")
# Packages of the system belong to root, and change with its updates.
_SYSTEM = ("/usr/lib/", "/usr/local/lib/", "/usr/share/")


class InstalledPackages(Struct, frozen=True):
    """The folders of packages that a launch uses: those that can be pinned, and those that cannot, with the reason."""

    folders: tuple[str, ...] = ()
    unpinned: tuple[str, ...] = ()


class _Seen(Struct, frozen=True):
    """What a folder was when it was read: its checksum, and a checksum over the status of its files."""

    sha256: str
    status: str


def find_packages(argv: Sequence[str], files: Iterable[str]) -> InstalledPackages:
    """Return the folders of installed packages that a launch uses. `argv` is as approved, `files` are its pins."""
    found: dict[str, None] = {}
    for path in (*argv, *files):
        if path.startswith("/") and (folder := package_folder(os.path.realpath(path))):
            found[folder] = None
    name = program_name(os.path.realpath(argv[0]))
    script = next((word for word in argv[1:] if word.startswith("/")), "")
    if script and program_name(name) in JAVASCRIPT:
        found |= dict.fromkeys(_modules_above(script))
    if name in PYTHONS and (("-m" in argv) or (script and _imports_packages(script, argv[0]))):
        found |= dict.fromkeys(_site_packages(argv[0]))
    folders, unpinned = [], []
    for folder in found:
        if folder.startswith(_SYSTEM):
            unpinned.append(f"{folder} belongs to the system")
        elif _is_too_large(folder):
            unpinned.append(f"{folder} has more than {MAX_FILES:,} files")
        else:
            folders.append(folder)
    return InstalledPackages(tuple(folders), tuple(unpinned))


def package_folder(path: str) -> str:
    """Return the outermost folder of installed packages that a path is in, or an empty string.

    >>> package_folder("/a/node_modules/b/node_modules/c/index.js"), package_folder("/a/b.js")
    ('/a/node_modules', '')
    """
    match = _MARKS.search(path)
    return path[: match.end()] if match else ""


def hash_packages(folder: str) -> HashedFile:
    """Hash every file in a folder of packages, dependencies included. Raises OSError."""
    total = hashlib.sha256()
    identities: list[FileIdentity] = []
    for name in _files(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) and not os.path.isfile(path):
            digest = f"link {os.readlink(path)}"
        else:
            digest, identity = file_inspector.read_file(path)
            identities.append(identity)
        total.update(f"{digest} {name}\n".encode("utf-8", "surrogateescape"))
    return HashedFile(total.hexdigest(), tuple(identities))


def check_packages(folder: str, environ: Mapping[str, str], *, whole: bool = False) -> HashedFile:
    """Return the checksum of a folder of packages, from its last reading if no status has changed since."""
    identities = tuple(
        file_inspector.identify(path, os.stat(path))
        for path in (os.path.join(folder, name) for name in _files(folder))
        if os.path.isfile(path)
    )
    status = hashlib.sha256(msgspec.json.encode(identities)).hexdigest()
    record = _record(folder, environ)
    if not whole and (seen := _read_record(record)) is not None and seen.status == status:
        return HashedFile(seen.sha256, identities)
    hashed = hash_packages(folder)
    status = hashlib.sha256(msgspec.json.encode(hashed.files)).hexdigest()
    if record:
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        write_atomically(record, msgspec.json.encode(_Seen(hashed.sha256, status)))
    return hashed


def _record(folder: str, environ: Mapping[str, str]) -> str:
    """Return the file that remembers the last reading of a folder; empty without a state folder."""
    base = state_folder(environ, "packages")
    return os.path.join(base, hashlib.sha256(folder.encode()).hexdigest()) if os.path.isabs(base) else ""


def _read_record(path: str) -> _Seen | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Seen)
    except (OSError, msgspec.MsgspecError):
        return None


def _files(folder: str) -> list[str]:
    """Return the relative paths of all files and links, sorted, without what Python and tools write as they run."""
    names: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".git", ".cache")]
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        if os.path.basename(place) == "__pycache__":
            kept = [name for name in files if file_inspector.is_hash_based(os.path.join(place, name))]
        else:
            kept = files
        inner = os.path.relpath(place, folder)
        names += [name if inner == "." else f"{inner}/{name}" for name in (*links, *kept)]
        if len(names) > MAX_FILES:
            raise OSError(7, f"contains more than {MAX_FILES:,} files", folder)
    return sorted(names)


def _is_too_large(folder: str) -> bool:
    try:
        _files(folder)
    except OSError:
        return True
    return False


def _modules_above(script: str) -> list[str]:
    """Return the folders of packages in which Node looks for what a script names, nearest first."""
    found, folder = [], os.path.dirname(os.path.realpath(script))
    while folder != os.path.dirname(folder):
        modules = os.path.join(folder, "node_modules")
        if os.path.basename(folder) != "node_modules" and os.path.isdir(modules):
            found.append(package_folder(f"{modules}/") or modules)
        folder = os.path.dirname(folder)
    return found


def _imports_packages(script: str, python: str) -> bool:
    """Return whether a Python script imports something that is installed for its interpreter."""
    names = imported_modules(script) - sys.stdlib_module_names
    return any(
        os.path.exists(os.path.join(place, name)) or os.path.exists(os.path.join(place, f"{name}.py"))
        for place in _site_packages(python)
        for name in names
        if name
    )


def _site_packages(python: str) -> list[str]:
    return [folder for folder in library_folders(python) if folder.endswith("-packages")]
