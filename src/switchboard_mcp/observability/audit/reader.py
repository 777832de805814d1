"""Reads the audit log while it grows: file after file, each line once, across rotations.

Filtering and waiting for more are up to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.entry import AuditEntry
from switchboard_mcp.observability.audit.segments import segment_name, segment_numbers


class Reader:
    """Reads one audit folder. Raises OSError if there is none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = 0
        self._file: BinaryIO | None = None
        self._offset = 0  # of the first line that was not returned yet

    def read_new(self) -> Iterator[AuditEntry]:
        """Yield the records since the last call, oldest first; on the first call all of them."""
        while True:
            # Looked up before reading to the end of this file: once there is a next file, this one no longer grows.
            following = [number for number in segment_numbers(self._folder) if number > self._number]
            yield from self._rest()
            if not following:
                return
            self.close()
            self._number, self._offset = following[0], 0
            try:
                self._file = open(os.path.join(self._folder, segment_name(self._number)), "rb")  # noqa: SIM115 - see `close`
            except FileNotFoundError:  # pruned meanwhile
                continue

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rest(self) -> Iterator[AuditEntry]:
        if self._file is None:
            return
        # Continue at the end of a whole line: the next writer removes a torn line and writes another in its place.
        self._file.seek(self._offset)
        for line in self._file:
            if not line.endswith(b"\n"):
                return
            self._offset += len(line)
            entry = hash_chain.parse_line(line)
            if entry is not None:
                yield entry
