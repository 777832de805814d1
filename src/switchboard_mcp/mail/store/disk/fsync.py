"""Syncs many files in little more time than one.

Each fsync flushes the disk's cache, so twenty in sequence cost twenty times as much as one. Issued in parallel they
share the flush; `syncfs` on the whole file system is faster still unless other programs have written much. The faster
way is found by measuring both. Not aware of what the files contain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from switchboard_mcp.mail.store import file_operations

# Up to this many files are synced in sequence.
MAX_SEQUENTIAL = 3
THREADS = 16
# With more dirty data, syncfs would take too long: a slow disk writes about this much in a tenth of a second.
MAX_DIRTY_KB = 32_768
# Weight of the latest measurement, and the number of batches after which the slower way is measured again.
SMOOTHING = 0.2
RETRY_BATCHES = 64


class FsyncBatcher:
    """Syncs batches of files by the fastest available method. One per process."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        # Seconds per file when synced in parallel, and per syncfs; None until measured.
        self._per_file_s: float | None = None
        self._syncfs_s: float | None = None
        self._batches = 0

    def close(self) -> None:
        """Stop the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def sync(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Sync all of these; returns the error of each, or None."""
        if len(descriptors) <= MAX_SEQUENTIAL:
            return [_try_sync(descriptor) for descriptor in descriptors]
        self._batches += 1
        begin = time.perf_counter()
        if self.prefers_syncfs(len(descriptors)) and file_operations.dirty_kb() < MAX_DIRTY_KB:
            try:
                if file_operations.sync_all(descriptors[0]):
                    self._syncfs_s = _blend(self._syncfs_s, time.perf_counter() - begin)
                    return [None] * len(descriptors)
            except OSError as problem:
                return [problem] * len(descriptors)
            self._syncfs_s = float("inf")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "switchboard-sync")
        results = list(self._threads.map(_try_sync, descriptors))
        self._per_file_s = _blend(self._per_file_s, (time.perf_counter() - begin) / len(descriptors))
        return results

    def prefers_syncfs(self, count: int) -> bool:
        """Return True if one syncfs is likely to be faster than `count` fsyncs."""
        if self._syncfs_s is None or self._per_file_s is None:
            return self._syncfs_s is None
        quicker = self._syncfs_s < self._per_file_s * count
        return quicker if self._batches % RETRY_BATCHES else not quicker and self._syncfs_s != float("inf")


def _blend(before: float | None, now: float) -> float:
    return now if before is None else before + SMOOTHING * (now - before)


def _try_sync(descriptor: int) -> OSError | None:
    try:
        file_operations.sync(descriptor)
    except OSError as problem:
        return problem
    return None
