"""Checks on processes by pid, and the processors and memory that they use."""

from __future__ import annotations

import os
import sys
import time

from msgspec import Struct

_MAX_ANCESTORS = 64
# User ids below are those of the system; the last one is `nobody`.
_FIRST_PERSON, _NOBODY = 1000, 65534


def is_running(pid: object) -> bool:
    """Return True if a process with this pid exists, of any user. Pids are reused: it may be a different process."""
    if not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def has_ended(pid: int) -> bool:
    """Return True if a process has ended, also if nobody has collected its exit code."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return not is_running(pid)


def started_at(pid: int) -> int:
    """Return the start time of a process in milliseconds since the epoch, 0 if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read(4096).rpartition(b")")[2].split()[19])
        with open("/proc/uptime", "rb") as file:
            up_s = float(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    # Rounded to seconds, because any change is sent to all viewers.
    return round(time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK")) * 1000


def list_ancestors(pid: int) -> list[int]:
    """List the ancestors of a process, except init."""
    ancestors: list[int] = []
    parent = _parent if os.path.isdir("/proc/self") else _parents_by_ps().get
    while pid > 1 and len(ancestors) < _MAX_ANCESTORS:
        pid = parent(pid) or 0
        if pid > 1:
            ancestors.append(pid)
    return ancestors


def other_people_run_programs() -> bool:
    """Return True if another person runs programs on this machine: each can read the arguments of all programs."""
    owners: set[int] = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            owners.add(os.stat(f"/proc/{name}").st_uid if name.isdigit() else 0)
        except OSError:  # it has ended meanwhile
            continue
    return any(_FIRST_PERSON <= owner < _NOBODY and owner != os.getuid() for owner in owners)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _parents_by_ps() -> dict[int, int]:
    """Map each process to its parent, for systems without /proc."""
    import subprocess

    try:
        output = subprocess.run(
            ["ps", "-axo", "pid=,ppid="], capture_output=True, timeout=5, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split() for line in output.splitlines())
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}


def usable_processors() -> float:
    """Return how many processors this process may use: by its affinity, and by the quota of its container."""
    usable: float = os.cpu_count() or 1
    if sys.platform == "linux":
        usable = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", "rb") as file:
            quota, period = file.read(100).split()[:2]
        return min(usable, int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no quota
        return usable


def descendants_memory(pid: int) -> int:
    """Return the memory of all processes below a process, in bytes: their resident sets. 0 if unknown."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return 0
    total, left = 0, _children(pid)
    while left:
        child = left.pop()
        left += _children(child)
        try:
            with open(f"/proc/{child}/statm", "rb") as file:
                total += int(file.read(200).split()[1]) * page
        except (OSError, ValueError, IndexError):  # it has ended
            continue
    return total


class ProcessUse(Struct, frozen=True):
    """CPU seconds so far and resident memory in bytes."""

    cpu_s: float
    memory: int


def tree_use(pid: int, ticks: int, page: int) -> ProcessUse | None:
    """Return the use of a process and all below it, ended ones included; None if it has ended.

    `ticks` are those of the clock per second, `page` is the size of a page.
    """
    cpu, memory, left, first = 0, 0, [pid], True
    while left:
        process = left.pop()
        try:
            with open(f"/proc/{process}/stat", "rb") as file:
                # The name may have spaces and parentheses. Then: 11 to 14 are CPU times, 21 is the resident set.
                fields = file.read(4096).rpartition(b") ")[2].split()
            cpu += sum(map(int, fields[11:15]))
            memory += int(fields[21]) * page
        except (OSError, ValueError, IndexError):
            if first:
                return None
        first = False
        left += _children(process)
    return ProcessUse(cpu / ticks, memory)


class MemoryUse(Struct, frozen=True):
    """Memory in bytes. `pss` counts shared pages in proportion; `own` leaves out those of files and shared memory.

    A second process of the same program would need about `own` more, since it shares the pages of files.
    """

    pss: int = 0
    own: int = 0


def tree_memory(pid: int) -> MemoryUse:
    """Return the memory of a process and all below it. Zero if it cannot be read, as on systems without /proc."""
    pss, own, left = 0, 0, [pid]
    while left:
        process = left.pop()
        left += _children(process)
        try:
            with open(f"/proc/{process}/smaps_rollup", "rb") as file:
                lines = (line.split() for line in file.read(8192).splitlines()[1:])
                sizes = {words[0]: int(words[1]) * 1024 for words in lines}
        except (OSError, ValueError, IndexError):  # it has ended
            continue
        pss += sizes.get(b"Pss:", 0)
        own += sizes.get(b"Pss_Anon:", 0)
    return MemoryUse(pss, own)


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
    except (OSError, ValueError):  # it has ended, or the system does not say
        pass
    return pids
