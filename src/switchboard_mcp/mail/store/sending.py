"""Accepts a message into an inbox, sent or dropped.

The order of steps guarantees durability: sync the content, publish the name without overwriting, sync the folder,
answer. Not aware of callers or of how jobs share syncs.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256
from os import urandom

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import (
    MAX_ATTACHMENT_BYTES,
    MAX_PAYLOAD_BYTES,
    DeliveryRule,
    Draft,
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


def send(
    tx: Transaction,
    draft: Draft,
    sender: str,
    recipient: str,
    rules: Sequence[DeliveryRule],
    *,
    verified: bool = True,
) -> Job[Sent]:
    """Send one message. `verified` means that the sender is authenticated."""
    sender = message_lookup.parse_agent_name(sender)
    recipient = message_lookup.require_agent(tx, recipient)
    draft, attached = _attach(tx, draft)
    message = message_validation.from_draft(draft, sender, recipient, tx.clocks.iso())
    if isinstance(message, Failure):
        raise SwitchboardError(message)
    message.metadata["verified"] = verified
    if attached is not None:
        message.metadata["attachment"] = attached.record
    outgoing = OutgoingMessage(tx, message, rules, attached=attached)
    yield outgoing.write()
    with tx.locked(recipient):
        outgoing.publish()
    yield None
    return outgoing.finish()


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
        return [self._message_file, self._receipt_file, *self._key_files, *attachment_files]

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
    if len(draft.payload) * 4 <= MAX_PAYLOAD_BYTES:
        return draft, None
    try:
        data = draft.payload.encode()
    except UnicodeEncodeError:
        return draft, None  # Refused with a reason later.
    if len(data) <= MAX_PAYLOAD_BYTES:
        return draft, None
    if len(data) > MAX_ATTACHMENT_BYTES:
        message = f"The payload has {len(data)} bytes. An attachment may have at most {MAX_ATTACHMENT_BYTES}."
        raise refused("mail_too_large", message)
    digest = sha256(data).hexdigest()
    name = f"{digest}.txt"
    record: dict[str, object] = {"file": f"attachments/{name}", "sha256": digest, "bytes": len(data)}
    excerpt = f"{draft.payload[:EXCERPT_CHARS]}\n… (the whole text, {len(data)} bytes: .switchboard/attachments/{name})"
    short = msgspec.structs.replace(draft, payload=excerpt)
    return short, AttachmentFile(tx.write(data), record, name)


def attachment(tx: Transaction, message: MailMessage) -> bytes:
    """Return the full payload of a message."""
    record = message.metadata.get("attachment")
    if not isinstance(record, dict):
        return message.payload.encode()
    digest = str(record.get("sha256"))
    if len(digest) != 64 or not digest.isalnum():
        raise refused("mail_not_found", f"Message '{message.id}' has an invalid attachment hash.")
    content = file_operations.read(tx.folder("attachments"), f"{digest}.txt", MAX_ATTACHMENT_BYTES)
    if isinstance(content, file_operations.RejectedFile) or sha256(content.data).hexdigest() != digest:
        reason = (
            content.reason if isinstance(content, file_operations.RejectedFile) else "its content was changed"
        )
        raise refused("mail_not_found", f"The attachment of '{message.id}' is not available: {reason}.")
    return content.data
