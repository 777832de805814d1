"""CPU and memory of child processes over time, sampled while a dashboard is open.

Read from /proc in a thread: some 0.1 ms per process. A series takes a fixed amount of memory.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterable, Mapping

from msgspec import Struct

from switchboard_mcp.system.processes import ProcessUse, tree_use

SAMPLE_S = 5.0
# An hour. The oldest are dropped some at a time, since that moves all others.
MAX_POINTS, DROPPED_POINTS = 720, 60


class ResourcePoint(Struct, array_like=True, frozen=True):
    """Time (ms), percent of a core, and resident memory (bytes) of a process and all below it."""

    at: int
    cpu: float
    memory: int


class ResourceSeries:
    """The points of one process. A new process begins a new series."""

    __slots__ = ("_last", "_numbers", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._numbers = array("d")  # three per point
        self._last: tuple[float, float] | None = None  # time and CPU seconds

    def add(self, at: float, use: ProcessUse) -> ResourcePoint:
        """Add a measurement. CPU is that since the last one."""
        cpu = 0.0
        if self._last is not None and at > self._last[0]:
            cpu = max(0.0, 100.0 * (use.cpu_s - self._last[1]) / (at - self._last[0]))
        self._last = (at, use.cpu_s)
        self._numbers.extend((at, cpu, use.memory))
        if len(self._numbers) > 3 * (MAX_POINTS + DROPPED_POINTS):
            del self._numbers[: 3 * DROPPED_POINTS]
        return ResourcePoint(int(at * 1000), round(cpu, 1), use.memory)

    def points(self) -> list[ResourcePoint]:
        """Return the last points, oldest first."""
        numbers = self._numbers[-3 * MAX_POINTS :]
        return [
            ResourcePoint(int(numbers[place] * 1000), round(numbers[place + 1], 1), int(numbers[place + 2]))
            for place in range(0, len(numbers), 3)
        ]


class ResourceHistory:
    """The series of all child processes by id."""

    def __init__(self) -> None:
        self.series: dict[str, ResourceSeries] = {}
        self._next_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return True if it is time for a sample, and expect the next one later."""
        if now < self._next_at:
            return False
        self._next_at = now + SAMPLE_S
        return True

    def add(self, pids: Mapping[str, int], uses: Mapping[int, ProcessUse]) -> dict[str, ResourcePoint]:
        """Add a sample of all processes, and forget those that are gone. Return the new points."""
        at = time.time()
        self.series = {
            id: series
            if (series := self.series.get(id)) is not None and series.pid == pid
            else ResourceSeries(pid)
            for id, pid in pids.items()
        }
        return {id: self.series[id].add(at, uses[pid]) for id, pid in pids.items() if pid in uses}


def measure(pids: Iterable[int]) -> dict[int, ProcessUse]:
    """Measure processes. Blocks. Those that have ended are left out."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    uses = ((pid, tree_use(pid, ticks, page)) for pid in pids)
    return {pid: use for pid, use in uses if use is not None}
