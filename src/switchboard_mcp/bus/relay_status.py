"""The relay's status file, read by `status`, `doctor` and `/health`. Needs no Redis."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.system.plain_files import open_plain

STATUS_FILE = "status.json"
# A relay reports every few seconds; after this long without a report it is not running.
STALE_S = 20.0

State = Literal["standby", "away", "full", "refused", "connected"]


class BusStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Status of a folder's relay, as the relay last reported it."""

    state: State
    node: str
    url: str
    pid: int
    at: float
    """The time of this report, in seconds of the local clock."""
    problem: str = ""
    remedy: str = ""
    waiting: int = 0
    """Messages for other machines that were not sent yet."""
    in_flight: int = 0
    """Messages sent and not confirmed yet."""
    on_their_way: int = 0
    """The former name of `inFlight`, removed in the next release."""
    oldest_s: float = 0.0
    """Seconds since the last confirmation of a message in transit."""
    backlog: int = 0
    """Entries in Redis for this machine that are not acknowledged yet."""
    shipped: int = 0
    stored: int = 0
    dead: int = 0
    """Messages that could not be stored here since the relay started."""
    agents: int = 0
    elsewhere: int = 0
    conflicts: list[str] = []
    """Names in use here that another machine holds."""
    joined: bool = False
    """True once this machine had a stream in Redis."""
    lost_at: float = 0.0
    """The time at which the relay last found that Redis had lost data; 0 if it has not since it started."""
    restored: int = 0
    """Shared entries put back since the relay started, because Redis had lost them or held older ones."""
    state_conflicts: list[str] = []
    """Shared entries of which two machines had different values since the relay started."""
    malformed: int = 0
    """Values in Redis that were skipped since the relay started, because they could not be used."""
    mail: bool = True
    """False if mail is off here, so only events are published."""
    events: int = 0
    """Events published since the relay started."""
    events_waiting: int = 0
    """Events that were not published yet."""
    events_lost: int = 0
    """Events that were dropped since the relay started, because they had waited too long."""


def read(workspace: str) -> BusStatus | None:
    """Return the last status of a workspace's relay; None if none has ever run there."""
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
        return "The bus is configured, but no relay has run here yet: nothing is published."
    if is_stale(status):
        ago = int(time.time() - status.at)
        when = f"{ago} s ago" if ago >= 0 else f"{-ago} s ahead of the clock"
        return f"No relay is running here: nothing is published. The last one reported {when}."
    if status.state != "connected":
        return f"The relay is {status.state}: {status.problem}"
    if status.conflicts:
        return f"These names are in use here, but belong to another machine: {', '.join(status.conflicts)}."
    if status.state_conflicts:
        shown = ", ".join(status.state_conflicts[:5])
        return (
            f"Two machines had different values of these entries, after Redis lost some: {shown}. "
            "Check them in state.json, then restart the relay."
        )
    return ""


def describe_loss(status: BusStatus | None) -> str:
    """Return the sentence about data that Redis has lost and got back; empty if it has lost none."""
    if status is None or not status.lost_at:
        return ""
    at = datetime.fromtimestamp(status.lost_at).astimezone().isoformat(" ", "seconds")
    restored = f"{status.restored} shared entries were put back" if status.restored else "Nothing is missing"
    return (
        f"Redis had lost data when it was checked at {at}: it was emptied, or is an older copy. "
        f"{restored}, and messages without a confirmation are sent again."
    )


def summary(status: BusStatus | None) -> dict[str, object]:
    """Return the part that `/health` shows to everybody: no addresses, no names."""
    if status is None or is_stale(status):
        return {"state": "down"}
    return {
        "state": status.state,
        "waiting": status.waiting,
        "inFlight": status.in_flight,
        "onTheirWay": status.in_flight,  # former name, removed in the next release
        "lagSeconds": status.oldest_s,
        "backlog": status.backlog,
        "eventsWaiting": status.events_waiting,
    }
