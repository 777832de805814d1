"""Removes what killed processes left: temporary files and half-done moves.

Safe at any time from any process. A separate module because `dropped_files` needs it, on which `repair` builds.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import PLACES, Place, parse, printable


class StoreFinding(Struct, rename="camel", kw_only=True):
    """A problem found by `verify` or fixed by `repair`."""

    kind: str
    """`lost`, `doubled`, `torn`, `foreign`, `temporary`, `half_moved`, `expired`, `receipt_missing`,
    `unreadable`, `unsealed`."""
    path: str
    """Path below `.switchboard/`."""
    message: str
    id: str | None = None
    repaired: bool = False
    mended: bool = False
    """The former name of `repaired` in `--json`, removed in the next release."""

    def __post_init__(self) -> None:
        self.mended = self.repaired


def remove_stale_temp_files(tx: Transaction) -> list[StoreFinding]:
    """Remove temporary files of processes that have ended: their lock is free."""
    folder = tx.folder("tmp")
    names = file_operations.names(folder)
    writers = {name.partition(".")[0] for name in names}
    dead = {writer for writer in writers if tx.directory.is_dead(folder, writer)}
    done = []
    # Locks last, so a crash in between leaves the rest to be found.
    for name in sorted(names, key=lambda name: name.endswith(".lock")):
        if name.partition(".")[0] in dead:
            try:
                tx.remove(folder, name)
            except FileNotFoundError:
                continue
            except OSError:
                continue  # A folder, for example: not ours.
            if not name.endswith(".lock"):
                path = f"tmp/{printable(name)}"
                message = f"{path} was left by a process that has ended."
                done.append(StoreFinding(kind="temporary", path=path, message=message, repaired=True))
    return done


def finish_interrupted_moves(tx: Transaction, agent: str) -> list[StoreFinding]:
    """Finish two-step moves, which leave a file with two names: keep the target. The lock must be held."""
    by_inode: dict[int, list[tuple[Place, str]]] = {}
    for place in PLACES:
        if tx.has(place, agent):
            for name, inode in file_operations.entries(tx.folder(place, agent)):
                if parse(place, name):
                    by_inode.setdefault(inode, []).append((place, name))
    done = []
    for names in by_inode.values():
        for place, name in _extra_name(names):
            tx.remove(tx.folder(place, agent), name)
            path = f"{place}/{agent}/{name}"
            message = f"{path} was moved, but its old name remained."
            done.append(StoreFinding(kind="half_moved", path=path, message=message, repaired=True))
    return done


def _extra_name(names: list[tuple[Place, str]]) -> list[tuple[Place, str]]:
    """Return all names but the furthest one. A claim being returned stays a claim until its lease ends."""
    ranked = sorted(names, key=lambda each: (PLACES.index(each[0]), each[1]))
    return ranked[:-1]
