"""The publisher's status file, read by `status`, `doctor` and `/health`. Needs no Redis."""

from __future__ import annotations

import os
import time
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.system.plain_files import open_plain

STATUS_FILE = "status.json"
# A publisher reports every few seconds; after this long without a report it is not running.
STALE_S = 20.0

State = Literal["standby", "away", "full", "refused", "connected"]


class BusStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Status of a folder's publisher, as it last reported it."""

    state: State
    node: str
    url: str
    pid: int
    at: float
    """The time of this report, in seconds of the local clock."""
    problem: str = ""
    remedy: str = ""
    malformed: int = 0
    """Values in Redis that were skipped since the publisher started, because they could not be used."""
    mail: bool = True
    """True if receipts and workflows are published too."""
    events: int = 0
    """Events published since the publisher started."""
    events_waiting: int = 0
    """Events that were not published yet."""
    events_lost: int = 0
    """Events that were dropped since the publisher started, because they had waited too long."""


def read(workspace: str) -> BusStatus | None:
    """Return the last status of a workspace's publisher; None if none has ever run there."""
    path = os.path.join(workspace, ".switchboard", "bus", STATUS_FILE)
    try:
        with open(path, "rb", opener=open_plain) as file:
            return msgspec.json.decode(file.read(1_048_576), type=BusStatus)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def is_stale(status: BusStatus) -> bool:
    """Return True if the relay has not reported for too long."""
    # A time in the future is from before the clock was set back.
    return abs(time.time() - status.at) > STALE_S


def describe_problem(status: BusStatus | None) -> str:
    """Return the problem to report to a user; empty if all is well."""
    if status is None:
        return "The bus is configured, but no publisher has run here yet: nothing is published."
    if is_stale(status):
        ago = int(time.time() - status.at)
        when = f"{ago} s ago" if ago >= 0 else f"{-ago} s ahead of the clock"
        return f"No publisher is running here: nothing is published. The last one reported {when}."
    if status.state != "connected":
        return f"The publisher is {status.state}: {status.problem}"
    return ""


def summary(status: BusStatus | None) -> dict[str, object]:
    """Return the part that `/health` shows to everybody: no addresses, no names."""
    if status is None or is_stale(status):
        return {"state": "down"}
    return {
        "state": status.state,
        "eventsWaiting": status.events_waiting,
    }
