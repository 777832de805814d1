"""How a message becomes one that is accepted, whether it was sent or dropped.

The order of steps is what makes "accepted" true: content to the disk, name without overwriting, folder to the disk,
answer. Owns these steps; does not know who asks, nor how jobs share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import (
    MOST_ATTACHMENT_BYTES,
    MOST_PAYLOAD_BYTES,
    Draft,
    Gate,
    MailMessage,
    Sent,
)
from switchboard_mcp.mail.store import file_operations, message_lookup, message_validation, receipts, signing
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.filenames import Stem, waiting_name
from switchboard_mcp.mail.store.group_commit import Job

# How much of an attachment stands in the payload, for whoever only reads that.
EXCERPT_CHARS = 2_000
_MOST_MARK_BYTES = 256


def send(
    visit: Transaction,
    draft: Draft,
    sender: str,
    recipient: str,
    gates: Sequence[Gate],
    *,
    verified: bool = True,
) -> Job[Sent]:
    """One message; `verified`, its sender is known for certain."""
    sender = message_lookup.name_of(sender)
    recipient = message_lookup.known_agent(visit, recipient)
    draft, attached = _attach(visit, draft)
    message = message_validation.from_draft(draft, sender, recipient, visit.clocks.iso())
    if isinstance(message, Failure):
        raise SwitchboardError(message)
    message.metadata["verified"] = verified
    if attached is not None:
        message.metadata["attachment"] = attached.record
    letter = OutgoingMessage(visit, message, gates, attached=attached)
    yield letter.write()
    with visit.locked(recipient):
        letter.publish()
    yield None
    return letter.finish()


class OutgoingMessage:
    """A message on its way into an inbox, with its receipt and the mark of its key.

    Written, published under the recipient's lock, and finished, with the disk in between. One whose key or id was used
    before is not stored again: then `earlier` is the message that was, and each step does what is left of it.
    """

    def __init__(
        self,
        visit: Transaction,
        message: MailMessage,
        gates: Sequence[Gate],
        *,
        drop_id: str = "",
        attached: Attached | None = None,
    ) -> None:
        """`drop_id` is the id a dropped file came with; it is kept, and serves as a key as well."""
        self.visit = visit
        self._marks = marks(message, drop_id)
        self.stem = Stem(visit.number(), _tail(self._marks, drop_id))
        message.id = self.stem.id
        self.message = message
        self._attached = attached
        self.earlier = self._find_earlier()
        # What was accepted before is accepted again: a retry is not asked what may be sent by now.
        if self.earlier is None:
            self.message = gated(message, gates)

    def _find_earlier(self) -> Stem | None:
        recipient = self.message.recipient
        if not self._marks or not self.visit.has("keys", recipient):
            return None
        folder = self.visit.folder("keys", recipient)
        for mark in self._marks:
            found = file_operations.read(folder, mark, _MOST_MARK_BYTES)
            if isinstance(found, file_operations.FileContent):
                order, _, tail = found.data.decode("ascii", "replace").strip().partition(" ")
                stem = Stem(int(order), tail) if order.isdigit() else None
                if stem is not None and message_lookup.holds(self.visit, recipient, stem):
                    return stem
        return None

    def write(self) -> list[TempFile]:
        """Everything that must be on the disk before the message gets its name."""
        visit = self.visit
        if self.earlier is not None:
            return []
        self._receipt = receipts.delivered(self.message.id, self.message.recipient, visit.clocks.iso())
        self._letter = visit.write(signing.sealed(visit.key(), self.stem, self.message))
        self._slip = visit.write(receipts.encoded(self._receipt))
        mark = f"{self.stem.order} {self.stem.tail}\n".encode()
        self._written_marks = [visit.write(mark) for _ in self._marks]
        more = [self._attached.draft] if self._attached is not None else []
        return [self._letter, self._slip, *self._written_marks, *more]

    def publish(self) -> None:
        """Into the inbox, whose lock is held. The marks first, so that no message is without."""
        visit, recipient = self.visit, self.message.recipient
        # Somebody may have sent it while this waited for the disk.
        self.earlier = self.earlier or self._find_earlier()
        if self.earlier is not None:
            visit.doubt(recipient)
            return
        if self._attached is not None:
            self._attached.publish(visit)
        for mark, draft in zip(self._marks, self._written_marks, strict=True):
            visit.put(draft, visit.folder("keys", recipient, make=True), mark)
        visit.publish(self._letter, visit.folder("inbox", recipient), waiting_name(self.stem))

    def finish(self) -> Sent:
        """What is answered; a new message gets its receipt."""
        recipient = self.message.recipient
        if self.earlier is not None:
            receipt = receipts.delivered(self.earlier.id, recipient, self.visit.clocks.iso())
            return Sent(id=self.earlier.id, recipient=recipient, receipt=receipt, duplicate=True)
        try:
            receipts.put_first(self.visit, self._slip, self.message.sender, self.message.id)
        except (OSError, SwitchboardError):
            pass  # The message is stored, and nothing can take it back; `repair` writes the receipt.
        return Sent(id=self.message.id, recipient=recipient, receipt=self._receipt)


def gated(message: MailMessage, gates: Sequence[Gate]) -> MailMessage:
    """The message as the gates let it pass."""
    for gate in gates:
        passed = gate(message)
        if isinstance(passed, Failure):
            raise SwitchboardError(passed)
        # A gate may add a persona or a note, but not send something else to somebody else.
        message = msgspec.structs.replace(
            passed,
            id=message.id,
            sender=message.sender,
            recipient=message.recipient,
            metadata={**passed.metadata, "verified": message.verified},
        )
    return message


def marks(message: MailMessage, drop_id: str = "") -> list[str]:
    """The names under which it is noted which message a key, or the id of a dropped file, was used for."""
    key = message.metadata.get("idempotencyKey")
    # Whoever only says to be the sender must not use up the keys of the one who is.
    kind = "key" if message.verified else "dropped key"
    found = [_mark(kind, message.sender, key)] if isinstance(key, str) else []
    return [*found, _mark("id", "", drop_id)] if drop_id else found


def _mark(kind: str, sender: str, key: str) -> str:
    return blake2b(f"{kind}\n{sender}\n{key}".encode("utf-8", "replace"), digest_size=12).hexdigest()


def _tail(marks: list[str], drop_id: str) -> str:
    if drop_id:
        return "file-" + drop_id.removeprefix("msg_")
    if marks:
        return f"key-{marks[0]}"
    from os import urandom

    return urandom(8).hex()


class Attached(msgspec.Struct):
    """The whole of a payload that is too large for a message."""

    draft: TempFile
    record: dict[str, object]
    name: str

    def publish(self, visit: Transaction) -> None:
        """The same content twice is one file, and a new one: what was old might just be taken away."""
        visit.put(self.draft, visit.folder("attachments"), self.name)


def _attach(visit: Transaction, draft: Draft) -> tuple[Draft, Attached | None]:
    if len(draft.payload) * 4 <= MOST_PAYLOAD_BYTES:
        return draft, None
    try:
        data = draft.payload.encode()
    except UnicodeEncodeError:
        return draft, None  # Refused with a reason further on.
    if len(data) <= MOST_PAYLOAD_BYTES:
        return draft, None
    if len(data) > MOST_ATTACHMENT_BYTES:
        told = f"The payload has {len(data)} bytes; an attachment may have {MOST_ATTACHMENT_BYTES}."
        raise refused("mail_too_large", told)
    digest = sha256(data).hexdigest()
    name = f"{digest}.txt"
    record: dict[str, object] = {"file": f"attachments/{name}", "sha256": digest, "bytes": len(data)}
    excerpt = f"{draft.payload[:EXCERPT_CHARS]}\n… (the whole text, {len(data)} bytes: .switchboard/attachments/{name})"
    short = msgspec.structs.replace(draft, payload=excerpt)
    return short, Attached(visit.write(data), record, name)


def attachment(visit: Transaction, message: MailMessage) -> bytes:
    """The whole payload of a message, as it was sent."""
    record = message.metadata.get("attachment")
    if not isinstance(record, dict):
        return message.payload.encode()
    digest = str(record.get("sha256"))
    if len(digest) != 64 or not digest.isalnum():
        raise refused("mail_not_found", f"'{message.id}' names an attachment that cannot be.")
    found = file_operations.read(visit.folder("attachments"), f"{digest}.txt", MOST_ATTACHMENT_BYTES)
    if isinstance(found, file_operations.RejectedFile) or sha256(found.data).hexdigest() != digest:
        why = (
            found.reason
            if isinstance(found, file_operations.RejectedFile)
            else "its content has been changed"
        )
        raise refused("mail_not_found", f"The attachment of '{message.id}' cannot be had: {why}.")
    return found.data
