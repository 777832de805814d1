"""Looking at processes from outside: the one place that decides whether a process still lives."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable

import psutil

# The variable of the environment that holds the mark of a test.
MARK = "SWITCHBOARD_TEST_ID"
_PR_GET_CHILD_SUBREAPER = 37


def lives(process: psutil.Process | int) -> bool:
    """Return True if a process has not ended. A zombie has: nobody collected it, and that may be this process."""
    try:
        one = psutil.Process(process) if isinstance(process, int) else process
        return one.is_running() and one.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def living(pids: Iterable[int]) -> list[psutil.Process]:
    """Return those that have not ended."""
    found = []
    for pid in pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return [process for process in found if lives(process)]


def adopts_orphans() -> bool:
    """Return True if this process is a subreaper, so that orphans below it become its children and its zombies."""
    if sys.platform != "linux":
        return False
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return bool(adopts.value)
