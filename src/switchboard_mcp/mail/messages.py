"""What is written on the files of the desk: messages and receipts, and what may stand in them.

The keys are those of the Switchboard Protocol. What the desk adds stands in `metadata`, under the reserved keys in
`RESERVED`; so a message is read by everybody who knows the protocol, and the additions by who knows them too:

| key of `metadata` | set by | meaning |
| --- | --- | --- |
| `priority` | the sender | `low`, `normal`, `high` or `urgent`; `normal` where missing |
| `ackBy` | the sender | ISO 8601; when the sender expects an acknowledgement |
| `idempotencyKey` | the sender | two messages of one sender to one recipient with the same key are one message |
| `attachment` | the desk | `{"file", "sha256", "bytes"}`: where the whole payload is; `payload` has its beginning |
| `verified` | the desk | whether the sender was known by its connection, or only by what a dropped file says |
| `seal` | the desk | a keyed hash over everything else; a file without a right one has not been delivered yet |

Owns the shapes and what they may hold. Does not know files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.store.filenames import Outcome as Outcome
from switchboard_mcp.mail.store.filenames import Place

Action = Literal["delegate_task", "request_review", "submit_result", "status_update", "execute"]
Priority = Literal["low", "normal", "high", "urgent"]
# The first receipt says `delivered`, or `refused` for a dropped file that was not taken; the second, how it ended.
Status = Literal["delivered", "refused", "done", "failed", "rejected"]

ACTIONS: Final[tuple[str, ...]] = get_args(Action)
PRIORITIES: Final[tuple[str, ...]] = get_args(Priority)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
RESERVED: Final = frozenset({"priority", "ackBy", "idempotencyKey", "attachment", "verified", "seal"})

MAX_PAYLOAD_BYTES: Final = 1_048_576
MAX_ATTACHMENT_BYTES: Final = 67_108_864
MAX_METADATA_BYTES: Final = 65_536


class MailMessage(Struct, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One message, as its file has it."""

    id: str
    """`msg_<timestamp>_<random>`."""
    action: Action
    """What is asked of the recipient."""
    sender: str
    """Name of the agent who sends."""
    recipient: str
    """Name of the agent who is to read it."""
    payload: str
    """Task description, review content, result summary, and so on."""
    reply_to: str | None = None
    """Id of the message this one answers."""
    metadata: dict[str, Any] = {}
    """Any further keys; some are reserved for the desk."""
    team: str | None = None
    """Id of the team, where it was sent to one."""
    persona: str | None = None
    """Text for an agent in a role, put there by the desk."""
    created_at: str
    """ISO 8601 timestamp."""

    @property
    def priority(self) -> Priority:
        """How urgent the sender says it is."""
        priority = self.metadata.get("priority")
        return priority if priority in PRIORITIES else "normal"

    @property
    def ack_by(self) -> str | None:
        """When the sender expects an acknowledgement."""
        ack_by = self.metadata.get("ackBy")
        return ack_by if isinstance(ack_by, str) else None

    @property
    def verified(self) -> bool:
        """Whether the sender was known by its connection. Only what the desk hands out can be asked."""
        return self.metadata.get("verified") is True

    @property
    def unique_key(self) -> str:
        """Which letter it is among all: dropped files to several agents may have one id."""
        return f"{self.id} to {self.recipient}"


class Receipt(Struct, rename="camel", kw_only=True):
    """What became of a message, for its sender: one when it is delivered, another when it has ended."""

    id: str
    """`receipt_<message-id>`."""
    in_reply_to: str
    """Id of the message."""
    status: Status
    """`delivered` when the message is stored, `refused` when a dropped one was not taken; then how it ended."""
    summary: str
    """The same in a sentence."""
    processed_at: str
    """ISO 8601 timestamp."""
    error: str | None = None
    """What was wrong, where something was."""


class Draft(Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What a sender says; who it is comes from elsewhere."""

    action: Action
    payload: str
    reply_to: str | None = None
    priority: Priority = "normal"
    ack_by: str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] = {}
    team: str | None = None


class Sent(Struct, rename="camel", kw_only=True):
    """The message is stored; whatever happens now, it stays."""

    id: str
    recipient: str
    receipt: Receipt
    duplicate: bool = False
    """An earlier message with the same idempotency key was found, and `id` is its."""


class StoredMessage(Struct, rename="camel", kw_only=True):
    """A message where it was found."""

    message: MailMessage
    place: Place
    order: int
    """Grows with every message of the workspace: what `after` compares."""
    verified: bool
    outcome: str | None = None
    """How it ended, for one in the archive that was acknowledged."""
    reason: str | None = None
    """Why it is a dead letter."""


class Claimed(Struct, rename="camel", kw_only=True):
    """A message that is the claimer's until `expires_at`."""

    message: MailMessage
    order: int
    fence: int
    """Grows with every claim. Hand it on to whatever must not be done twice, and to `ack`."""
    expires_at: str
    lease_seconds: float
    verified: bool
    deliveries: int = 1
    """How often it was claimed, this time included: more than once, and somebody has not settled it."""


class DeadLetter(Struct, rename="camel", kw_only=True):
    """A dead letter."""

    agent: str
    id: str
    """The message's id; of what never was a message, the name of its file."""
    file: str
    reason: str = ""
    at: str = ""
    message: MailMessage | None = None
    """Where it is one that can be read."""


class Acked(Struct, rename="camel", kw_only=True):
    """The message is settled."""

    id: str
    outcome: Outcome
    receipt: Receipt
    result: Sent | None = None
    """The `submit_result` that went back to the sender."""


class Delivery(Struct, rename="camel", kw_only=True):
    """What became of a file that somebody put into an inbox, or of a message that nobody settled."""

    agent: str
    file: str
    id: str | None = None
    sender: str | None = None
    problem: Failure | None = None
    """None: it was delivered. Else it is a dead letter, and this says why."""


# Looks at every message before it is accepted, sent or dropped (`message.verified` tells which). It returns the
# message as it shall be stored, or why it may not be. Runs in the writer's thread: it may read files and is quick.
DeliveryRule = Callable[[MailMessage], "MailMessage | Failure"]
