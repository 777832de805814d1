"""The names of message files, which say where a message stands: its order, its lease, its outcome.

One rename changes a name, and a rename is whole or has not happened; so whatever must be true together stands in the
name. The parts:

    inbox       msg_<order>_<tail>.json, or msg_<order>_<tail>.<returns>.json where it was claimed and came back
    claimed     msg_<order>_<tail>.<fence>.<boot>.<uptime>.<clock>.json, with <returns> before <fence> likewise
    shipped     msg_<order>_<tail>.<node>.<sequence>.json, on its way to an agent on another machine
    archive     msg_<order>_<tail>.<fence>.<outcome>.json, or as in the inbox where somebody moved it by hand
    deadletter  as in the archive; what never was a message is foreign_<number>_<the name it had>

`order` has 16 digits and grows with every message, so that names sort as messages were accepted. `tail` is random,
`key-…` made from an idempotency key, or `file-…` with the id a dropped file had. Owns this grammar and when a lease is
over; does not know clocks or folders.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

ORDER_DIGITS = 16
# How often a message may be claimed and come back; enough for a few crashes, and what has ended so many claims is
# likely to end the next one too.
MAX_RETURNS = 4
# What follows `msg_` in an id; the longest still makes a file name with a lease.
MESSAGE_ID = r"msg_[A-Za-z0-9_-]{1,100}"
_ID = re.compile(MESSAGE_ID)
_STEM = r"msg_(\d{16})_([0-9a-f]{16}|key-[0-9a-f]{24}|file-[A-Za-z0-9_-]{1,100})"
_OWN = re.compile(r"msg_\d{16}_(?:[0-9a-f]{16}|key-[0-9a-f]{24})")
_RETURNS = r"(?:\.(\d{1,2}))?"
_WAITING = re.compile(rf"{_STEM}{_RETURNS}\.json")
_CLAIMED = re.compile(rf"{_STEM}{_RETURNS}\.(\d{{16}})\.([0-9a-f]{{8}})\.(\d{{1,14}})\.(\d{{1,15}})\.json")
_SHIPPED = re.compile(rf"({_STEM})\.([0-9a-f]{{12}})\.(\d{{16}})\.json")
_SETTLED = re.compile(rf"({_STEM})\.(\d{{16}})\.(done|failed|rejected)\.json")
_FOREIGN = re.compile(rf"(foreign_\d{{{ORDER_DIGITS}}})_([^/]+)")
_RECEIPT = re.compile(rf"receipt_({MESSAGE_ID})(?:\.(done|failed|rejected))?\.json")

Place = Literal["inbox", "claimed", "shipped", "archive", "deadletter"]
# How a message ends: archived for the first two, a dead letter for the third.
Outcome = Literal["done", "failed", "rejected"]
_OUTCOMES: dict[str, Outcome] = {"done": "done", "failed": "failed", "rejected": "rejected"}
PLACES: tuple[Place, ...] = ("inbox", "claimed", "shipped", "archive", "deadletter")


class Stem(NamedTuple):
    """The part of the name that a message keeps wherever it goes."""

    order: int
    tail: str

    @property
    def id(self) -> str:
        """The message's id."""
        return "msg_" + self.tail[5:] if self.tail.startswith("file-") else str(self)

    def __str__(self) -> str:
        return f"msg_{self.order:0{ORDER_DIGITS}d}_{self.tail}"


class Now(NamedTuple):
    """What the clocks say: which start of the machine, since when it runs, and the time of day, in milliseconds."""

    boot: str
    uptime: int
    clock: int


class Lease(NamedTuple):
    """Until when a claim holds. The machine's uptime counts, which nobody sets back; where the machine is another one,
    or was started again, the time of day.
    """

    fence: int
    boot: str
    uptime: int
    clock: int

    def has_expired(self, now: Now) -> bool:
        """Whether somebody else may have the message."""
        return now.uptime >= self.uptime if now.boot == self.boot else now.clock >= self.clock


class MessageFile(NamedTuple):
    """A message file by what its name says."""

    stem: Stem
    place: Place
    name: str
    lease: Lease | None = None
    fence: int = 0
    outcome: Outcome | None = None
    node: str = ""
    sequence: int = 0
    returns: int = 0
    """How often it was claimed, and came back unsettled."""


