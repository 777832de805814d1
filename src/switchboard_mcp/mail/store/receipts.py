"""The receipts of a sender: one file when a message is delivered or refused, another when it has ended.

None is ever changed, so that nobody reads half of one. Owns finding and ordering them, and what each of them says.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.messages import OUTCOMES, MailMessage, Receipt
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.filenames import Outcome, receipt_for, receipt_name

MOST_RECEIPT_BYTES = 65_536
MOST_SUMMARY_CHARS = 2_000
_decoder = msgspec.json.Decoder(Receipt)


def read(visit: Transaction, sender: str, message_id: str, outcome: Outcome | None = None) -> Receipt | None:
    """One receipt; None where there is none that can be read."""
    if not visit.has("outbox", sender):
        return None
    name = receipt_name(message_id, outcome)
    found = file_operations.read(visit.folder("outbox", sender), name, MOST_RECEIPT_BYTES)
    return None if isinstance(found, file_operations.RejectedFile) else decode(found.data)


def decode(data: bytes) -> Receipt | None:
    """The receipt in a file; None where it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def encoded(receipt: Receipt) -> bytes:
    """The content of a receipt's file."""
    return msgspec.json.encode(receipt) + b"\n"


def put_first(visit: Transaction, draft: TempFile, sender: str, message_id: str) -> None:
    """Put the first receipt of a message there, unless one says that it was taken: that stays, whoever names its id."""
    there = read(visit, sender, message_id)
    if there is None or there.status == "refused":
        visit.put(draft, visit.folder("outbox", sender, make=True), receipt_name(message_id))


def latest(visit: Transaction, sender: str, message_id: str) -> Receipt | None:
    """What is known of a message by now."""
    for outcome in OUTCOMES:
        found = read(visit, sender, message_id, outcome)
        if found is not None:
            return found
    return read(visit, sender, message_id)


def listed(visit: Transaction, sender: str) -> dict[str, set[Outcome | None]]:
    """Every message of this sender that has receipts, and which: None is that of its delivery."""
    found: dict[str, set[Outcome | None]] = {}
    for name in visit.names("outbox", sender):
        receipt = receipt_for(name)
        if receipt is not None:
            found.setdefault(receipt[0], set()).add(receipt[1])
    return found


def newest(visit: Transaction, sender: str, ids: Sequence[str] | None, limit: int) -> list[Receipt]:
    """What is known of the messages asked for; without any, the newest news first."""
    if ids is None:
        ids = _by_news(visit, sender)
    found = (latest(visit, sender, each) for each in ids[: max(0, limit)])
    return [receipt for receipt in found if receipt is not None]


def _by_news(visit: Transaction, sender: str) -> list[str]:
    dated = []
    for message_id, outcomes in listed(visit, sender).items():
        folder = visit.folder("outbox", sender)
        changed = [
            file_operations.changed(folder, receipt_name(message_id, outcome)) or 0.0 for outcome in outcomes
        ]
        dated.append((max(changed), message_id))
    return [message_id for _, message_id in sorted(dated, reverse=True)]


def delivered(message_id: str, recipient: str, at: str) -> Receipt:
    """The first receipt of a message."""
    return Receipt(
        id=f"receipt_{message_id}",
        in_reply_to=message_id,
        status="delivered",
        summary=f"Message delivered to '{recipient}' inbox",
        processed_at=at,
    )


def refused(message_id: str, recipient: str, problem: Failure, at: str) -> Receipt:
    """The only receipt of a dropped file that was not taken."""
    return Receipt(
        id=f"receipt_{message_id}",
        in_reply_to=message_id,
        status="refused",
        summary=f"Message to '{recipient}' was not delivered",
        processed_at=at,
        error=problem.message,
    )


def ended(message: MailMessage, outcome: Outcome, said: str, at: str) -> Receipt:
    """The last receipt of a message."""
    told: dict[Outcome, str] = {
        "done": f"'{message.recipient}' has done it",
        "failed": f"'{message.recipient}' could not do it",
        "rejected": f"'{message.recipient}' rejected it",
    }
    summary = said[:MOST_SUMMARY_CHARS] or told[outcome]
    return Receipt(
        id=f"receipt_{message.id}",
        in_reply_to=message.id,
        status=outcome,
        summary=summary,
        processed_at=at,
        error=None if outcome == "done" else summary,
    )
