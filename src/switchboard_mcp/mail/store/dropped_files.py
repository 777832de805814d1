"""Files that somebody put into an inbox: delivered like any message, or set aside with the reason.

Whatever has no right seal is such a file, whatever its name. A delivered one is written anew, marked as unverified and
with its place in the order; then the dropped file goes. Names that begin with a dot or end in `.tmp` are
somebody's temporary files and are left alone. Owns their delivery; does not know who watches.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.agent_names import agent_name
from switchboard_mcp.mail.messages import Delivery, Gate, MailMessage
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    file_operations,
    group_commit,
    message_lookup,
    message_validation,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction, VerifiedMessage
from switchboard_mcp.mail.store.filenames import (
    PLACES,
    MessageFile,
    foreign_stem,
    is_message_id,
    is_own_id,
    parse,
)
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.maintenance import cleanup
from switchboard_mcp.mail.store.sending import OutgoingMessage

# A file that makes no sense yet may still be being written.
SETTLE_S = 1.0
_LONGEST_KEPT_NAME = 120


class Inbox(msgspec.Struct):
    """What was found in an inbox."""

    waiting: list[VerifiedMessage]
    dropped: list[str]
    settling: bool = False
    """Something there may still be being written: look again soon."""


def look(visit: Transaction, agent: str) -> Inbox:
    """The delivered messages, in order, and the names of what is not."""
    found = Inbox([], [])
    if not visit.has("inbox", agent):
        return found
    before = visit.tree.known.get(agent, {})
    now: dict[str, VerifiedMessage] = {}
    for name, inode in sorted(file_operations.entries(visit.folder("inbox", agent))):
        known = before.get(name)
        if known is None or known.inode != inode:
            if name.startswith(".") or name.endswith(".tmp"):
                continue
            known = _known(visit, agent, name)
        if known is not None:
            now[name] = known
        else:
            found.dropped.append(name)
    # Names begin with the order, so that they stand in it; what is gone is forgotten.
    found.waiting = list(now.values())
    visit.tree.known[agent] = now
    return found


def _known(visit: Transaction, agent: str, name: str) -> VerifiedMessage | None:
    """What is to be known of a message that has been delivered; None of what has not."""
    entry = parse("inbox", name)
    if entry is None:
        return None
    found = file_operations.read(visit.folder("inbox", agent), name, signing.MOST_FILE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return None
    message = signing.unsealed(visit.key(), entry.stem, agent, found.data)
    return None if message is None else VerifiedMessage(entry, found.inode, message.sender, message.priority)


def is_delivered(visit: Transaction, agent: str, entry: MessageFile) -> bool:
    """Whether a message that was found is one of ours, and no file that somebody has named like one."""
    return entry.place != "inbox" or _known(visit, agent, entry.name) is not None


def deliver(visit: Transaction, agent: str, gates: Sequence[Gate]) -> tuple[Inbox, list[Delivery]]:
    """Deliver everything that was dropped, and look again."""
    inbox = look(visit, agent)
    if not inbox.dropped:
        return inbox, []
    ordered = sorted(inbox.dropped, key=lambda name: (_changed(visit, agent, name), name))
    told: list[Delivery | None] = []
    for outcome in group_commit.run(visit, [_one(visit, agent, name, gates) for name in ordered]):
        if isinstance(outcome, Exception):
            raise outcome
        # What could not be stored is still lying there, and is tried again.
        told.append(None if isinstance(outcome, Failure) else outcome)
    again = look(visit, agent)
    again.settling = any(each is None for each in told)
    return again, [each for each in told if each is not None]


def _changed(visit: Transaction, agent: str, name: str) -> float:
    found = file_operations.changed(visit.folder("inbox", agent), name)
    return 0.0 if found is None else found


def _one(visit: Transaction, agent: str, name: str, gates: Sequence[Gate]) -> Job[Delivery | None]:
    """One dropped file; None where it has to be looked at again later."""
    inbox = visit.folder("inbox", agent)
    found = file_operations.read(inbox, name, signing.MOST_FILE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        if found.gone or (found.links > 1 and _is_being_moved(visit, agent, name)):
            return None
        return (yield from _set_aside(visit, agent, name, _foreign(agent, name, found.reason)))
    if not message_validation.is_named_so(name):
        if _is_fresh(visit, agent, name):
            return None
        told = _foreign(agent, name, "its name is not msg_….json")
        return (yield from _set_aside(visit, agent, name, told))
    message = message_validation.from_file(found.data, agent, name, visit.clocks.iso())
    if isinstance(message, Failure):
        if _is_fresh(visit, agent, name):
            return None
        return (yield from _set_aside(visit, agent, name, message, found.data))
    return (yield from _take(visit, agent, name, message, gates, found.data))


def _take(
    visit: Transaction, agent: str, name: str, message: MailMessage, gates: Sequence[Gate], data: bytes
) -> Job[Delivery | None]:
    inbox = visit.folder("inbox", agent)
    if _is_anothers(visit, agent, name, message.id):
        told = failure("mail_message_invalid", f"'{message.id}' is the id of another message to '{agent}'.")
        return (yield from _set_aside(visit, agent, name, told, data))
    try:
        letter = OutgoingMessage(visit, message, gates, drop_id=message.id)
    except SwitchboardError as refused:
        return (yield from _set_aside(visit, agent, name, refused.failure, data))
    yield letter.write()
    with visit.locked(agent):
        if not file_operations.exists(inbox, name):
            return None  # Somebody else has delivered it.
        letter.publish()
    # The file goes only when what was made of it is certain to stay.
    yield None
    with visit.locked(agent):
        if file_operations.exists(inbox, name):
            visit.remove(inbox, name)
    return Delivery(agent=agent, file=name, id=letter.finish().id, sender=message.sender)


def _is_anothers(visit: Transaction, agent: str, name: str, message_id: str) -> bool:
    """Whether a dropped file has the id of a message that the desk has made: two would have one id."""
    if not is_own_id(message_id):
        return False
    # A file that has the id for its name must not be found itself.
    places = [place for place in PLACES if place != "inbox" or name != f"{message_id}.json"]
    entry = message_lookup.find(visit, agent, message_id, places)
    return entry is not None and not entry.stem.tail.startswith("file-")


def _set_aside(
    visit: Transaction, agent: str, name: str, problem: Failure, data: bytes = b""
) -> Job[Delivery | None]:
    """Put something that is no message among the dead letters, and tell the sender where one is named."""
    inbox = visit.folder("inbox", agent)
    dead = visit.folder("deadletter", agent, make=True)
    message_id, sender = _named(data, name)
    stem = foreign_stem(visit.number())
    reason = visit.write(dead_letter_reasons.encoded(visit, name, problem))
    receipt = None
    if sender and message_id:
        told = receipts.refused(message_id, agent, problem, visit.clocks.iso())
        receipt = visit.write(receipts.encoded(told))
    yield [reason, *([receipt] if receipt else [])]
    with visit.locked(agent):
        if not file_operations.exists(inbox, name):
            return None
        visit.publish(reason, dead, f"{stem}{dead_letter_reasons.SUFFIX}")
        visit.move(inbox, name, dead, f"{stem}_{_kept(name)}")
    yield None
    if receipt is not None:
        receipts.put_first(visit, receipt, sender, message_id)
    return Delivery(agent=agent, file=name, id=message_id or None, sender=sender or None, problem=problem)


def _named(data: bytes, name: str) -> tuple[str, str]:
    """The id and the sender in something that is no valid message, as far as they can be used."""
    try:
        said = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    if not isinstance(said, dict):
        return "", ""
    message_id, sender = said.get("id", name.removesuffix(".json")), said.get("sender")
    if not isinstance(message_id, str) or not is_message_id(message_id) or not isinstance(sender, str):
        return "", ""
    return message_id, agent_name(sender) or ""


def _is_being_moved(visit: Transaction, agent: str, name: str) -> bool:
    """Whether a second name is that of a move in two steps, under way or left by a crash; the latter is mended."""
    if _is_fresh(visit, agent, name):
        return True
    cleanup.clean_temporaries(visit)
    with visit.locked(agent):
        cleanup.mend_half_moves(visit, agent)
    inbox = visit.folder("inbox", agent)
    return not file_operations.exists(inbox, name) or file_operations.links(inbox, name) == 1


def _is_fresh(visit: Transaction, agent: str, name: str) -> bool:
    changed = file_operations.changed(visit.folder("inbox", agent), name)
    if changed is None:
        return True
    # Files have the time of the system, whatever clocks were passed in.
    age = time.time() - changed
    return -SETTLE_S < age < SETTLE_S


def _kept(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-_LONGEST_KEPT_NAME:]


def _foreign(agent: str, name: str, reason: str) -> Failure:
    shown = name if len(name) < 100 else name[:99] + "…"
    return failure("mail_message_invalid", f"{shown!r} in the inbox of '{agent}' is no message: {reason}.")
