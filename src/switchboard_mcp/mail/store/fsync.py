"""Bringing many files to the disk in little more time than one takes.

Each sync makes the disk empty its cache, and one after the other twenty cost twenty times as much as one. Asked for at
the same time they share the work; or the whole file system is synced, once, which is better still unless others have
written much. Which is quicker here and now is found by trying. Owns the choice; does not know what the files are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from switchboard_mcp.mail.store import file_operations

# Fewer are synced one after the other.
MAX_SEQUENTIAL = 3
THREADS = 16
# Beyond this a sync of everything takes too long to be tried: more than a slow disk writes in a tenth of a second.
MAX_DIRTY_KB = 32_768
# How much one measurement counts against those before, and after how many rounds the other way is tried again.
SMOOTHING = 0.2
RETRY_BATCHES = 64


class FsyncBatcher:
    """One for a process."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        # Seconds: for one file of many asked for together, and for everything. Both begin unknown.
        self._per_file_s: float | None = None
        self._syncfs_s: float | None = None
        self._batches = 0

    def close(self) -> None:
        """Let the threads go."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def sync(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """All of these are on the disk when this returns; what went wrong with each."""
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
        """Whether one sync of everything is likely to be quicker than `count` single ones."""
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
