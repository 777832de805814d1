"""Who may work on a message: claims with a lease, and how they end.

A claim is a rename into `claimed/`, and the new name is the lease. Its number, the fence, is higher than that of every
claim before; whoever comes with another one has lost the message. Owns these moves; does not know hosts or tools.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail.messages import Acked, Claimed, Delivery, Draft, Gate, MailMessage, Outcome
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    dead_letters,
    file_operations,
    message_lookup,
    message_validation,
    receipts,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.dropped_files import Inbox
from switchboard_mcp.mail.store.filenames import (
    MOST_RETURNS,
    Lease,
    MessageFile,
    claimed_name,
    lease_until,
    receipt_name,
    settled_name,
    waiting_name,
)
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.maintenance import cleanup
from switchboard_mcp.mail.store.ordering import QueuedPosition, claim_order
from switchboard_mcp.mail.store.sending import OutgoingMessage

MOST_LEASE_S = 86_400.0
# Claims that others ended are never taken from the hints, which must not grow for ever by them.
MOST_HELD = 100_000


class AckRequest(msgspec.Struct, kw_only=True):
    """How a message ends, as the claimer says."""

    fence: int
    outcome: Outcome
    summary: str
    result: str | None


def in_turn(inbox: Inbox) -> list[MessageFile]:
    """What waits, in the order it is to be claimed."""
    waiting = inbox.waiting
    if all(each.priority == "normal" for each in waiting):
        return [each.entry for each in waiting]
    turns = claim_order(
        [QueuedPosition(each.entry.stem.order, each.sender, each.priority) for each in waiting]
    )
    return [waiting[place].entry for place in turns]


def claim(
    visit: Transaction, agent: str, inbox: Inbox, most: int, lease_s: float, ids: frozenset[str] | None
) -> list[Claimed]:
    """Take what is next. A claim need not be on the disk: after a power cut nobody holds anything."""
    wanted = [entry for entry in in_turn(inbox) if ids is None or entry.stem.id in ids][: max(0, most)]
    if not wanted:
        return []
    source, target = visit.folder("inbox", agent), visit.folder("claimed", agent, make=True)
    taken: list[Claimed] = []
    with visit.locked(agent):
        for entry in wanted:
            lease = lease_until(visit.number(), visit.clocks.now(), _ms(lease_s))
            name = claimed_name(entry.stem, lease, entry.returns)
            try:
                visit.move(source, entry.name, target, name)
            except FileNotFoundError:
                continue  # Another one of this agent's programs was quicker.
            held = entry._replace(place="claimed", name=name, lease=lease, fence=lease.fence)
            found = message_lookup.read(visit, agent, held)
            if isinstance(found, file_operations.RejectedFile) or found.id != entry.stem.id:
                # It was changed since it was looked at: back, where it is looked at again as a dropped file.
                visit.move(target, name, source, entry.name)
                continue
            if len(visit.tree.held) >= MOST_HELD:
                visit.tree.held.clear()
            visit.tree.held[agent, entry.stem.id] = held
            taken.append(_claimed(visit, found, held, lease, lease_s))
    return taken


def give_back_expired(visit: Transaction, agent: str) -> tuple[list[str], list[Delivery]]:
    """Return what was claimed and not settled in time, or make it a dead letter where that came too often.

    Answers with the ids of the former, and with the latter.
    """
    now = visit.clocks.now()
    over = [
        e
        for e in message_lookup.entries(visit, "claimed", agent)
        if e.lease is not None and e.lease.is_over(now)
    ]
    if not over:
        return [], []
    again = [entry for entry in over if entry.returns < MOST_RETURNS]
    with visit.locked(agent):
        if any(file_operations.links(visit.folder("claimed", agent), entry.name) > 1 for entry in over):
            # Whoever settled one was killed between two steps: it must not come back.
            cleanup.mend_half_moves(visit, agent)
        moved = [entry.stem.id for entry in again if _give_back(visit, agent, entry, entry.returns + 1)]
    problem = failure("mail_lease_lost", f"It was claimed {MOST_RETURNS + 1} times and never settled.")
    dead = [
        Delivery(agent=agent, file=entry.name, id=entry.stem.id, problem=problem)
        for entry in over
        if entry not in again and dead_letters.bury(visit, agent, entry, "failed", problem)
    ]
    return moved, dead


def _give_back(visit: Transaction, agent: str, entry: MessageFile, returns: int) -> bool:
    source, target = visit.folder("claimed", agent), visit.folder("inbox", agent, make=True)
    try:
        visit.move(source, entry.name, target, waiting_name(entry.stem, returns))
    except FileNotFoundError:
        return False  # Settled or renewed in this very moment.
    visit.tree.held.pop((agent, entry.stem.id), None)
    return True


def release(visit: Transaction, agent: str, message_id: str, fence: int) -> None:
    """Put a claimed message back. Who says so has not failed, so that it does not count."""
    with visit.locked(agent):
        entry = _held(visit, agent, message_id, fence)
        if not _give_back(visit, agent, entry, entry.returns):
            raise lost(message_id)


def renew(visit: Transaction, agent: str, message_id: str, fence: int, lease_s: float) -> Claimed:
    """Hold it longer."""
    with visit.locked(agent):
        entry = _held(visit, agent, message_id, fence)
        folder = visit.folder("claimed", agent)
        lease = lease_until(entry.fence, visit.clocks.now(), _ms(lease_s))
        name = claimed_name(entry.stem, lease, entry.returns)
        if name != entry.name:
            visit.move(folder, entry.name, folder, name)
        held = visit.tree.held[agent, message_id] = entry._replace(name=name, lease=lease)
        found = message_lookup.read(visit, agent, held)
    if isinstance(found, file_operations.RejectedFile):
        raise lost(message_id)
    return _claimed(visit, found, held, lease, lease_s)


def _held(visit: Transaction, agent: str, message_id: str, fence: int) -> MessageFile:
    entry = message_lookup.find(visit, agent, message_id, ("claimed",))
    if entry is None or (fence and entry.fence != fence):
        raise lost(message_id)
    return entry


def lost(message_id: str) -> SwitchboardError:
    """The message is not, or no longer, held with this fence."""
    told = f"The claim on '{message_id}' has ended: it expired, was settled, or another claim came after it."
    return refused("mail_lease_lost", told)


def ack(
    visit: Transaction, agent: str, message_id: str, how: AckRequest, gates: Sequence[Gate]
) -> Job[Acked]:
    """Settle a message, and send its result back."""
    entry = _to_settle(visit, agent, message_id, how)
    if entry.place in ("archive", "deadletter"):
        return (yield from _again(visit, agent, entry, how))
    message = message_lookup.read(visit, agent, entry)
    if isinstance(message, file_operations.RejectedFile):
        raise lost(message_id)
    reply = _reply(visit, agent, message, how, gates)
    receipt = receipts.ended(message, how.outcome, how.summary, visit.clocks.iso())
    draft = visit.write(receipts.encoded(receipt))
    reason = None
    if how.outcome == "rejected":
        problem = failure("mail_message_invalid", how.summary or f"'{agent}' rejected it.")
        reason = visit.write(dead_letter_reasons.encoded(visit, entry.name, problem))
    yield [draft, *(reply.write() if reply else []), *([reason] if reason else [])]
    with visit.locked(agent, *([message.sender] if reply else [])):
        if not file_operations.exists(visit.folder(entry.place, agent), entry.name):
            raise lost(message_id)
        if reply is not None:
            reply.publish()
        if reason is not None:
            visit.put(
                reason,
                visit.folder("deadletter", agent, make=True),
                f"{entry.stem}{dead_letter_reasons.SUFFIX}",
            )
        _settle(visit, agent, entry, how)
    yield None
    try:
        visit.publish(
            draft, visit.folder("outbox", message.sender, make=True), receipt_name(message_id, how.outcome)
        )
    except (OSError, SwitchboardError):
        pass  # What counts is in the archive; `repair` writes the receipt where it is missing.
    sent = reply.finish() if reply is not None else None
    return Acked(id=message_id, outcome=how.outcome, receipt=receipt, result=sent)


def _settle(visit: Transaction, agent: str, entry: MessageFile, how: AckRequest) -> None:
    place = "deadletter" if how.outcome == "rejected" else "archive"
    name = settled_name(entry.stem, entry.fence or visit.number(), how.outcome)
    visit.move(visit.folder(entry.place, agent), entry.name, visit.folder(place, agent, make=True), name)
    visit.tree.held.pop((agent, entry.stem.id), None)


def _to_settle(visit: Transaction, agent: str, message_id: str, how: AckRequest) -> MessageFile:
    entry = message_lookup.find(visit, agent, message_id)
    if entry is None:
        raise refused("mail_not_found", f"'{agent}' has no message '{message_id}'.")
    if entry.place == "shipped":
        message_lookup.demand_here(visit, agent)
        raise lost(message_id)
    # What ended otherwise, or by another claim, is not this claimer's any more.
    ended_so = entry.place in ("inbox", "claimed") or entry.outcome == how.outcome
    if not ended_so or how.fence not in (0, entry.fence):
        raise lost(message_id)
    return entry


def _again(visit: Transaction, agent: str, entry: MessageFile, how: AckRequest) -> Job[Acked]:
    """The same acknowledgement once more: whoever sent it did not hear the first answer."""
    found = message_lookup.read(visit, agent, entry)
    if isinstance(found, file_operations.RejectedFile):
        raise lost(entry.stem.id)
    visit.doubt(agent)
    yield None
    return Acked(
        id=entry.stem.id,
        outcome=how.outcome,
        receipt=receipts.ended(found, how.outcome, how.summary, visit.clocks.iso()),
    )


def _reply(
    visit: Transaction, agent: str, message: MailMessage, how: AckRequest, gates: Sequence[Gate]
) -> OutgoingMessage | None:
    if how.result is None:
        return None
    visit.folder("inbox", message.sender, make=True)
    draft = Draft(
        action="submit_result",
        payload=how.result,
        reply_to=message.id,
        metadata={"outcome": how.outcome},
        team=message.team,
        # So that a claim that is settled twice, since a crash came in between, has one result.
        idempotency_key=f"result of {message.id} {how.fence}" if how.fence else None,
    )
    reply = message_validation.from_draft(draft, agent, message.sender, visit.clocks.iso())
    if isinstance(reply, Failure):
        raise SwitchboardError(reply)
    return OutgoingMessage(visit, reply, gates)


def _ms(lease_s: float) -> int:
    return int(max(0.001, min(lease_s, MOST_LEASE_S)) * 1000)


def _claimed(
    visit: Transaction, message: MailMessage, held: MessageFile, lease: Lease, lease_s: float
) -> Claimed:
    return Claimed(
        message=message,
        order=held.stem.order,
        fence=lease.fence,
        expires_at=visit.clocks.iso(lease.clock),
        lease_seconds=min(lease_s, MOST_LEASE_S),
        verified=message.verified,
        deliveries=held.returns + 1,
    )
