"""How the relay of a folder is, as it says itself in a file; for `status`, `doctor` and `/health`.

Owns the shape and how it is read; needs no Redis for it.
"""

from __future__ import annotations

import os
import time
from typing import Literal

import msgspec
from msgspec import Struct

STATUS_FILE = "status.json"
# A relay says how it is every few seconds; one that has been silent for so long is not there.
STALE_S = 20.0

State = Literal["standby", "away", "full", "refused", "connected"]


class BusStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the relay of a folder is."""

    state: State
    node: str
    url: str
    pid: int
    at: float
    """When this was true, in seconds of the clock here."""
    problem: str = ""
    remedy: str = ""
    waiting: int = 0
    """Letters for other machines that have not left."""
    on_their_way: int = 0
    """Letters that have left and are not confirmed."""
    oldest_s: float = 0.0
    """For how long nothing of what is on its way was confirmed."""
    backlog: int = 0
    """Entries in Redis for this machine that are not acknowledged."""
    shipped: int = 0
    stored: int = 0
    dead: int = 0
    """Letters that could not be stored here, since the relay runs."""
    agents: int = 0
    elsewhere: int = 0
    conflicts: list[str] = []
    """Names used here that another machine has."""


def read(workspace: str) -> BusStatus | None:
    """What the relay of a workspace said last; None where none has ever run there."""
    try:
        with open(os.path.join(workspace, ".switchboard", "bus", STATUS_FILE), "rb") as file:
            return msgspec.json.decode(file.read(1_048_576), type=BusStatus)
    except (OSError, msgspec.DecodeError):
        return None


def is_stale(status: BusStatus) -> bool:
    """Whether the relay has not been heard of for too long."""
    return time.time() - status.at > STALE_S


def describe_problem(status: BusStatus | None) -> str:
    """What somebody should know; empty where all is well."""
    if status is None:
        return "The bus is configured, and no relay has run here yet."
    if is_stale(status):
        return f"No relay runs here: the last one was heard of {int(time.time() - status.at)} s ago."
    if status.state != "connected":
        return f"The relay is {status.state}: {status.problem}"
    if status.conflicts:
        return f"Names that another machine has are used here: {', '.join(status.conflicts)}."
    return ""


def summary(status: BusStatus | None) -> dict[str, object]:
    """For `/health`, which everybody may read: no addresses, no names."""
    if status is None or is_stale(status):
        return {"state": "down"}
    return {
        "state": status.state,
        "waiting": status.waiting,
        "onTheirWay": status.on_their_way,
        "lagSeconds": status.oldest_s,
        "backlog": status.backlog,
    }
