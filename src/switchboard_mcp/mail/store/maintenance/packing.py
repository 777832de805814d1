"""Packs settled messages and their receipts into one file per agent and day, some time after they were settled.

A small file takes a whole block of the disk, and a large folder is slow to list. Old trees are packed by the same work.
It is done in pieces, between which other jobs run.
"""

from __future__ import annotations

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import parse, parse_receipt_name, receipt_name

# For this long a settled message and its receipts are files of their own, for programs that read files.
PACK_AFTER_S = 3_600.0
# In a folder with more files than this, they are packed after a minute.
MANY = 5_000
PACK_MANY_AFTER_S = 60.0
# Files packed at once: some milliseconds.
PIECE = 256


def next_agent(tx: Transaction, after: tuple[str, str]) -> tuple[str, str] | None:
    """Return the place and agent that follow these, in a fixed order; None at the end."""
    every = ((place, agent) for place in day_segments.PACKED_PLACES for agent in tx.agents(place))
    return min((each for each in every if each > after), default=None)


def pack(tx: Transaction, place: str, agent: str, *, after_s: float | None = None) -> int:
    """Pack some files of an agent that were settled long ago; returns how many."""
    if tx.is_remote(agent) or not tx.has(place, agent):
        return 0  # Its receipts are still to be sent to its machine.
    names = file_operations.names(tx.folder(place, agent))
    if after_s is None:
        after_s = PACK_MANY_AFTER_S if len(names) > MANY else PACK_AFTER_S
    until = tx.clocks.microseconds() / 1e6 - after_s
    choose = _old_messages if place == "archive" else _old_receipts
    days = choose(tx.folder(place, agent), sorted(names), until)
    if not days:
        return 0
    with tx.locked(agent):
        return day_segments.pack(tx, place, agent, days)


def _old_messages(folder: int, names: list[str], until: float) -> dict[str, str]:
    """Return the first messages settled before this time, each with its segment."""
    days: dict[str, str] = {}
    for name in names:
        changed = file_operations.mtime(folder, name) if parse("archive", name) else None
        if changed is not None and changed < until:
            days[name] = day_segments.day_of(changed)
            if len(days) >= PIECE:
                break
    return days


def _old_receipts(folder: int, names: list[str], until: float) -> dict[str, str]:
    """Return the receipts of messages settled before this time; both receipts of a message are in one segment."""
    days: dict[str, str] = {}
    present = set(names)
    for name in names:
        receipt = parse_receipt_name(name)
        if receipt is None or receipt[1] is None:
            continue
        changed = file_operations.mtime(folder, name)
        if changed is None or changed >= until:
            continue
        days[name] = day_segments.day_of(changed)
        if (first := receipt_name(receipt[0])) in present:
            days[first] = days[name]
        if len(days) >= PIECE:
            break
    return days
