"""News about a claimed message while it is worked on: the lease is renewed, and its sender may get a note or a
question.

At most one note of a task waits unread: a later one takes its place.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Claimed, Draft, MailMessage, Sent
from switchboard_mcp.mail.store.store import MessageStore

TaskState = Literal["working", "input-required"]
# A question may wait for a person.
LEASE_S: dict[TaskState, float] = {"working": 300.0, "input-required": 86_400.0}


class Progress(Struct, kw_only=True):
    """Result of `report`."""

    claimed: Claimed
    note: Sent | None = None


async def report(
    store: MessageStore,
    agent: str,
    message_id: str,
    *,
    fence: int,
    state: TaskState = "working",
    note: str = "",
    lease_s: float = 0.0,
    earlier: str = "",
    verified: bool = True,
) -> Progress:
    """Renew the claim on a message and send `note` to its sender. Raises `mail_lease_lost`.

    `earlier` is the id of the note before; it is taken back if nobody has read it.
    """
    claimed = await store.renew(agent, message_id, fence=fence, lease_s=lease_s or LEASE_S[state])
    if not note and state == "working":
        return Progress(claimed=claimed)
    message = claimed.message
    if earlier:
        try:
            await store.withdraw(message.sender, earlier, outcome="recalled", sender=agent)
        except SwitchboardError:
            pass  # It was read.
    draft = note_about(message, state, note)
    sent = await store.send(draft, sender=agent, recipient=message.sender, verified=verified)
    return Progress(claimed=claimed, note=sent)


def note_about(message: MailMessage, state: TaskState, note: str) -> Draft:
    """Return the note or question about a message, for its sender."""
    text = note or "Your answer is needed."
    subject = {"subject": message.subject} if message.subject else {}
    return Draft(
        action="status_update",
        payload=text,
        reply_to=message.id,
        priority="high" if state == "input-required" else "normal",
        thread=message.thread,
        team=message.team,
        metadata={**subject, "state": state},
        answers=True,
    )
