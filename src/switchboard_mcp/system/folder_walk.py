"""A bounded walk through the folders of a project, the nearest first."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

# As many folders as are looked at within some milliseconds.
MAX_FOLDERS = 2_000
# Folders of installed packages and caches: large, and not where people keep files of their own.
SKIPPED = frozenset(
    (
        ".cache",
        ".git",
        ".hg",
        ".mypy_cache",
        ".nox",
        ".ruff_cache",
        ".svn",
        ".tox",
        "__pycache__",
        "node_modules",
    )
)


def walk_folders(top: str, most: int = MAX_FOLDERS) -> Iterator[tuple[str, list[str]]]:
    """Yield at most so many folders, each with the names in it. Links are not followed."""
    waiting = deque([top])
    while waiting and most > 0:
        most -= 1
        folder = waiting.popleft()
        names, inner = [], []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if entry.name not in SKIPPED and entry.is_dir(follow_symlinks=False):
                        inner.append(entry.path)
        except OSError:
            continue
        yield folder, names
        waiting.extend(sorted(inner))
