"""Message and receipt types, as stored on disk.

The keys are those of the Switchboard Protocol. Additions of the store live in `metadata` under the keys in `RESERVED`,
so any program that knows the protocol can read a message:

| key of `metadata` | set by | meaning |
| --- | --- | --- |
| `priority` | the sender | `low`, `normal`, `high` or `urgent`; defaults to `normal` |
| `ackBy` | the sender | ISO 8601 time by which the sender expects an acknowledgement |
| `idempotencyKey` | the sender | two messages from one sender to one recipient with the same key are one message |
| `thread` | the store | id of the first message of the conversation; absent in that message itself |
| `attachment` | the store | `{"file", "sha256", "bytes"}`: the full payload, or, with `name` and `mediaType`, a file |
| `verified` | the store | true if the sender is known from its connection, false if only a dropped file claims it |
| `seal` | earlier versions | the signature of a message file |

`verified` is set by the store: in a message that was sent, and in `store.message_validation` for a dropped file. This
module is not aware of files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, get_args

from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.store.filenames import Outcome as Outcome
from switchboard_mcp.mail.store.filenames import Place

Action = Literal["delegate_task", "request_review", "submit_result", "status_update", "execute"]
Priority = Literal["low", "normal", "high", "urgent"]
# The first receipt is `delivered`, or `refused` for a rejected dropped file; the second gives the outcome.
Status = Literal["delivered", "refused", "done", "failed", "rejected", "recalled", "reassigned"]
# What the recipient of a message may settle it with.
AckOutcome = Literal["done", "failed", "rejected"]

ACTIONS: Final[tuple[str, ...]] = get_args(Action)
PRIORITIES: Final[tuple[str, ...]] = get_args(Priority)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
ACK_OUTCOMES: Final[tuple[AckOutcome, ...]] = get_args(AckOutcome)
RESERVED: Final = frozenset(
    {"priority", "ackBy", "idempotencyKey", "thread", "attachment", "verified", "seal"}
)

MAX_PAYLOAD_BYTES: Final = 1_048_576
MAX_ATTACHMENT_BYTES: Final = 67_108_864
MAX_METADATA_BYTES: Final = 65_536


class MailMessage(Struct, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message, as stored in its file."""

    id: str
    """`msg_<timestamp>_<random>`."""
    action: Action
    """Requested action."""
    sender: str
    """Name of the sending agent."""
    recipient: str
    """Name of the receiving agent."""
    payload: str
    """Task description, review content, result summary, and so on."""
    reply_to: str | None = None
    """Id of the message this one replies to."""
    metadata: dict[str, Any] = {}
    """Any further keys; some are reserved for the store."""
    team: str | None = None
    """Id of the team, if it was sent to one."""
    persona: str | None = None
    """Text for an agent in a role, added by the store."""
    created_at: str
    """ISO 8601 timestamp."""

    @property
    def priority(self) -> Priority:
        """Return the priority, `normal` unless the sender set a valid one."""
        priority = self.metadata.get("priority")
        return priority if priority in PRIORITIES else "normal"

    @property
    def ack_by(self) -> str | None:
        """Return the time by which the sender expects an acknowledgement."""
        ack_by = self.metadata.get("ackBy")
        return ack_by if isinstance(ack_by, str) else None

    @property
    def thread(self) -> str:
        """Return the id of the first message of the conversation."""
        thread = self.metadata.get("thread")
        return thread if isinstance(thread, str) else self.id

    @property
    def subject(self) -> str:
        """Return the subject line; empty if there is none."""
        subject = self.metadata.get("subject")
        return subject if isinstance(subject, str) else ""

    @property
    def verified(self) -> bool:
        """Return True if the sender was known from its connection. Only valid for messages returned by the store."""
        return self.metadata.get("verified") is True

    @property
    def unique_key(self) -> str:
        """Return a key unique in the workspace: dropped files to several agents may share an id."""
        return f"{self.id} to {self.recipient}"


