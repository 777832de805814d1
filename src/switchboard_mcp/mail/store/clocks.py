"""The machine's clocks, for order numbers, leases and timestamps. Passed in, so tests can replace them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.mail.store.filenames import Now

if TYPE_CHECKING:
    from datetime import datetime

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def _boot() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read(8)
    except OSError:
        # A value unique to this process, so leases fall back to wall clock.
        return f"{os.getpid() & 0xFFFFFFFF:08x}"


def _uptime() -> int:
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


class Clocks(Struct, frozen=True):
    """Clocks of this machine."""

    boot: str
    microseconds: Callable[[], int]
    uptime_ms: Callable[[], int]

    def now(self) -> Now:
        """Return the current time for leases."""
        return Now(self.boot, self.uptime_ms(), self.microseconds() // 1000)

    def iso(self, clock_ms: int | None = None) -> str:
        """Return the current or the passed time as ISO 8601 with milliseconds."""
        clock = self.microseconds() // 1000 if clock_ms is None else clock_ms
        seconds, ms = divmod(clock, 1000)
        return f"{_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=16)
def _second(clock_s: int) -> str:
    """Format a second. Cached: messages, receipts and leases of a busy store share a few."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(clock_s))


def stamp(at: datetime) -> str:
    """Format a UTC time as stored in files."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def system_clocks() -> Clocks:
    """Return the real clocks of this machine."""
    return Clocks(_boot(), lambda: time.time_ns() // 1000, _uptime)
