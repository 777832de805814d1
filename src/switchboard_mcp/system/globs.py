"""Finds files by glob, without the import cost of `glob` and `pathlib` at start.

Supports `*`, `?`, `[…]` inside a name and `**` for any number of folders. A leading dot is matched only by a dot in the
pattern. `**` does not follow links, so a loop of links cannot delay the start. Not aware of what the files are.

`mail.path_patterns` is a different language: it compares paths and patterns as text, without `[…]` or a special role of
leading dots, and decides whether two patterns can match the same file. It never accesses the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_WILD = "*?["


def find_files(folder: str, pattern: str) -> list[str]:
    """Return the matching files, sorted by path. A relative pattern starts at `folder`."""
    root, parts = _split(folder, pattern)
    return sorted(set(_files(root, parts, 0))) if parts else []


def inspected_folders(folder: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield every folder that `find_files` inspects, with the part of the pattern for names in it.

    Includes folders that do not exist yet if their parent does.
    """
    root, parts = _split(folder, pattern)
    yield from _inspected(root, parts, 0)


def _split(folder: str, pattern: str) -> tuple[str, list[str]]:
    """Return the folder where a pattern starts, and its parts."""
    if os.sep != "/":
        pattern = pattern.replace(os.sep, "/")
    root = folder
    if os.path.isabs(pattern):
        drive, pattern = os.path.splitdrive(pattern)
        root = drive + os.sep
    parts = [part for part in pattern.split("/") if part and part != "."]
    # Two `**` in a row match the same as one and multiply the work.
    return root, [
        part for index, part in enumerate(parts) if part != "**" or parts[index - 1 : index] != ["**"]
    ]


def _inspected(folder: str, parts: list[str], index: int) -> Iterator[tuple[str, str]]:
    if index == len(parts):
        return
    part = parts[index]
    if part == "**":
        for below in _folders_below(folder):
            yield below, "*"
            yield from _inspected(below, parts, index + 1)
        return
    yield folder, part
    if index == len(parts) - 1:
        return
    if not _is_wild(part):
        path = os.path.join(folder, part)
        if os.path.isdir(path):
            yield from _inspected(path, parts, index + 1)
        return
    for entry in _entries(folder):
        if matches(entry.name, part) and _is_folder(entry):
            yield from _inspected(entry.path, parts, index + 1)


def _files(folder: str, parts: list[str], index: int) -> Iterator[str]:
    part = parts[index]
    last = index == len(parts) - 1
    if part == "**":
        for below in _folders_below(folder):
            yield from _names(below, "*") if last else _files(below, parts, index + 1)
    elif not _is_wild(part):
        path = os.path.join(folder, part)
        if not last:
            yield from _files(path, parts, index + 1)
        # A dangling link matches too: reading it reports the problem.
        elif os.path.lexists(path) and not os.path.isdir(path):
            yield path
    elif last:
        yield from _names(folder, part)
    else:
        for entry in _entries(folder):
            if matches(entry.name, part) and _is_folder(entry):
                yield from _files(entry.path, parts, index + 1)


def matches(name: str, part: str) -> bool:
    """Return True if a name matches one part of a pattern."""
    if name.startswith(".") and not part.startswith("."):
        return False
    if part == "*" or not _is_wild(part):
        return part in ("*", name)
    from fnmatch import fnmatchcase  # Only for patterns that need it.

    return fnmatchcase(name, part)


def _is_wild(part: str) -> bool:
    return any(character in part for character in _WILD)


def _names(folder: str, part: str) -> Iterator[str]:
    return (entry.path for entry in _entries(folder) if matches(entry.name, part) and not _is_folder(entry))


def _folders_below(folder: str) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(
            entry.path
            for entry in _entries(current)
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
