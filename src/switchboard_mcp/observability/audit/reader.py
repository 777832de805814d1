"""The audit record, read while it grows: file after file, each line once, also over a rotation.

Knows neither what is looked for nor how long to wait for more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.hash_chain import AuditEntry
from switchboard_mcp.observability.audit.segments import segment_name, segment_numbers


class Reader:
    """See the module. Raises OSError where there is no record."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = 0
        self._file: BinaryIO | None = None
        self._offset = 0  # where the first line begins that was not told yet

    def read_new(self) -> Iterator[AuditEntry]:
        """Every record that has come since; at first all there are, oldest first."""
        while True:
            # Looked for before this file is read to its end: once there is a next one, nothing more comes to this.
            following = [number for number in segment_numbers(self._folder) if number > self._number]
            yield from self._rest()
            if not following:
                return
            self.close()
            self._number, self._offset = following[0], 0
            try:
                self._file = open(os.path.join(self._folder, segment_name(self._number)), "rb")  # noqa: SIM115 - see `close`
            except FileNotFoundError:  # an old one, of which only so many are kept
                continue

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rest(self) -> Iterator[AuditEntry]:
        if self._file is None:
            return
        # Always from the end of a line: half a line may be set aside by the next writer, and another stand there then.
        self._file.seek(self._offset)
        for line in self._file:
            if not line.endswith(b"\n"):
                return
            self._offset += len(line)
            entry = hash_chain.parse_line(line)
            if entry is not None:
                yield entry
