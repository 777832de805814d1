"""Reads process trees and their resource usage from /proc. Linux only."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def read(path: str) -> str:
    """Return the text of a file; empty if the process has ended."""
    try:
        with open(path) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@dataclass(frozen=True)
class Process:
    """One process; the start time tells it from a later one with the same pid."""

    pid: int
    parent: int
    start: int

    @property
    def argv(self) -> list[str]:
        return read(f"/proc/{self.pid}/cmdline").split("\0")[:-1]

    def cpu_ns(self) -> int:
        """User and system time of all its threads, as finely as the kernel counts it."""
        total = 0
        try:
            tasks = os.listdir(f"/proc/{self.pid}/task")
        except FileNotFoundError:
            return 0
        for task in tasks:
            fine = read(f"/proc/{self.pid}/task/{task}/schedstat")
            if not fine:
                return self.cpu_ticks_ns()
            total += int(fine.split()[0])
        return total

    def cpu_ticks_ns(self) -> int:
        fields = read(f"/proc/{self.pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_NS if fields else 0

    def rss(self) -> int:
        fields = read(f"/proc/{self.pid}/statm").split()
        return int(fields[1]) * PAGE if fields else 0

    def kill(self) -> None:
        if lookup(self.pid) == self:
            os.kill(self.pid, signal.SIGKILL)


def lookup(pid: int) -> Process | None:
    # The name in brackets may hold spaces and brackets, so that fields are counted after the last one.
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return Process(pid, int(fields[1]), int(fields[19])) if fields else None


def descendants(root: int) -> list[Process]:
    """Return the process `root` and its descendants, parents first."""
    found = [lookup(int(name)) for name in os.listdir("/proc") if name.isdecimal()]
    processes = [process for process in found if process]
    tree = [process for process in processes if process.pid == root]
    for parent in tree:
        tree.extend(process for process in processes if process.parent == parent.pid)
    return tree


def pin(root: int, cores: set[int]) -> None:
    """Let every thread of the tree run on these cores only."""
    for process in descendants(root):
        for task in os.listdir(f"/proc/{process.pid}/task"):
            os.sched_setaffinity(int(task), cores)


@dataclass(frozen=True)
class Footprint:
    """A contestant's processes apart from the child it relays to: the one that serves, and its helpers."""

    server: Process
    helpers: tuple[Process, ...]

    def cpu_ns(self) -> int:
        return sum(process.cpu_ns() for process in (self.server, *self.helpers))


def footprint(root: int, child: list[str]) -> Footprint | None:
    """Return the processes under `root` except the child, the largest as the server; None if there is none."""
    own = [process for process in descendants(root) if process.argv != child]
    own.sort(key=Process.rss, reverse=True)
    return Footprint(own[0], tuple(own[1:])) if own else None
