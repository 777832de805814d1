"""Packs settled messages and their receipts into one file per agent and day, some time after they were settled.

A small file takes a whole block of the disk, and a large folder is slow to list. Old trees are packed by the same work.
It is done in pieces, between which other jobs run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import parse, parse_receipt_name, receipt_name

# For this long a settled message and its receipts are files of their own, for programs that read files.
PACK_AFTER_S = 3_600.0
# In a folder with more files than this, they are packed after a minute.
MANY = 5_000
PACK_MANY_AFTER_S = 60.0
# Files packed at once, and looked at: some milliseconds.
PIECE = 256
EXAMINED = 2_000
# Names listed at once, and kept until their files are packed.
LISTED = 10_000
KEPT = 50_000


def next_agent(tx: Transaction, after: tuple[str, str]) -> tuple[str, str] | None:
    """Return the place and agent that follow these, in a fixed order; None at the end."""
    for place in sorted(day_segments.PACKED_PLACES):
        # Names only, for every step of a pass: opening the folders of all agents would take a thousand times as long.
        for name in sorted(tx.names(place)) if place >= after[0] else ():
            if (place, name) > after and is_agent_name(name) and _is_mailbox(tx, place, name):
                return place, name
    return None


def _is_mailbox(tx: Transaction, place: str, name: str) -> bool:
    try:
        return tx.has(place, name)
    except (OSError, SwitchboardError):
        return False  # A link, a file, another user's folder: reported by `verify`.


class PackingPass:
    """One pass over the folder of an agent: lists it once, in pieces, and packs its old files in pieces.

    Between two pieces other jobs run, so a file may be gone by then. A folder with nothing to pack later is not listed
    again until it changes: `quiet` has its state.
    """

    def __init__(self, place: str, agent: str, *, after_s: float | None = None) -> None:
        self.place = place
        self.agent = agent
        self.quiet = -1
        self.packed = 0
        self._after_s = after_s
        self._listing: Iterator[str] | None = None
        self._listed: list[str] = []
        self._names: Iterator[str] = iter(())

    def pack(self, tx: Transaction, known: int | None = None) -> bool:
        """Pack some files; returns True if there is more to do. Does nothing if the folder is in the `known` state."""
        if tx.is_remote(self.agent) or not tx.has(self.place, self.agent):
            return False  # Its receipts are still to be sent to its machine.
        folder = tx.folder(self.place, self.agent)
        if self._listing is None:
            self.quiet = os.fstat(folder).st_mtime_ns
            if self.quiet == known:
                return False
            self._listing = file_operations.each_name(folder)
        more = self._pack_piece(tx, folder)
        return more or self._list_piece()

    def _list_piece(self) -> bool:
        """List some names; returns False at the end."""
        names = list(islice(self._listing or (), LISTED))
        self._listed += filter(self._may_be_packed, names)
        ended, some = len(names) < LISTED, bool(self._listed)
        if ended or len(self._listed) > KEPT:
            if self._after_s is None:
                self._after_s = PACK_MANY_AFTER_S if len(self._listed) > MANY else PACK_AFTER_S
            self.quiet = -1 if some else self.quiet
            self._names, self._listed = iter(sorted(self._listed)), []
        return some or not ended

    def _pack_piece(self, tx: Transaction, folder: int) -> bool:
        """Pack some of the files that were listed; returns True if there may be more."""
        until = tx.clocks.microseconds() / 1e6 - (self._after_s or 0.0)
        days: dict[str, str] = {}
        examined = 0
        for name in islice(self._names, EXAMINED):
            examined += 1
            changed = file_operations.mtime(folder, name)
            if changed is not None and changed < until:
                days |= self._with_day(folder, name, day_segments.day_of(changed))
                if len(days) >= PIECE:
                    break
        if days:
            with tx.locked(self.agent):
                self.packed += day_segments.pack(tx, self.place, self.agent, days)
        return len(days) >= PIECE or examined == EXAMINED

    def _may_be_packed(self, name: str) -> bool:
        """Return True for a settled message, or a receipt with an outcome."""
        if self.place == "archive":
            return parse("archive", name) is not None
        receipt = parse_receipt_name(name)
        return receipt is not None and receipt[1] is not None

    def _with_day(self, folder: int, name: str, day: str) -> dict[str, str]:
        """Return a file and its segment; both receipts of a message are in one."""
        receipt = parse_receipt_name(name) if self.place == "outbox" else None
        if receipt is not None and file_operations.exists(folder, first := receipt_name(receipt[0])):
            return {name: day, first: day}
        return {name: day}


def pack(tx: Transaction, place: str, agent: str, *, after_s: float | None = None) -> int:
    """Pack the files of an agent that were settled long ago; returns how many."""
    work = PackingPass(place, agent, after_s=after_s)
    while work.pack(tx):
        pass
    return work.packed
