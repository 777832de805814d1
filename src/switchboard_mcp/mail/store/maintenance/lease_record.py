"""Records when the next lease of the workspace expires, so that idle time costs nothing per agent.

The names of the claimed files are the truth. The record is one line in `locks/leases`: an expiry that is not later than
that of any claim. It is lowered before a claim is made, and computed again when it has passed; if it is lost, the
claims are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import Lease, Now

RECORD = "leases"
# Claims are listed at least this often: a file may have been moved by hand.
RELIST_MS = 300_000
_BYTES = 128


class NextExpiry(Struct):
    """The earliest expiry of all claims, by uptime of this boot and by wall clock, in milliseconds."""

    boot: str
    uptime: int
    clock: int

    def add(self, lease: Lease) -> None:
        """Consider one more claim."""
        # A lease of another boot, or another machine, only has a wall clock.
        left = lease.uptime - self.uptime if lease.boot == self.boot else lease.clock - self.clock
        if left < 0:
            self.uptime, self.clock = self.uptime + left, self.clock + left


def is_due(tx: Transaction) -> bool:
    """Return True if a claim may have expired."""
    folder = tx.folder("locks")
    state = file_operations.state(folder, RECORD)
    # Only exact times show that a file was not written since.
    expiry = tx.directory.next_expiry.get(state) if state and tx.directory.index.exact else None
    if expiry is None:
        # Without the lock: a record that is just being written cannot be parsed, or is as good as before.
        content = file_operations.read(folder, RECORD, _BYTES)
        known = None if isinstance(content, file_operations.RejectedFile) else _decode(content.data)
        if known is None:
            return True
        expiry = Now(known.boot, known.uptime, known.clock)
        tx.directory.next_expiry = {state: expiry}
    now = tx.clocks.now()
    return now.boot != expiry.boot or now.uptime >= expiry.uptime


def note(tx: Transaction, lease: Lease, lease_ms: int = 0) -> None:
    """Record a lease before it is given out. One of at least RELIST_MS is listed before it expires."""
    if lease_ms >= RELIST_MS:
        return
    with tx.record(RECORD) as descriptor:
        known = _read(descriptor)
        if known is None:
            return  # The next sweep lists all claims.
        before = known.uptime
        known.add(lease)
        if known.uptime != before:
            _write(descriptor, known)


@contextmanager
def rewriting(tx: Transaction) -> Iterator[NextExpiry]:
    """Compute the record again: `add` every claim that is left."""
    now = tx.clocks.now()
    fresh = NextExpiry(now.boot, now.uptime + RELIST_MS, now.clock + RELIST_MS)
    # Claims made meanwhile lower this one, so none of them is missed.
    with tx.record(RECORD) as descriptor:
        _write(descriptor, fresh)
    begun = fresh.uptime
    yield fresh
    if fresh.uptime != begun:
        note(tx, Lease(0, fresh.boot, fresh.uptime, fresh.clock))


def _read(descriptor: int) -> NextExpiry | None:
    return _decode(os.pread(descriptor, _BYTES, 0))


def _decode(data: bytes) -> NextExpiry | None:
    try:
        return msgspec.json.decode(data, type=NextExpiry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # New, or torn by a power cut.


def _write(descriptor: int, record: NextExpiry) -> None:
    os.pwrite(descriptor, msgspec.json.encode(record).ljust(_BYTES), 0)
