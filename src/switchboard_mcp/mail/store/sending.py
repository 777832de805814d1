"""Accepts a message into an inbox, sent or dropped.

The order of steps guarantees durability: sync the content, publish the name without overwriting, sync the folder,
answer. Not aware of callers or of how jobs share syncs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b, sha256
from os import urandom

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import (
    MAX_ATTACHMENT_BYTES,
    MAX_PAYLOAD_BYTES,
    DeliveryRule,
    Draft,
    FileAttachment,
    MailMessage,
    Sent,
)
from switchboard_mcp.mail.store import (
    file_operations,
    message_lookup,
    message_validation,
    quotas,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.filenames import Stem, waiting_name
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.index.inbox_index import IndexRow

# Part of an attachment repeated in the payload, for readers that only look there.
EXCERPT_CHARS = 2_000
_MAX_KEY_FILE_BYTES = 256
MAX_FILE_NAME = 200
# One empty file for each message with a deadline, named after it; see `conversations.deadlines`.
DEADLINES = "deadlines"
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")


def send(
    tx: Transaction,
    draft: Draft,
    sender: str,
    recipient: str,
    rules: Sequence[DeliveryRule],
    *,
    verified: bool = True,
    then: Callable[[Transaction], None] | None = None,
) -> Job[Sent]:
    """Send one message. `verified` means that the sender is authenticated; `then` is called once it is durable."""
    sender = message_lookup.parse_agent_name(sender)
    recipient = message_lookup.require_agent(tx, recipient)
    draft, attached = _attach(tx, draft)
    message = message_validation.from_draft(draft, sender, recipient, tx.clocks.iso())
    if isinstance(message, Failure):
        raise SwitchboardError(message)
    message.metadata["verified"] = verified
    if attached is not None:
        message.metadata["attachment"] = attached.record
    outgoing = OutgoingMessage(
        tx, message, answer_rules(rules) if draft.answers else rules, attached=attached
    )
    yield outgoing.write()
    with tx.locked(recipient):
        outgoing.publish()
    yield None
    sent = outgoing.finish()
    if then is not None:
        with suppress(Exception):  # The message is stored, whatever follows.
            then(tx)
    return sent


class OutgoingMessage:
    """A message on its way into an inbox, with its receipt and dedup keys.

    Call `write`, then `publish` under the recipient's lock, then `finish`, with a sync in between. If a dedup key was
    used before, nothing is stored: `earlier` is the previous message, and each step returns that one.
    """

    def __init__(
        self,
        tx: Transaction,
        message: MailMessage,
        rules: Sequence[DeliveryRule],
        *,
        dropped_id: str = "",
        attached: AttachmentFile | None = None,
        enforce_quotas: bool = True,
    ) -> None:
        """Initialize. `dropped_id` is the id of a dropped file; it is kept and also serves as a dedup key."""
        self.tx = tx
        self._enforce_quotas = enforce_quotas
        self._bytes = 0
        self._dedup_keys = dedup_keys(message, dropped_id)
        self.stem = Stem(tx.next_number(), _tail(self._dedup_keys, dropped_id))
        message.id = self.stem.id
        self.message = message
        self._attached = attached
        self.earlier = self._find_earlier()
        # A retry of an accepted message succeeds even if the rules have changed since.
        if self.earlier is None:
            self.message = apply_rules(message, rules)

    def _find_earlier(self) -> Stem | None:
        recipient = self.message.recipient
        if not self._dedup_keys or not self.tx.has("keys", recipient):
            return None
        folder = self.tx.folder("keys", recipient)
        for key in self._dedup_keys:
            content = file_operations.read(folder, key, _MAX_KEY_FILE_BYTES)
            if isinstance(content, file_operations.FileContent):
                order, _, tail = content.data.decode("ascii", "replace").strip().partition(" ")
                stem = Stem(int(order), tail) if order.isdigit() else None
                if stem is not None and message_lookup.exists(self.tx, recipient, stem):
                    return stem
        return None

    def write(self) -> list[TempFile]:
        """Write the temporary files to be synced before the message is published."""
        tx = self.tx
        if self.earlier is not None:
            return []
        self._receipt = receipts.delivered_receipt(self.message.id, self.message.recipient, tx.clocks.iso())
        content = signing.sign(tx.signing_key(), self.stem, self.message)
        self._bytes = quotas.size_of(len(content), self.message)
        self._message_file = tx.write(content)
        self._receipt_file = tx.write(receipts.encode(self._receipt))
        mark = f"{self.stem.order} {self.stem.tail}\n".encode()
        self._key_files = [tx.write(mark) for _ in self._dedup_keys]
        attachment_files = [self._attached.file] if self._attached is not None else []
        self._deadline_files = [tx.write(b"")] if self.message.ack_by else []
        files = [self._message_file, self._receipt_file, *self._key_files]
        return [*files, *attachment_files, *self._deadline_files]

    def publish(self) -> None:
        """Publish to the inbox; its lock must be held. Dedup keys first, so no message is without."""
        tx, recipient = self.tx, self.message.recipient
        # Another process may have sent it during the sync.
        self.earlier = self.earlier or self._find_earlier()
        if self.earlier is not None:
            tx.mark_unsynced(recipient)
            return
        quotas.admit(tx, recipient, self._bytes, enforce=self._enforce_quotas)
        if self._attached is not None:
            self._attached.publish(tx)
        for mark, draft in zip(self._dedup_keys, self._key_files, strict=True):
            tx.put(draft, tx.folder("keys", recipient, make=True), mark)
        for file in self._deadline_files:
            tx.put(file, tx.folder(DEADLINES, make=True), deadline_name(self.message))
        row = IndexRow(waiting_name(self.stem), 0, self.message.sender, self.message.priority)
        tx.publish(self._message_file, tx.folder("inbox", recipient), row.name, row)
        try:
            receipts.publish_first(tx, self._receipt_file, self.message.sender, self.message.id)
        except (OSError, SwitchboardError):
            pass  # `repair` restores the receipt.

    def finish(self) -> Sent:
        """Return the result."""
        recipient = self.message.recipient
        if self.earlier is not None:
            receipt = receipts.delivered_receipt(self.earlier.id, recipient, self.tx.clocks.iso())
            # The process that accepted it may have ended before it wrote the receipt.
            receipts.restore(self.tx, self.message.sender, receipt)
            return Sent(id=self.earlier.id, recipient=recipient, receipt=receipt, duplicate=True)
        return Sent(id=self.message.id, recipient=recipient, receipt=self._receipt)


def deadline_name(message: MailMessage) -> str:
    """Return the name of the record of a deadline: its time in milliseconds, the recipient and the id."""
    from datetime import (  # Few messages have a deadline, and hooks load this module at every turn.
        UTC,
        datetime,
    )

    due = datetime.fromisoformat(message.ack_by or "")
    try:
        at = max(0, int((due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() * 1000))
    except (OverflowError, ValueError):
        at = 0
    return f"{at:015d}.{message.recipient}.{message.id}"


def answer_rules(rules: Sequence[DeliveryRule]) -> list[DeliveryRule]:
    """Return the rules that apply to answers too."""
    return [rule for rule in rules if not getattr(rule, "skips_answers", False)]


def apply_rules(message: MailMessage, rules: Sequence[DeliveryRule]) -> MailMessage:
    """Apply the delivery rules and return the message they let through."""
    for rule in rules:
        passed = rule(message)
        if isinstance(passed, Failure):
            raise SwitchboardError(passed)
        # A rule may add a persona or a note, but not change the id, sender or recipient.
        message = msgspec.structs.replace(
            passed,
            id=message.id,
            sender=message.sender,
            recipient=message.recipient,
            metadata={**passed.metadata, "verified": message.verified},
        )
    return message


def dedup_keys(message: MailMessage, dropped_id: str = "") -> list[str]:
    """Return the names of the dedup key files for the idempotency key and the id of a dropped file."""
    key = message.metadata.get("idempotencyKey")
    # An unverified sender must not use up the keys of the real one.
    kind = "key" if message.verified else "dropped key"
    keys = [_dedup_key(kind, message.sender, key)] if isinstance(key, str) else []
    return [*keys, _dedup_key("id", "", dropped_id)] if dropped_id else keys


def _dedup_key(kind: str, sender: str, key: str) -> str:
    return blake2b(f"{kind}\n{sender}\n{key}".encode("utf-8", "replace"), digest_size=12).hexdigest()


def _tail(keys: list[str], dropped_id: str) -> str:
    if dropped_id:
        return "file-" + dropped_id.removeprefix("msg_")
    if keys:
        return f"key-{keys[0]}"
    return urandom(8).hex()


class AttachmentFile(msgspec.Struct):
    """The full payload, if it is too large for a message."""

    file: TempFile
    record: dict[str, object]
    name: str

    def publish(self, tx: Transaction) -> None:
        """Publish the file, replacing one with equal content: retention might be removing that one."""
        tx.put(self.file, tx.folder("attachments"), self.name)


def _attach(tx: Transaction, draft: Draft) -> tuple[Draft, AttachmentFile | None]:
    if draft.attachment is not None:
        return msgspec.structs.replace(draft, attachment=None), _attach_file(tx, draft.attachment)
    if len(draft.payload) * 4 <= MAX_PAYLOAD_BYTES:
        return draft, None
    try:
        data = draft.payload.encode()
    except UnicodeEncodeError:
        return draft, None  # Refused with a reason later.
    if len(data) <= MAX_PAYLOAD_BYTES:
        return draft, None
    _require_size(data, "The payload")
    record = _record(data, ".txt")
    name = str(record["file"]).removeprefix("attachments/")
    excerpt = f"{draft.payload[:EXCERPT_CHARS]}\n… (the whole text, {len(data)} bytes: .switchboard/attachments/{name})"
    short = msgspec.structs.replace(draft, payload=excerpt)
    return short, AttachmentFile(tx.write(data), record, name)


def _attach_file(tx: Transaction, file: FileAttachment) -> AttachmentFile:
    if not 0 < len(file.name) <= MAX_FILE_NAME or "/" in file.name or not file.name.isprintable():
        text = f"The name of an attachment must have 1 to {MAX_FILE_NAME} printable characters, without '/'."
        raise refused("mail_message_invalid", text)
    if not _MEDIA_TYPE.fullmatch(file.media_type):
        raise refused("mail_message_invalid", f"'{file.media_type[:80]}' is not a media type.")
    _require_size(file.data, f"'{file.name}'")
    record = _record(file.data, ".bin") | {"name": file.name, "mediaType": file.media_type}
    return AttachmentFile(tx.write(file.data), record, str(record["file"]).removeprefix("attachments/"))


def _record(data: bytes, suffix: str) -> dict[str, object]:
    digest = sha256(data).hexdigest()
    return {"file": f"attachments/{digest}{suffix}", "sha256": digest, "bytes": len(data)}


def _require_size(data: bytes, what: str) -> None:
    if len(data) > MAX_ATTACHMENT_BYTES:
        message = f"{what} has {len(data)} bytes. An attachment may have at most {MAX_ATTACHMENT_BYTES}."
        raise refused("mail_too_large", message)


def attachment_name(record: Mapping[str, object]) -> str:
    """Return the file name of an attachment in `attachments/`: text of a payload, or a file with a name of its own."""
    return f"{record.get('sha256')}{'.bin' if 'name' in record else '.txt'}"


def attachment(tx: Transaction, message: MailMessage) -> bytes:
    """Return the attachment of a message; without one, its payload."""
    record = message.metadata.get("attachment")
    if not isinstance(record, dict):
        return message.payload.encode()
    digest = str(record.get("sha256"))
    if len(digest) != 64 or not digest.isalnum():
        raise refused("mail_not_found", f"Message '{message.id}' has an invalid attachment hash.")
    content = file_operations.read(tx.folder("attachments"), attachment_name(record), MAX_ATTACHMENT_BYTES)
    if isinstance(content, file_operations.RejectedFile) or sha256(content.data).hexdigest() != digest:
        reason = (
            content.reason if isinstance(content, file_operations.RejectedFile) else "its content was changed"
        )
        raise refused("mail_not_found", f"The attachment of '{message.id}' is not available: {reason}.")
    return content.data
