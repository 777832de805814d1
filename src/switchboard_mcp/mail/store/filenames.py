"""File names of messages, which hold the state of a message: its order, its lease, its outcome.

A state change is one rename, which is atomic; so everything that must change together is part of the name:

    inbox       msg_<order>_<tail>.json, or msg_<order>_<tail>.<returns>.json if it was claimed and returned
    claimed     msg_<order>_<tail>.<fence>.<boot>.<uptime>.<clock>.json, also with <returns> before <fence>
    shipped     msg_<order>_<tail>.<node>.<sequence>.json, in transit to an agent on another machine
    archive     msg_<order>_<tail>.<fence>.<outcome>.json, or as in the inbox if moved by hand
    deadletter  as in the archive; a file that never was a message is foreign_<number>_<its original name>

`order` has 16 digits and grows with every message, so names sort in the order of acceptance. `tail` is random, `key-…`
derived from an idempotency key, or `file-…` with the id of a dropped file. Defines this grammar and lease expiry; not
aware of clocks or folders.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

ORDER_DIGITS = 16
# How often a claimed message may return to the inbox. Enough for a few crashes; a message that ended this many claims
# is likely to end the next one too.
MAX_RETURNS = 4
# The longest id still leaves room for a lease in the file name.
MESSAGE_ID = r"msg_[A-Za-z0-9_-]{1,100}"
_ID = re.compile(MESSAGE_ID)
_STEM = r"msg_(\d{16})_([0-9a-f]{16}|key-[0-9a-f]{24}|file-[A-Za-z0-9_-]{1,100})"
_OWN = re.compile(r"msg_\d{16}_(?:[0-9a-f]{16}|key-[0-9a-f]{24})")
_OUTCOME = "done|failed|rejected|recalled|reassigned"
_RETURNS = r"(?:\.(\d{1,2}))?"
_WAITING = re.compile(rf"{_STEM}{_RETURNS}\.json")
_CLAIMED = re.compile(rf"{_STEM}{_RETURNS}\.(\d{{16}})\.([0-9a-f]{{8}})\.(\d{{1,14}})\.(\d{{1,15}})\.json")
_SHIPPED = re.compile(rf"({_STEM})\.([0-9a-f]{{12}})\.(\d{{16}})\.json")
_SETTLED = re.compile(rf"({_STEM})\.(\d{{16}})\.({_OUTCOME})\.json")
_FOREIGN = re.compile(rf"(foreign_\d{{{ORDER_DIGITS}}})_([^/]+)")
_RECEIPT = re.compile(rf"receipt_({MESSAGE_ID})(?:\.({_OUTCOME}))?\.json")

Place = Literal["inbox", "claimed", "shipped", "archive", "deadletter"]
# `rejected` messages become dead letters, all others are archived. The first three are set by the recipient; a message
# that nobody has claimed is `recalled` by its sender, or `reassigned` to another agent.
Outcome = Literal["done", "failed", "rejected", "recalled", "reassigned"]
_OUTCOMES: dict[str, Outcome] = {each: each for each in get_args(Outcome)}
PLACES: tuple[Place, ...] = ("inbox", "claimed", "archive", "deadletter")


class Stem(NamedTuple):
    """The part of the name that a message keeps in every place."""

    order: int
    tail: str

    @property
    def id(self) -> str:
        """Return the message's id."""
        return "msg_" + self.tail[5:] if self.tail.startswith("file-") else str(self)

    def __str__(self) -> str:
        return f"msg_{self.order:0{ORDER_DIGITS}d}_{self.tail}"


class Now(NamedTuple):
    """Current time: boot id, uptime and wall clock in milliseconds."""

    boot: str
    uptime: int
    clock: int


class Lease(NamedTuple):
    """Expiry of a claim: by uptime, which never jumps back; by wall clock after a reboot or on another machine."""

    fence: int
    boot: str
    uptime: int
    clock: int

    def has_expired(self, now: Now) -> bool:
        """Return True if others may claim the message."""
        return now.uptime >= self.uptime if now.boot == self.boot else now.clock >= self.clock


class MessageFile(NamedTuple):
    """A message file, as described by its name."""

    stem: Stem
    place: Place
    name: str
    lease: Lease | None = None
    fence: int = 0
    outcome: Outcome | None = None
    node: str = ""
    sequence: int = 0
    returns: int = 0
    """How often it was claimed and returned unsettled."""