class Receipt(Struct, rename="camel", kw_only=True):
    """Reports to the sender what happened to a message: one on delivery, another with the outcome."""

    id: str
    """`receipt_<message-id>`."""
    in_reply_to: str
    """Id of the message."""
    status: Status
    """`delivered` when the message is stored, `refused` if a dropped file was rejected; later the outcome."""
    summary: str
    """The status in a sentence."""
    processed_at: str
    """ISO 8601 timestamp."""
    error: str | None = None
    """The problem, if any."""
    recipient: str | UnsetType = UNSET
    """Name of the receiving agent; missing in receipts of earlier versions."""


class FileAttachment(Struct, kw_only=True):
    """A file to send with a message."""

    name: str
    media_type: str = "application/octet-stream"
    data: bytes


class Draft(Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A message to send. The sender's identity is not part of it."""

    action: Action
    payload: str
    reply_to: str | None = None
    priority: Priority = "normal"
    ack_by: str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] = {}
    team: str | None = None
    thread: str | None = None
    """Id of the first message of the conversation. The caller has made sure that the sender takes part in it."""
    attachment: FileAttachment | None = None
    answers: bool = False
    """True if it answers a message of its recipient, or represents one that was accepted: contact rules do not
    apply."""


class Sent(Struct, rename="camel", kw_only=True):
    """Result of `send`: the message is durable."""

    id: str
    recipient: str
    receipt: Receipt
    duplicate: bool = False
    """True if an earlier message had the same idempotency key; `id` is that message's id."""


class StoredMessage(Struct, rename="camel", kw_only=True):
    """A message and its current place."""

    message: MailMessage
    place: Place
    order: int
    """Grows with every message of the workspace; compared with `after`."""
    verified: bool
    outcome: Outcome | None = None
    """The outcome, for a settled message."""
    reason: str | None = None
    """The reason, for a dead letter."""


class Unread(Struct):
    """Unread mail of an agent: its number, the first messages, and the order number of the newest."""

    count: int = 0
    messages: list[StoredMessage] = []
    newest: int = 0

    @property
    def fingerprint(self) -> str:
        """Return a text that changes with the unread mail."""
        return f"{self.count} {self.newest}"


class Claimed(Struct, rename="camel", kw_only=True):
    """A message leased to the claimer until `expires_at`."""

    message: MailMessage
    order: int
    fence: int
    """Fencing token: grows with every claim. Pass it to `ack` and to any system that must not act twice."""
    expires_at: str
    lease_seconds: float
    verified: bool
    deliveries: int = 1
    """Number of claims including this one; above 1, an earlier claimer did not settle the message."""


class DeadLetter(Struct, rename="camel", kw_only=True):
    """A dead letter with its reason."""

    agent: str
    id: str
    """The message's id, or the file name if it never was a message."""
    file: str
    reason: str = ""
    at: str = ""
    message: MailMessage | None = None
    """The message, if it can be read."""


class Acked(Struct, rename="camel", kw_only=True):
    """Result of `ack`."""

    id: str
    outcome: Outcome
    receipt: Receipt
    result: Sent | None = None
    """The `submit_result` message sent to the sender."""


class Delivery(Struct, rename="camel", kw_only=True):
    """Reports that a dropped file was delivered or rejected, or that a message became a dead letter."""

    agent: str
    file: str
    id: str | None = None
    sender: str | None = None
    problem: Failure | None = None
    """None if delivered, else the reason it is a dead letter."""


class SharedState(Protocol):
    """The state of the workspace, as the transaction that accepts a message sees it."""

    def section(self, kind: str) -> dict[str, bytes]:
        """Return the encoded entries of a section by name."""

    def update(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the state in the same transaction."""


# Checks every message before it is accepted, sent or dropped (`message.verified` says which). Returns the message to
# store, or a failure. Runs in the writer thread: it may read files but must be quick.
DeliveryRule = Callable[[MailMessage, SharedState], "MailMessage | Failure"]
