"""Accepts a message into an inbox: dedup, delivery rules, quotas, then two rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b, sha256
from os import urandom
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import (
    MAX_ATTACHMENT_BYTES,
    MAX_PAYLOAD_BYTES,
    DeliveryRule,
    Draft,
    FileAttachment,
    MailMessage,
    Sent,
    SharedState,
)
from switchboard_mcp.mail.store import rows, state_documents
from switchboard_mcp.mail.store.filenames import ORDER_DIGITS
from switchboard_mcp.mail.store.mail_tables import RANKS
from switchboard_mcp.mail.store.rows import MessageRow
from switchboard_mcp.mail.store.usage import MailQuotas, count_stored, require_room

# Part of a long payload repeated in the message, for readers that only look there.
EXCERPT_CHARS = 2_000
MAX_FILE_NAME = 200
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")
_INSERT = (
    "INSERT INTO message (ord, id, sender, recipient, rank, sent_at, dedup, thread, ack_by, verified, by_file, size,"
    " sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class DeliveryPolicy(Struct, frozen=True):
    """What every message must pass: the quotas and the rules of the workspace."""

    rules: Sequence[DeliveryRule] = ()
    quotas: MailQuotas = MailQuotas()


class OutgoingMessage:
    """A message to store, with an identity of its own from the beginning, so that storing it may be repeated."""

    def __init__(
        self,
        message: MailMessage,
        policy: DeliveryPolicy,
        *,
        is_answer: bool = False,
        enforce_quotas: bool = True,
        by_file: bool = False,
    ) -> None:
        """Initialize. The id of a message `by_file` is kept; any other gets one with its order."""
        self.message = message
        self._policy = policy
        self._is_answer = is_answer
        self._enforce_quotas = enforce_quotas
        self._by_file = by_file
        self._tail = urandom(8).hex()
        self._order = 0

    def store(self, tx: Transaction) -> Sent:
        """Store the message. Raises the failure of a rule, or `mail_quota`, before anything has changed."""
        message = self.message
        if tx.is_repeated and self._order:
            row = rows.find(tx, message.recipient, message.id)
            if row is not None and row.order == self._order:
                return _sent(row, duplicate=False)
        key = dedup_key(message)
        earlier = self._find_earlier(tx, key)
        if earlier is not None:
            return _sent(earlier, duplicate=True)
        if self._enforce_quotas:
            # Before the rules, which may change the state: the refusal of a dropped file is committed.
            expected = len(rows.encode(message)) + attached_bytes(message)
            require_room(tx, message.recipient, expected, self._policy.quotas)
        # A retry of an accepted message succeeds even if the rules have changed since.
        message = apply_rules(message, self._policy.rules, _StateOf(tx), is_answer=self._is_answer)
        order = self._order = rows.next_order(tx)
        if not self._by_file:
            self.message.id = message.id = f"msg_{order:0{ORDER_DIGITS}d}_{self._tail}"
        body = rows.encode(message)
        size = len(body) + attached_bytes(message)
        return _sent(self._insert(tx, message, body, size, key), duplicate=False)

    def _find_earlier(self, tx: Transaction, key: str | None) -> MessageRow | None:
        if key is not None:
            row = tx.row(
                f"SELECT {rows.COLUMNS} FROM message WHERE recipient = ? AND sender = ? AND dedup = ?",
                self.message.recipient,
                self.message.sender,
                key,
            )
            if row is not None:
                return rows.row_of(row)
        earlier = rows.find(tx, self.message.recipient, self.message.id) if self._by_file else None
        if earlier is not None and not tx.rows(
            "SELECT 1 FROM message WHERE ord = ? AND by_file = 1", earlier.order
        ):
            text = f"Message id '{earlier.id}' is already used by another message to '{earlier.recipient}'."
            raise refused("mail_message_invalid", text, hint="Give the copy an id of its own.")
        return earlier

    def _insert(
        self, tx: Transaction, message: MailMessage, body: str, size: int, key: str | None
    ) -> MessageRow:
        total, now, thread = rows.checksum(body), rows.now_ms(tx), _thread_of(tx, message)
        tx.run(
            _INSERT,
            self._order,
            message.id,
            message.sender,
            message.recipient,
            RANKS[message.priority],
            now,
            key,
            thread,
            rows.time_ms(message.ack_by) if message.ack_by else None,
            int(message.verified),
            int(self._by_file),
            size,
            total,
        )
        insert_body(tx, self._order, message, body)
        count_stored(tx, message.recipient, size)
        tx.topics.update((f"inbox.{message.recipient}", f"outbox.{message.sender}"))
        return MessageRow(
            self._order,
            message.id,
            message.sender,
            message.recipient,
            "inbox",
            0,
            0,
            None,
            None,
            now,
            None,
            int(message.verified),
            size,
            total,
            thread,
        )


def _thread_of(tx: Transaction, message: MailMessage) -> str:
    """Return the thread of a message. A reply that names none, as files of agents do, is in that of what it answers."""
    if message.reply_to and message.thread == message.id:
        for agent in (message.sender, message.recipient):
            answered = rows.find(tx, agent, message.reply_to)
            if answered is not None:
                return answered.thread
    return message.thread


def insert_body(tx: Transaction, order: int, message: MailMessage, body: str) -> None:
    """Store the text of a message, with its words where the engine indexes them at once."""
    if tx.dialect == "postgresql":
        tx.run(
            "INSERT INTO body (ord, body, words) VALUES (?, ?, to_tsvector('simple', ?))",
            order,
            body,
            searched_text(message),
        )
    else:
        tx.run("INSERT INTO body (ord, body) VALUES (?, ?)", order, body)
    record = message.metadata.get("attachment")
    if isinstance(record, dict):
        tx.run(
            "INSERT INTO attached (sha, ord) VALUES (?, ?) ON CONFLICT DO NOTHING",
            str(record["sha256"]),
            order,
        )


# PostgreSQL refuses more than a megabyte of words.
MAX_SEARCHED_CHARS = 200_000


def searched_text(message: MailMessage) -> str:
    """Return the words by which a message is found; the first is its recipient, in a form that no text has."""
    text = f"{message.sender} {message.action} {message.subject} {message.payload}"[:MAX_SEARCHED_CHARS]
    return rows.clean(f"{recipient_word(message.recipient)} {text}")


def recipient_word(agent: str) -> str:
    """Return a word that stands for a recipient.

    >>> recipient_word("coder-1")
    'to636f6465722d31'
    """
    return f"to{agent.encode().hex()}"


def _sent(row: MessageRow, *, duplicate: bool) -> Sent:
    return Sent(id=row.id, recipient=row.recipient, receipt=rows.delivered_receipt(row), duplicate=duplicate)


def dedup_key(message: MailMessage) -> str | None:
    """Return the key under which a message is stored once; None without one."""
    key = message.metadata.get("idempotencyKey")
    if not isinstance(key, str):
        return None
    # An unverified sender must not use up the keys of the real one.
    kind = "key" if message.verified else "dropped key"
    return blake2b(f"{kind}\n{key}".encode("utf-8", "replace"), digest_size=12).hexdigest()


class _StateOf(Struct):
    """The state as a transaction sees it."""

    tx: Transaction

    def section(self, kind: str) -> dict[str, bytes]:
        """Return the encoded entries of a section by name."""
        return state_documents.section(self.tx, kind)

    def update(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the state in the same transaction."""
        state_documents.update(self.tx, change)


