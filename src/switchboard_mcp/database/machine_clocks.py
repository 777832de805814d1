"""The clocks of a machine, passed in so that tests can replace them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from datetime import datetime

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def _boot() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return f"process {os.getpid()}"  # Uptimes of other processes count as those of an earlier start.


class MachineClocks(Struct, frozen=True):
    """The start of the machine, its wall clock, and the time since its start, which is never set back."""

    boot: str
    wall_us: Callable[[], int]
    uptime_ms: Callable[[], int]


def machine_clocks() -> MachineClocks:
    """Return the real clocks."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return MachineClocks(
        _boot(), lambda: time.time_ns() // 1_000, lambda: time.clock_gettime_ns(clock) // 1_000_000
    )


def iso_time(clock_ms: int) -> str:
    """Return a wall clock time as ISO 8601 with milliseconds."""
    seconds, ms = divmod(clock_ms, 1_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ms:03d}Z"


def stamp(at: datetime) -> str:
    """Format a UTC time as it is stored."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
