"""Folders that stay open from one transaction to the next: to look up the name takes one system call instead of four.

A folder is opened again if its name is that of another one now, or its owner or permissions have changed. Used by one
thread. Not aware of what the folders are for.
"""

from __future__ import annotations

import os

from switchboard_mcp.mail.store import file_operations


class OpenFolders:
    """Open folders, by the names that lead to each from the root of a store."""

    def __init__(self) -> None:
        # With the state of each when it was opened; the least recently used first.
        self._open: dict[tuple[str, ...], tuple[int, tuple[int, ...]]] = {}

    def open(self, parts: tuple[str, ...], name: str, parent: int | None = None) -> int:
        """Return the descriptor of the folder that has this name now. Raises FileNotFoundError if there is none."""
        entry = self._open.pop(parts, None)
        if entry is not None:
            try:
                if _state(os.stat(name, dir_fd=parent, follow_symlinks=False)) == entry[1]:
                    self._open[parts] = entry
                    return entry[0]
            except OSError:
                pass  # To open it fails in the same way.
            os.close(entry[0])
        descriptor = file_operations.open_folder(name, parent)
        self._open[parts] = descriptor, _state(os.fstat(descriptor))
        return descriptor

    def forget(self, parts: tuple[str, ...]) -> None:
        """Close a folder that was removed."""
        os.close(self._open.pop(parts)[0])

    def close(self, *, keep: int = 0) -> None:
        """Close all folders but so many, the most recently used ones."""
        while len(self._open) > keep:
            self.forget(next(iter(self._open)))


def _state(info: os.stat_result) -> tuple[int, ...]:
    return info.st_ino, info.st_dev, info.st_mode, info.st_uid
