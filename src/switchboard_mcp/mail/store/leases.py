"""Claims: exclusive leases on messages, and how they end.

A claim takes the message of the highest rank that waits longest, or rather the oldest one of its sender: so each
sender's messages keep their order, and an urgent message brings those before it along without changing their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.agent_names import SYSTEM
from switchboard_mcp.database.machine_clocks import iso_time
from switchboard_mcp.database.transactions import Transaction, placeholders
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail.messages import Acked, Claimed, Delivery, Draft, MailMessage, Outcome
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.accepting import DeliveryPolicy, OutgoingMessage
from switchboard_mcp.mail.store.filenames import MAX_RETURNS
from switchboard_mcp.mail.store.message_validation import from_draft
from switchboard_mcp.mail.store.rows import MessageRow
from switchboard_mcp.mail.store.usage import count_waiting

MAX_LEASE_S = 86_400.0
# Expired claims that one group returns; the rest waits for the next.
MAX_EXPIRED = 500
UNSETTLED = ("inbox", "claimed")
# Takes the shown file of a message away; False if its reader has moved it to the archive before.
TakeFile = Callable[[str, str], bool]
_TOP = "SELECT ord, sender, rank FROM message WHERE recipient = ? AND place = 'inbox' ORDER BY rank DESC, ord LIMIT 1"
_OLDEST = (
    f"SELECT {rows.COLUMNS} FROM message"
    " WHERE recipient = ? AND sender = ? AND place = 'inbox' ORDER BY ord LIMIT 1"
)


class ClaimRequest:
    """A request for messages; it remembers its fences, so that a repetition finds what the first attempt got."""

    def __init__(
        self, agent: str, limit: int, lease_s: float, ids: Sequence[str] | None, take_file: TakeFile
    ) -> None:
        self.agent = agent
        self.limit = limit
        self.lease_s = min(lease_s, MAX_LEASE_S)
        self.ids = ids
        self._take_file = take_file
        self._fences: list[int] = []
        self.dead: list[Delivery] = []

    def claim(self, tx: Transaction) -> list[Claimed]:
        """Lease the next messages."""
        rows.require_agent(tx, self.agent)
        if tx.is_repeated and (claimed := self._find_claimed(tx)):
            return claimed
        self.dead = return_expired(tx)
        self._fences.clear()
        claimed = []
        for row in self._candidates(tx):
            if not self._take_file(self.agent, rows.file_name(row.order, row.id)):
                settle_by_file(tx, row)
                continue
            lease = self._lease(tx, row)
            if lease is not None:
                claimed.append(lease)
            if len(claimed) >= self.limit:
                break
        return claimed

    def _candidates(self, tx: Transaction) -> Iterator[MessageRow]:
        """Yield waiting messages; each must be claimed or settled before the next."""
        if self.limit <= 0:
            return
        if self.ids is None:
            while (row := next_waiting(tx, self.agent)) is not None:
                yield row
            return
        ids = list(dict.fromkeys(self.ids))[:1_000]
        waiting = (
            tx.rows(
                f"SELECT {rows.COLUMNS} FROM message WHERE recipient = ? AND id IN {placeholders(ids)}"
                " AND place = 'inbox' ORDER BY ord",
                self.agent,
                *ids,
            )
            if ids
            else []
        )
        yield from map(rows.row_of, waiting)

    def _lease(self, tx: Transaction, row: MessageRow) -> Claimed | None:
        body = tx.row("SELECT body FROM body WHERE ord = ?", row.order)
        message = None if body is None else rows.decode(body[0], row.sum)
        if message is None:
            problem = failure("mail_message_invalid", "Its content in the database is damaged.")
            self.dead.append(dead_letter(tx, row, "failed", problem))
            return None
        fence = rows.next_fence(tx, row.fence)
        self._fences.append(fence)
        ends, until = _lease_times(tx, self.lease_s)
        tx.run(
            "UPDATE message SET place = 'claimed', fence = ?, lease_ends = ?, lease_until = ? WHERE ord = ?",
            fence,
            ends,
            until,
            row.order,
        )
        return _claimed(message, replace(row, fence=fence), until, self.lease_s)

    def _find_claimed(self, tx: Transaction) -> list[Claimed]:
        claimed = [
            (rows.row_of(row[:-2]), row[-2], row[-1])
            for row in tx.rows(
                f"SELECT {rows.COLUMNS}, lease_until, body FROM message JOIN body USING (ord)"
                " WHERE recipient = ? AND place = 'claimed' ORDER BY ord",
                self.agent,
            )
        ]
        return [
            _claimed(message, row, until, self.lease_s)
            for row, until, body in claimed
            if row.fence in self._fences and (message := rows.decode(body, row.sum)) is not None
        ]


def next_waiting(tx: Transaction, agent: str) -> MessageRow | None:
    """Return the message that is claimed next."""
    top = tx.row(_TOP, agent)
    oldest = tx.row(_OLDEST, agent, top[1]) if top else None
    return rows.row_of(oldest) if oldest else None


def _lease_times(tx: Transaction, lease_s: float) -> tuple[int, int]:
    lease_ms = int(max(0.001, min(lease_s, MAX_LEASE_S)) * 1_000)
    return tx.clock.lease_ms() + lease_ms, rows.now_ms(tx) + lease_ms


def _claimed(message: MailMessage, row: MessageRow, until: int, lease_s: float) -> Claimed:
    return Claimed(
        message=message,
        order=row.order,
        fence=row.fence,
        expires_at=iso_time(until),
        lease_seconds=min(lease_s, MAX_LEASE_S),
        verified=bool(row.verified),
        deliveries=row.returns + 1,
    )


def return_expired(tx: Transaction) -> list[Delivery]:
    """Return expired claims of all agents, and dead-letter those that expired too often; once per group."""
    if tx.memo.get("mail.expired"):
        return []
    tx.memo["mail.expired"] = True
    expired = tx.rows(
        f"SELECT {rows.COLUMNS} FROM message WHERE place = 'claimed' AND lease_ends <= ? ORDER BY lease_ends LIMIT ?",
        tx.clock.lease_ms(),
        MAX_EXPIRED,
    )
    dead = []
    for row in map(rows.row_of, expired):
        if row.returns < MAX_RETURNS:
            _return_to_inbox(tx, row, row.returns + 1)
        else:
            text = f"The message was claimed {MAX_RETURNS + 1} times and never settled."
            dead.append(dead_letter(tx, row, "failed", failure("mail_lease_lost", text)))
    return dead


def _return_to_inbox(tx: Transaction, row: MessageRow, returns: int) -> None:
    tx.run(
        "UPDATE message SET place = 'inbox', lease_ends = NULL, lease_until = NULL, returns = ? WHERE ord = ?",
        returns,
        row.order,
    )
    tx.topics.add(f"inbox.{row.recipient}")


def dead_letter(tx: Transaction, row: MessageRow, outcome: Outcome, problem: Failure) -> Delivery:
    """Make a dead letter of a message that waits or is claimed; its sender gets a receipt."""
    settle(tx, row, outcome, problem.message, place="deadletter")
    name = rows.file_name(row.order, row.id)
    return Delivery(agent=row.recipient, file=name, id=row.id, sender=row.sender, problem=problem)


def settle(
    tx: Transaction, row: MessageRow, outcome: Outcome | None, summary: str, *, place: str = "archive"
) -> MessageRow:
    """Settle a message that waits or is claimed."""
    text, now = rows.clean(summary), rows.now_ms(tx)
    tx.run(
        "UPDATE message SET place = ?, outcome = ?, summary = ?, settled_at = ?, lease_ends = NULL,"
        " lease_until = NULL WHERE ord = ?",
        place,
        outcome,
        text,
        now,
        row.order,
    )
    count_waiting(tx, row.recipient, -1, -row.size)
    tx.topics.update((f"outbox.{row.sender}", f"inbox.{row.recipient}"))
    return replace(row, place=place, outcome=outcome, summary=text, settled_at=now)


def settle_by_file(tx: Transaction, row: MessageRow) -> None:
    """Settle a waiting message whose file its reader has moved to the archive: without an outcome."""
    settle(tx, row, None, "")


def release(tx: Transaction, agent: str, message_id: str, fence: int) -> None:
    """Return a claimed message to its place. A deliberate release does not count as a return."""
    row = _require_held(tx, agent, message_id, fence)
    _return_to_inbox(tx, row, row.returns)


def renew(tx: Transaction, agent: str, message_id: str, fence: int, lease_s: float) -> Claimed:
    """Extend a lease; the fence stays."""
    row = _require_held(tx, agent, message_id, fence)
    ends, until = _lease_times(tx, lease_s)
    tx.run("UPDATE message SET lease_ends = ?, lease_until = ? WHERE ord = ?", ends, until, row.order)
    (body,) = tx.rows("SELECT body FROM body WHERE ord = ?", row.order)
    message = rows.decode(body[0], row.sum)
    if message is None:
        raise claim_lost(message_id)
    return _claimed(message, row, until, lease_s)


def _require_held(tx: Transaction, agent: str, message_id: str, fence: int) -> MessageRow:
    row = rows.find(tx, agent, message_id)
    if row is None or row.place != "claimed" or fence not in (0, row.fence):
        raise claim_lost(message_id)
    return row


def claim_lost(message_id: str) -> SwitchboardError:
    """Return the error for a message that is not, or no longer, held with this fence."""
    message = (
        f"The claim on '{message_id}' has ended: it expired, was settled, or was superseded by another claim."
    )
    return refused("mail_lease_lost", message)


class Settlement(Struct, frozen=True, kw_only=True):
    """How the claimer settles a message, and what it sends back."""

    fence: int
    outcome: Outcome
    summary: str = ""
    result: str | None = None


def ack(tx: Transaction, agent: str, message_id: str, how: Settlement, policy: DeliveryPolicy) -> Acked:
    """Settle a message, and send its result back in the same commit. A repetition gets the same answer."""
    row = rows.require(tx, agent, message_id)
    is_settled = row.place not in UNSETTLED
    if how.fence not in (0, row.fence) or (is_settled and row.outcome != how.outcome):
        raise claim_lost(message_id)
    reply = _reply(tx, row, how, policy)
    sent = reply.store(tx) if reply is not None else None
    if not is_settled:
        summary = how.summary or (f"Rejected by '{agent}'." if how.outcome == "rejected" else "")
        row = settle(
            tx, row, how.outcome, summary, place="deadletter" if how.outcome == "rejected" else "archive"
        )
    return Acked(id=message_id, outcome=how.outcome, receipt=rows.final_receipt(row), result=sent)


def _reply(
    tx: Transaction, row: MessageRow, how: Settlement, policy: DeliveryPolicy
) -> OutgoingMessage | None:
    if how.result is None or row.sender == SYSTEM:
        return None
    (stored,) = rows.load(tx, [row.order])
    draft = Draft(
        action="submit_result",
        payload=how.result,
        reply_to=row.id,
        metadata={"outcome": how.outcome},
        team=stored.message.team,
        thread=stored.message.thread,
        # If a crash made the claimer settle twice, there is still one result.
        idempotency_key=f"result of {row.id} {how.fence}" if how.fence else None,
    )
    reply = from_draft(draft, row.recipient, row.sender, iso_time(rows.now_ms(tx)))
    if isinstance(reply, Failure):
        raise SwitchboardError(reply)
    rows.add_agent(tx, row.sender)
    # A result is bounded by the message it belongs to, which was counted.
    return OutgoingMessage(reply, policy, is_answer=True, enforce_quotas=False)


def withdraw(
    tx: Transaction, agent: str, message_id: str, outcome: Outcome, summary: str, sender: str
) -> Acked:
    """Settle a message that nobody has claimed. Raises `mail_not_found` or `mail_claimed`."""
    row = rows.find(tx, agent, message_id)
    if row is None or sender not in ("", row.sender):
        raise refused("mail_not_found", f"There is no message '{message_id[:150]}' to '{agent}' from you.")
    if row.outcome != outcome:
        if row.place != "inbox":
            text = f"'{agent}' has already taken or settled '{message_id[:150]}'."
            raise refused("mail_claimed", text)
        row = settle(tx, row, outcome, summary)
    return Acked(id=message_id, outcome=outcome, receipt=rows.final_receipt(row))
