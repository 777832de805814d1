"""Claims: exclusive leases on messages, and how they end.

A claim is a rename into `claimed/`, and the new name is the lease. Its number, the fence, is higher than that of any
earlier claim; a claimer with an older fence has lost the message. Not aware of hosts or tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from switchboard_mcp.config.agent_names import SYSTEM
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail.messages import Acked, Claimed, Delivery, DeliveryRule, Draft, MailMessage, Outcome
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    dead_letters,
    dropped_files,
    file_operations,
    message_lookup,
    message_validation,
    quotas,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.dropped_files import Inbox
from switchboard_mcp.mail.store.filenames import (
    MAX_RETURNS,
    Lease,
    MessageFile,
    claimed_name,
    new_lease,
    receipt_name,
    settled_name,
    waiting_name,
)
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.index.inbox_index import IndexRow
from switchboard_mcp.mail.store.maintenance import cleanup, lease_record
from switchboard_mcp.mail.store.sending import OutgoingMessage, answer_rules

MAX_LEASE_S = 86_400.0
# Claims ended by other processes stay in the cache, so it needs a bound.
MAX_HELD = 100_000


class AckRequest(msgspec.Struct, kw_only=True):
    """Acknowledgement of a message, as requested by the claimer."""

    fence: int
    outcome: Outcome
    summary: str
    result: str | None


def claim(
    tx: Transaction, agent: str, inbox: Inbox, limit: int, lease_s: float, ids: frozenset[str] | None
) -> list[Claimed]:
    """Claim the next messages. Not synced: after a power cut all claims are void anyway."""
    candidates = inbox.first(limit) if ids is None else inbox.with_ids(ids)[: max(0, limit)]
    if not candidates:
        return []
    source, target = tx.folder("inbox", agent), tx.folder("claimed", agent, make=True)
    claimed: list[Claimed] = []
    with tx.locked(agent):
        for entry in candidates:
            lease = new_lease(tx.next_number(), tx.clocks.now(), _ms(lease_s))
            if not claimed:
                lease_record.note(tx, lease, _ms(lease_s))
            name = claimed_name(entry.stem, lease, entry.returns)
            # The name may come back: it is to be checked again then.
            for known in (tx.directory.verified, tx.directory.published):
                known.get(agent, {}).pop(entry.name, None)
            try:
                tx.move(source, entry.name, target, name)
            except FileNotFoundError:
                continue  # Another process of this agent was quicker.
            held = entry._replace(place="claimed", name=name, lease=lease, fence=lease.fence)
            message = message_lookup.read(tx, agent, held)
            if isinstance(message, file_operations.RejectedFile) or message.id != entry.stem.id:
                # Changed since the scan: return it, so it is checked as a dropped file.
                tx.move(target, name, source, entry.name)
                continue
            if len(tx.directory.claimed) >= MAX_HELD:
                tx.directory.claimed.clear()
            tx.directory.claimed[agent, entry.stem.id] = held
            claimed.append(_claimed(tx, message, held, lease, lease_s))
    return claimed


def return_expired(
    tx: Transaction, agent: str, note_lease: Callable[[Lease], None] | None = None
) -> tuple[list[str], list[Delivery]]:
    """Return expired claims to the inbox, or dead-letter them after too many returns.

    Returns the ids of the former and the deliveries of the latter. `note_lease` is called with every other lease.
    """
    now = tx.clocks.now()
    expired = []
    for entry in message_lookup.entries(tx, "claimed", agent):
        if entry.lease is not None and entry.lease.has_expired(now):
            expired.append(entry)
        elif entry.lease is not None and note_lease is not None:
            note_lease(entry.lease)
    if not expired:
        return [], []
    returning = [entry for entry in expired if entry.returns < MAX_RETURNS]
    with tx.locked(agent):
        if any(file_operations.links(tx.folder("claimed", agent), entry.name) > 1 for entry in expired):
            # A crash between two steps of settling left this file: it must not return.
            cleanup.finish_interrupted_moves(tx, agent)
        returned = [
            entry.stem.id for entry in returning if _return_to_inbox(tx, agent, entry, entry.returns + 1)
        ]
    problem = failure(
        "mail_lease_lost", f"The message was claimed {MAX_RETURNS + 1} times and never settled."
    )
    dead = [
        Delivery(agent=agent, file=entry.name, id=entry.stem.id, problem=problem)
        for entry in expired
        if entry not in returning and dead_letters.dead_letter(tx, agent, entry, "failed", problem)
    ]
    return returned, dead


def return_all_expired(tx: Transaction) -> list[Delivery]:
    """Return the expired claims of all agents, and record when the next one expires."""
    deliveries: list[Delivery] = []
    with lease_record.rewriting(tx) as record:
        for agent in tx.agents("claimed"):
            try:
                deliveries += return_expired(tx, agent, record.add)[1]
            except Exception as problem:  # noqa: BLE001 - one agent must not stop the others
                deliveries += dropped_files.report_once(tx, agent, f"claimed/{agent}", problem)
    return deliveries


def _return_to_inbox(tx: Transaction, agent: str, entry: MessageFile, returns: int) -> bool:
    source, target = tx.folder("claimed", agent), tx.folder("inbox", agent, make=True)
    name = waiting_name(entry.stem, returns)
    try:
        tx.move(source, entry.name, target, name, index_row(tx, agent, entry, name))
    except FileNotFoundError:
        return False  # Settled or renewed just now.
    tx.directory.claimed.pop((agent, entry.stem.id), None)
    return True


def index_row(tx: Transaction, agent: str, entry: MessageFile, name: str) -> IndexRow | None:
    """Return the index row of a message that is about to get this name in the inbox; None if it was changed."""
    content = file_operations.read(tx.folder(entry.place, agent), entry.name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return None
    message = signing.verify(tx.signing_key(), entry.stem, agent, content.data)
    return IndexRow(name, 0, message.sender, message.priority) if message is not None else None


def release(tx: Transaction, agent: str, message_id: str, fence: int) -> None:
    """Return a claimed message to the inbox. A deliberate release does not count as a return."""
    with tx.locked(agent):
        entry = _find_held(tx, agent, message_id, fence)
        if not _return_to_inbox(tx, agent, entry, entry.returns):
            raise claim_lost(message_id)


def renew(tx: Transaction, agent: str, message_id: str, fence: int, lease_s: float) -> Claimed:
    """Extend a lease."""
    with tx.locked(agent):
        entry = _find_held(tx, agent, message_id, fence)
        folder = tx.folder("claimed", agent)
        lease = new_lease(entry.fence, tx.clocks.now(), _ms(lease_s))
        lease_record.note(tx, lease, _ms(lease_s))
        name = claimed_name(entry.stem, lease, entry.returns)
        if name != entry.name:
            tx.move(folder, entry.name, folder, name)
        held = tx.directory.claimed[agent, message_id] = entry._replace(name=name, lease=lease)
        message = message_lookup.read(tx, agent, held)
    if isinstance(message, file_operations.RejectedFile):
        raise claim_lost(message_id)
    return _claimed(tx, message, held, lease, lease_s)


def _find_held(tx: Transaction, agent: str, message_id: str, fence: int) -> MessageFile:
    entry = message_lookup.find(tx, agent, message_id, ("claimed",))
    if entry is None or (fence and entry.fence != fence):
        raise claim_lost(message_id)
    return entry


def claim_lost(message_id: str) -> SwitchboardError:
    """Return the error for a message that is not, or no longer, held with this fence."""
    message = (
        f"The claim on '{message_id}' has ended: it expired, was settled, or was superseded by another claim."
    )
    return refused("mail_lease_lost", message)


def ack(
    tx: Transaction, agent: str, message_id: str, request: AckRequest, rules: Sequence[DeliveryRule]
) -> Job[Acked]:
    """Settle a message and send its result back."""
    entry = _find_to_settle(tx, agent, message_id, request)
    if entry.place in ("archive", "deadletter"):
        return (yield from _acked_before(tx, agent, entry, request))
    message = message_lookup.read(tx, agent, entry)
    if isinstance(message, file_operations.RejectedFile):
        raise claim_lost(message_id)
    reply = _reply(tx, agent, message, request, rules)
    receipt = receipts.final_receipt(message, request.outcome, request.summary, tx.clocks.iso())
    receipt_file = tx.write(receipts.encode(receipt))
    reason = None
    if request.outcome == "rejected":
        problem = failure("mail_message_invalid", request.summary or f"Rejected by '{agent}'.")
        reason = tx.write(dead_letter_reasons.encode_reason(tx, entry.name, problem))
    yield [receipt_file, *(reply.write() if reply else []), *([reason] if reason else [])]
    with tx.locked(agent, *([message.sender] if reply else [])):
        if not file_operations.exists(tx.folder(entry.place, agent), entry.name):
            raise claim_lost(message_id)
        if reply is not None:
            reply.publish()
        if reason is not None:
            tx.put(
                reason,
                tx.folder("deadletter", agent, make=True),
                f"{entry.stem}{dead_letter_reasons.SUFFIX}",
            )
        _settle(tx, agent, entry, request, message)
        try:
            tx.publish(
                receipt_file,
                tx.folder("outbox", message.sender, make=True),
                receipt_name(message_id, request.outcome),
            )
        except (OSError, SwitchboardError):
            pass  # The message is archived; `repair` restores a missing receipt.
    yield None
    sent = reply.finish() if reply is not None else None
    return Acked(id=message_id, outcome=request.outcome, receipt=receipt, result=sent)


def withdraw(
    tx: Transaction, agent: str, message_id: str, outcome: Outcome, summary: str, sender: str = ""
) -> Job[Acked]:
    """Settle a message that nobody has claimed yet, so that nobody will; `sender`, if any, must have sent it.

    Raises `mail_not_found` or `mail_claimed`. A repetition returns the first answer.
    """
    entry = message_lookup.find(tx, agent, message_id)
    message = None if entry is None else message_lookup.read(tx, agent, entry)
    delivered = entry is not None and dropped_files.is_delivered(tx, agent, entry)
    if (
        entry is None
        or not delivered
        or not isinstance(message, MailMessage)
        or sender not in ("", message.sender)
    ):
        raise refused("mail_not_found", f"There is no message '{message_id[:150]}' to '{agent}' from you.")
    request = AckRequest(fence=0, outcome=outcome, summary=summary, result=None)
    if entry.outcome == outcome:
        return (yield from _acked_before(tx, agent, entry, request))
    if entry.place != "inbox":
        raise already_claimed(message_id, agent)
    receipt = receipts.final_receipt(message, outcome, summary, tx.clocks.iso())
    receipt_file = tx.write(receipts.encode(receipt))
    yield [receipt_file]
    with tx.locked(agent):
        if not file_operations.exists(tx.folder("inbox", agent), entry.name):
            raise already_claimed(message_id, agent)
        _settle(tx, agent, entry, request, message)
        try:
            outbox = tx.folder("outbox", message.sender, make=True)
            tx.publish(receipt_file, outbox, receipt_name(message_id, outcome))
        except (OSError, SwitchboardError):
            pass  # The message is settled; `repair` restores a missing receipt.
    yield None
    return Acked(id=message_id, outcome=outcome, receipt=receipt)


def already_claimed(message_id: str, agent: str) -> SwitchboardError:
    """Return the error for a message that can no longer be taken back."""
    return refused("mail_claimed", f"'{agent}' has already taken or settled '{message_id[:150]}'.")


def _settle(
    tx: Transaction, agent: str, entry: MessageFile, request: AckRequest, message: MailMessage
) -> None:
    size = quotas.size_of(file_operations.size(tx.folder(entry.place, agent), entry.name), message)
    place = "deadletter" if request.outcome == "rejected" else "archive"
    name = settled_name(entry.stem, entry.fence or tx.next_number(), request.outcome)
    tx.move(tx.folder(entry.place, agent), entry.name, tx.folder(place, agent, make=True), name)
    tx.directory.claimed.pop((agent, entry.stem.id), None)
    quotas.settle(tx, agent, size)


def _find_to_settle(tx: Transaction, agent: str, message_id: str, request: AckRequest) -> MessageFile:
    entry = message_lookup.find(tx, agent, message_id)
    if entry is None:
        raise refused("mail_not_found", f"Agent '{agent}' has no message '{message_id}'.")
    if entry.place == "shipped":
        message_lookup.require_local(tx, agent)
        raise claim_lost(message_id)
    # Settled with another outcome or by a later claim: no longer this claimer's.
    settled_alike = entry.place in ("inbox", "claimed") or entry.outcome == request.outcome
    if not settled_alike or request.fence not in (0, entry.fence):
        raise claim_lost(message_id)
    return entry


def _acked_before(tx: Transaction, agent: str, entry: MessageFile, request: AckRequest) -> Job[Acked]:
    """Answer a repeated acknowledgement: the first answer was lost."""
    message = message_lookup.read(tx, agent, entry)
    if isinstance(message, file_operations.RejectedFile):
        raise claim_lost(entry.stem.id)
    tx.mark_unsynced(agent)
    yield None
    receipt = receipts.final_receipt(message, request.outcome, request.summary, tx.clocks.iso())
    receipts.restore(tx, message.sender, receipt, request.outcome)
    return Acked(id=entry.stem.id, outcome=request.outcome, receipt=receipt)


def _reply(
    tx: Transaction, agent: str, message: MailMessage, request: AckRequest, rules: Sequence[DeliveryRule]
) -> OutgoingMessage | None:
    if request.result is None or message.sender == SYSTEM:
        return None
    tx.folder("inbox", message.sender, make=True)
    draft = Draft(
        action="submit_result",
        payload=request.result,
        reply_to=message.id,
        metadata={"outcome": request.outcome},
        team=message.team,
        thread=message.thread,
        # If a crash made the claimer settle twice, there is still one result.
        idempotency_key=f"result of {message.id} {request.fence}" if request.fence else None,
    )
    reply = message_validation.from_draft(draft, agent, message.sender, tx.clocks.iso())
    if isinstance(reply, Failure):
        raise SwitchboardError(reply)
    # A result is bounded by the message it belongs to, which was counted.
    return OutgoingMessage(tx, reply, answer_rules(rules), enforce_quotas=False)


def _ms(lease_s: float) -> int:
    return int(max(0.001, min(lease_s, MAX_LEASE_S)) * 1000)


def _claimed(
    tx: Transaction, message: MailMessage, held: MessageFile, lease: Lease, lease_s: float
) -> Claimed:
    return Claimed(
        message=message,
        order=held.stem.order,
        fence=lease.fence,
        expires_at=tx.clocks.iso(lease.clock),
        lease_seconds=min(lease_s, MAX_LEASE_S),
        verified=message.verified,
        deliveries=held.returns + 1,
    )