def apply_rules(
    message: MailMessage, rules: Sequence[DeliveryRule], state: SharedState, *, is_answer: bool
) -> MailMessage:
    """Return the message that the rules let through. Raises the failure of the first that does not."""
    for rule in rules:
        if is_answer and getattr(rule, "skips_answers", False):
            continue
        passed = rule(message, state)
        if isinstance(passed, Failure):
            raise SwitchboardError(passed)
        # A rule may add a persona or a note, but not change the id, sender or recipient.
        message = replace(
            passed,
            id=message.id,
            sender=message.sender,
            recipient=message.recipient,
            metadata={**passed.metadata, "verified": message.verified},
        )
    return message


def attached_bytes(message: MailMessage) -> int:
    """Return the size of the attachment of a message."""
    record = message.metadata.get("attachment")
    size = record.get("bytes") if isinstance(record, dict) else 0
    return size if isinstance(size, int) else 0


class Attachment(Struct, frozen=True):
    """A file that belongs to a message, and its record in the metadata."""

    name: str
    data: bytes
    record: dict[str, object]


def attachment_of(draft: Draft) -> tuple[Draft, Attachment | None]:
    """Return the draft to send, and the attachment of a file or of a payload that is too long."""
    if draft.attachment is not None:
        return replace(draft, attachment=None), _attach_file(draft.attachment)
    if len(draft.payload) * 4 <= MAX_PAYLOAD_BYTES:
        return draft, None
    try:
        data = draft.payload.encode()
    except UnicodeEncodeError:
        return draft, None  # Refused with a reason later.
    if len(data) <= MAX_PAYLOAD_BYTES:
        return draft, None
    attachment = _attachment(data, ".txt", "The payload", {})
    excerpt = (
        f"{draft.payload[:EXCERPT_CHARS]}\n… (the whole text, {len(data)} bytes:"
        f" .switchboard/attachments/{attachment.name})"
    )
    return replace(draft, payload=excerpt), attachment


def _attach_file(file: FileAttachment) -> Attachment:
    if not 0 < len(file.name) <= MAX_FILE_NAME or "/" in file.name or not file.name.isprintable():
        text = f"The name of an attachment must have 1 to {MAX_FILE_NAME} printable characters, without '/'."
        raise refused("mail_message_invalid", text)
    if not _MEDIA_TYPE.fullmatch(file.media_type):
        raise refused("mail_message_invalid", f"'{file.media_type[:80]}' is not a media type.")
    return _attachment(file.data, ".bin", f"'{file.name}'", {"name": file.name, "mediaType": file.media_type})


def _attachment(data: bytes, suffix: str, what: str, more: dict[str, object]) -> Attachment:
    if len(data) > MAX_ATTACHMENT_BYTES:
        message = f"{what} has {len(data)} bytes. An attachment may have at most {MAX_ATTACHMENT_BYTES}."
        raise refused("mail_too_large", message)
    digest = sha256(data).hexdigest()
    name = f"{digest}{suffix}"
    return Attachment(
        name, data, {"file": f"attachments/{name}", "sha256": digest, "bytes": len(data)} | more
    )