def new_lease(fence: int, now: Now, lease_ms: int) -> Lease:
    """A lease that begins now."""
    return Lease(fence, now.boot, now.uptime + lease_ms, now.clock + lease_ms)


def is_message_id(text: str) -> bool:
    """Whether a message may have this id."""
    return _ID.fullmatch(text) is not None


def is_store_id(text: str) -> bool:
    """Whether it is of the form that the desk gives its messages."""
    return _OWN.fullmatch(text) is not None


def name_patterns(message_id: str) -> list[tuple[str, int]]:
    """How the name of a message's file may go on from which place: our own ids are how it begins, any other comes
    behind an order that the id does not tell. What came from another machine has an id like our own.
    """
    begins = [(f"{message_id}.", 0)] if is_store_id(message_id) else []
    return [*begins, (f"_file-{message_id.removeprefix('msg_')}.", len("msg_") + ORDER_DIGITS)]


def waiting_name(stem: Stem, returns: int = 0) -> str:
    """The name in an inbox."""
    return f"{stem}{_returns_part(returns)}.json"


def _returns_part(returns: int) -> str:
    return f".{returns}" if returns else ""


def claimed_name(stem: Stem, lease: Lease, returns: int = 0) -> str:
    """The name while somebody holds it."""
    expiry = f"{lease.boot}.{lease.uptime}.{lease.clock}"
    return f"{stem}{_returns_part(returns)}.{lease.fence:0{ORDER_DIGITS}d}.{expiry}.json"


def shipped_name(stem: Stem, node: str, sequence: int) -> str:
    """The name while it is on its way to another machine."""
    return f"{stem}.{node}.{sequence:0{ORDER_DIGITS}d}.json"


def settled_name(stem: Stem, fence: int, outcome: str) -> str:
    """The name when it has ended."""
    return f"{stem}.{fence:0{ORDER_DIGITS}d}.{outcome}.json"


def foreign_stem(number: int) -> str:
    """How the name of what never was a message begins among the dead letters."""
    return f"foreign_{number:0{ORDER_DIGITS}d}"


def parse_foreign_name(name: str) -> tuple[str, str] | None:
    """Such a stem and the name that the file had, by its name among the dead letters; None where it is another's."""
    found = _FOREIGN.fullmatch(name)
    return (found[1], found[2]) if found else None


def receipt_name(message_id: str, outcome: Outcome | None = None) -> str:
    """The name of a message's receipt: of its delivery, or of how it ended."""
    return f"receipt_{message_id}.{outcome}.json" if outcome else f"receipt_{message_id}.json"


def parse_receipt_name(name: str) -> tuple[str, Outcome | None] | None:
    """Which message a receipt is of, and whether of its end, by its name."""
    found = _RECEIPT.fullmatch(name)
    return (found[1], _OUTCOMES.get(found[2])) if found else None


def parse(place: Place, name: str) -> MessageFile | None:
    """What a name in a folder says; None where it is no name of a message there."""
    if place == "claimed":
        found = _CLAIMED.fullmatch(name)
        if found is None:
            return None
        lease = Lease(int(found[4]), found[5], int(found[6]), int(found[7]))
        stem, returns = Stem(int(found[1]), found[2]), int(found[3] or 0)
        return MessageFile(stem, place, name, lease, lease.fence, returns=returns)
    if place == "shipped":
        found = _SHIPPED.fullmatch(name)
        if found is None:
            return None
        stem = Stem(int(found[2]), found[3])
        return MessageFile(stem, place, name, node=found[4], sequence=int(found[5]))
    if place in ("archive", "deadletter") and (settled := _SETTLED.fullmatch(name)):
        stem = Stem(int(settled[2]), settled[3])
        return MessageFile(stem, place, name, fence=int(settled[4]), outcome=_OUTCOMES[settled[5]])
    found = _WAITING.fullmatch(name)
    return (
        MessageFile(Stem(int(found[1]), found[2]), place, name, returns=int(found[3] or 0)) if found else None
    )
