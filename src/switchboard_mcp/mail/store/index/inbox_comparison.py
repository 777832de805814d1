"""Compares a large inbox with its index, in pieces: finds the files that other programs have added or removed.

A new index gets the messages that come first before all others: they can be claimed, and each piece changes few pages
of the database. A comparison reads the folder from one end to the other, then the index, and returns the names that
differ. Changes by this store are in the index as soon as they are in the folder, so they do not matter meanwhile. Not
aware of what a file contains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.filenames import Stem, order_in, parse, waiting_name
from switchboard_mcp.mail.store.index.inbox_index import HIGHEST_ORDER, InboxView, IndexRow

# Names that are compared at once: about 0.05 s, and 0.1 s more if all of them are new.
PIECE = 5_000


# Names that are listed at once: about 0.02 s.
LISTED = 20_000


class FirstFiles:
    """Finds the files of an inbox that come first after an order, in pieces. Keeps no more than twice as many names."""

    def __init__(self, folder: int, after: int, most: int, listed_at: float) -> None:
        self.listed_at = listed_at
        """As that of a comparison."""
        self._names = file_operations.each_name(folder)
        self._after = waiting_name(Stem(max(after, 0), "~"))  # Follows all names of this order.
        self._before = "msg_:"  # Follows all names of messages.
        self._most = most
        self._found: list[str] = []
        self._has_listed = self._has_more = False

    def advance(self) -> tuple[list[str], int] | None:
        """List some names; once all are listed, return the first ones, and the order up to which they are all.

        Returns fewer than there are at the end of each piece, and none after the last one.
        """
        if not self._has_listed:
            names = list(islice(self._names, LISTED))
            self._found += [name for name in names if self._after < name < self._before]
            self._has_listed = len(names) < LISTED
            if len(self._found) > 2 * self._most or self._has_listed:
                self._found.sort()
                self._has_more = self._has_more or len(self._found) > self._most
                del self._found[self._most :]
                self._before = self._found[-1] if len(self._found) == self._most else self._before
            return None
        names, self._found = self._found[:PIECE], self._found[PIECE:]
        messages = [name for name in names if parse("inbox", name) is not None]
        if not self._found and not self._has_more:
            return messages, HIGHEST_ORDER
        # There may be more of the last order.
        return messages, order_in(messages[-1]) - 1 if messages else -1

    @property
    def has_ended(self) -> bool:
        """Return True if all that were found have been returned."""
        return self._has_listed and not self._found


class InboxComparison:
    """One comparison."""

    def __init__(self, folder: int, stamp: int, listed_at: float) -> None:
        self.stamp = stamp
        """State of the folder at the start."""
        self.listed_at = listed_at
        """When the folder was listed before, which also tells this index from a later one."""
        self.differing: set[str] = set()
        self._entries = file_operations.each_entry(folder)
        self._has_listed = False
        self._after = ""

    def advance(self, folder: int, view: InboxView) -> bool:
        """Compare a piece; returns False once all is compared."""
        if not self._has_listed:
            found = dict(islice(self._entries, PIECE))
            known = view.inodes(found)
            self.differing |= {
                name
                for name, inode in found.items()
                if not is_temporary(name) and (name not in known or known[name] not in (0, inode))
            }
            if len(found) < PIECE:
                self._has_listed = True
            return True
        names = view.names_after(self._after, PIECE)
        self.differing |= {name for name in names if not file_operations.exists(folder, name)}
        self._after = names[-1] if names else ""
        return len(names) == PIECE


def is_temporary(name: str) -> bool:
    """Return True for a temporary file of another program, which is left alone."""
    return name.startswith(".") or name.endswith(".tmp")


def changes_of(
    folder: int, view: InboxView, names: Iterable[str]
) -> tuple[Collection[IndexRow], Collection[str]]:
    """Return the rows to add and the names to remove, so that the index is right for these files."""
    added, removed = [], []
    wanted = [name for name in names if not is_temporary(name)]
    known = view.inodes(wanted)
    for name in wanted:
        inode = file_operations.inode(folder, name)
        if not inode and name in known:
            removed.append(name)
        elif inode and (name not in known or known[name] not in (0, inode)):
            is_message = parse("inbox", name) is not None
            added.append(IndexRow(name, inode if is_message else 0, unread=is_message))
    return added, removed