def new_lease(fence: int, now: Now, lease_ms: int) -> Lease:
    """Return a lease that starts now."""
    return Lease(fence, now.boot, now.uptime + lease_ms, now.clock + lease_ms)


def is_message_id(text: str) -> bool:
    """Return True if this is a valid message id."""
    return _ID.fullmatch(text) is not None


def is_store_id(text: str) -> bool:
    """Return True if the id has the form that the store assigns."""
    return _OWN.fullmatch(text) is not None


def name_patterns(message_id: str) -> list[tuple[str, int]]:
    """Return (text, offset) pairs of which one occurs in the file name of this message.

    Ids assigned by a store start the name; ids of dropped files follow an order that the id does not reveal. A message
    from another machine has a store id in the latter position.
    """
    begins = [(f"{message_id}.", 0)] if is_store_id(message_id) else []
    return [*begins, (f"_file-{message_id.removeprefix('msg_')}.", len("msg_") + ORDER_DIGITS)]


def printable(name: str) -> str:
    """Return a file name of any bytes as text that fits on a line.

    >>> printable("a\\udcffb")
    'a\\\\udcffb'
    """
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) < 100 else text[:99] + "…"


def waiting_name(stem: Stem, returns: int = 0) -> str:
    """Return the file name in an inbox."""
    return f"{stem}{_returns_part(returns)}.json"


def _returns_part(returns: int) -> str:
    return f".{returns}" if returns else ""


def claimed_name(stem: Stem, lease: Lease, returns: int = 0) -> str:
    """Return the file name while claimed."""
    expiry = f"{lease.boot}.{lease.uptime}.{lease.clock}"
    return f"{stem}{_returns_part(returns)}.{lease.fence:0{ORDER_DIGITS}d}.{expiry}.json"


def shipped_name(stem: Stem, node: str, sequence: int) -> str:
    """Return the file name while in transit to another machine."""
    return f"{stem}.{node}.{sequence:0{ORDER_DIGITS}d}.json"


def settled_name(stem: Stem, fence: int, outcome: str) -> str:
    """Return the file name once settled."""
    return f"{stem}.{fence:0{ORDER_DIGITS}d}.{outcome}.json"


def foreign_stem(number: int) -> str:
    """Return the start of the dead-letter name of a file that never was a message."""
    return f"foreign_{number:0{ORDER_DIGITS}d}"


def parse_foreign_name(name: str) -> tuple[str, str] | None:
    """Split the dead-letter name of a foreign file into its stem and original name; None for any other name."""
    match = _FOREIGN.fullmatch(name)
    return (match[1], match[2]) if match else None


def receipt_name(message_id: str, outcome: Outcome | None = None) -> str:
    """Return the file name of a receipt: of delivery, or of the outcome."""
    return f"receipt_{message_id}.{outcome}.json" if outcome else f"receipt_{message_id}.json"


def parse_receipt_name(name: str) -> tuple[str, Outcome | None] | None:
    """Return the message id and outcome (None: delivery) of a receipt file name."""
    match = _RECEIPT.fullmatch(name)
    return (match[1], _OUTCOMES.get(match[2])) if match else None


def order_in(name: str) -> int:
    """Return the order number in the name of a message in an inbox."""
    return int(name[len("msg_") : len("msg_") + ORDER_DIGITS])


def parse(place: Place, name: str) -> MessageFile | None:
    """Parse a file name in a place; None if it is not a message name there."""
    if place == "claimed":
        match = _CLAIMED.fullmatch(name)
        if match is None:
            return None
        lease = Lease(int(match[4]), match[5], int(match[6]), int(match[7]))
        stem, returns = Stem(int(match[1]), match[2]), int(match[3] or 0)
        return MessageFile(stem, place, name, lease, lease.fence, returns=returns)
    if place == "shipped":
        match = _SHIPPED.fullmatch(name)
        if match is None:
            return None
        stem = Stem(int(match[2]), match[3])
        return MessageFile(stem, place, name, node=match[4], sequence=int(match[5]))
    if place in ("archive", "deadletter") and (settled := _SETTLED.fullmatch(name)):
        stem = Stem(int(settled[2]), settled[3])
        return MessageFile(stem, place, name, fence=int(settled[4]), outcome=_OUTCOMES[settled[5]])
    match = _WAITING.fullmatch(name)
    return (
        MessageFile(Stem(int(match[1]), match[2]), place, name, returns=int(match[3] or 0)) if match else None
    )
