"""The message store of a workspace: every tool, command and workflow sends and receives through `MessageStore`.

Any number of processes may open the same workspace, with PostgreSQL on any machine. A call that changes something
returns once the change is durable; if that is impossible it raises `SwitchboardError`, and nothing was accepted.
This module is not aware of hosts, tools, terminals or workflows.
"""

from __future__ import annotations

import os
import stat
from asyncio import AbstractEventLoop, Event, TimerHandle, create_task, gather, get_running_loop, timeout
from asyncio import Task as AsyncTask
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from switchboard_mcp.database.database import Database
from switchboard_mcp.database.machine_clocks import MachineClocks, iso_time, machine_clocks
from switchboard_mcp.database.transactions import StorageError, Transaction
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import (
    Acked,
    Claimed,
    DeadLetter,
    Delivery,
    DeliveryRule,
    Draft,
    MailMessage,
    Outcome,
    Receipt,
    Sent,
    StoredMessage,
)
from switchboard_mcp.mail.store import (
    accepting,
    aging,
    attachments,
    integrity,
    leases,
    reading,
    rows,
    state_documents,
    usage,
)
from switchboard_mcp.mail.store.accepting import DeliveryPolicy, OutgoingMessage
from switchboard_mcp.mail.store.filenames import PLACES
from switchboard_mcp.mail.store.leases import ClaimRequest, Settlement
from switchboard_mcp.mail.store.mail_tables import MAIL
from switchboard_mcp.mail.store.message_validation import from_draft
from switchboard_mcp.mail.store.reading import SearchCriteria
from switchboard_mcp.mail.store.state_documents import State as State
from switchboard_mcp.mail.store.surface.folders import MailFolders
from switchboard_mcp.mail.store.usage import MailQuotas
from switchboard_mcp.system.atomic_write import write_gitignore

T = TypeVar("T")


class MailboxChange(Struct, frozen=True):
    """A change in a mailbox or in the state."""

    kind: str
    """`inbox`, `outbox` or `state`."""
    agent: str = ""
    """Name of the agent; empty for `state`, and for `inbox` if any may have changed."""


class Surface(Protocol):
    """Brings folders and database together."""

    async def sync(self) -> None:
        """Do one pass."""

    async def close(self) -> None:
        """Stop."""


DEFAULT_LEASE_S = 300.0
DATABASE_FILE = "mail.db"
# How often a process looks for expired leases, unless one ends before.
EXPIRY_LOOK_S = 1.0


class MessageStore:
    """The durable message queue of one workspace: `async with await MessageStore.open(folder) as store: …`."""

    def __init__(
        self, database: Database, path: str, policy: DeliveryPolicy, report: Callable[[Delivery], None] | None
    ) -> None:
        """Initialize; use `open` instead."""
        self.database = database
        self.path = path
        self.policy = policy
        self._report = report
        # The folders of a workspace that was opened by `opening.open_mail`.
        self.surface: Surface | None = None
        self._folders = MailFolders(path)
        self._loop: AbstractEventLoop = get_running_loop()
        self._expiry_timer: TimerHandle | None = None
        self._expiry: AsyncTask[None] | None = None

    @classmethod
    async def open(
        cls,
        workspace: str,
        *,
        database: str = "",
        rules: Sequence[DeliveryRule] = (),
        report: Callable[[Delivery], None] | None = None,
        watch: bool = True,
        clocks: MachineClocks | None = None,
        quotas: MailQuotas | None = None,
    ) -> MessageStore:
        """Create or open the mail of `workspace`: in `.switchboard/mail.db`, or at the URL in `database`.

        `report` is called on the event loop for messages that became dead letters. Without `watch` (for short
        commands) expired leases are returned by claims alone.
        """
        path = _make_folder(workspace)
        clocks_used = clocks or machine_clocks()
        if not database:
            _require_own_file(os.path.join(path, DATABASE_FILE))
        target = database or os.path.join(path, DATABASE_FILE)
        try:
            opened = await Database.open(target, [MAIL], clocks=clocks)
        except StorageError as problem:
            raise _refusal_of(problem) from problem
        store = cls(opened, path, DeliveryPolicy(rules, quotas or MailQuotas()), report)
        try:
            await opened.write(lambda tx: aging.begin_boot(tx, clocks_used.boot), durable=False)
        except StorageError:
            pass  # A read-only folder can still be read.
        if watch:
            store._look_for_expired()
        return store

    @property
    def is_read_only(self) -> bool:
        """Return True if the folder can only be read."""
        return bool(getattr(self.database.engine, "read_only", False))

    async def close(self) -> None:
        """Finish the queued jobs and stop."""
        if self.surface is not None:
            await self.surface.close()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        await self.database.close()

    async def __aenter__(self) -> MessageStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run a function in a transaction, with whatever it sends, settles and notes in the state.

        It may run again, so it changes nothing but the database.
        """
        try:
            return await self.database.write(work, durable=durable)
        except StorageError as problem:
            raise _refusal_of(problem) from problem

    async def read_rows(self, work: Callable[[Transaction], T]) -> T:
        """Run a function that only reads."""
        try:
            return await self.database.read(work)
        except StorageError as problem:
            raise _refusal_of(problem) from problem

    async def register(self, name: str) -> str:
        """Give an agent an inbox, and return its normalized name."""
        agent = rows.parse_name(name)
        await self.write(lambda tx: rows.add_agent(tx, agent))
        await self._loop.run_in_executor(None, self._make_folders, agent)
        return agent

    def _make_folders(self, agent: str) -> None:
        try:
            self._folders.make()
            self._folders.make(agent)
        except OSError:
            pass  # Only agents without MCP need them.

    async def remove_agent(self, name: str, *, force: bool = False) -> int:
        """Remove an agent; returns how many of its messages were rejected. Raises `mail_forbidden`, unless `force`, if
        some are not settled.
        """
        agent = rows.parse_name(name)
        return await self.write(lambda tx: aging.remove_agent(tx, agent, force=force))

    async def agents(self) -> list[str]:
        """List all agents that have an inbox."""
        return await self.read_rows(
            lambda tx: [row[0] for row in tx.rows("SELECT name FROM agent ORDER BY name")]
        )

    async def send(
        self,
        draft: Draft,
        *,
        sender: str,
        recipient: str,
        verified: bool = True,
        from_dashboard: bool = False,
        from_system: bool = False,
    ) -> Sent:
        """Store one message. `verified` means the caller knows the sender from its connection.

        Only the dashboard, with `from_dashboard`, sends in the name of the overseer, and only the mail server itself,
        with `from_system`, in its own. Raises `mail_recipient_unknown` (with the nearest names), `mail_identity`,
        `mail_message_invalid`, `mail_too_large`, `mail_quota`, the failure of a delivery rule, or `mail_not_stored`.
        """
        by, to = rows.parse_name(sender), rows.parse_name(recipient)
        if not (from_dashboard or from_system):
            rows.require_unreserved(by)
        draft, attachment = accepting.attachment_of(draft)
        wall_us = machine_clocks().wall_us()
        message = from_draft(draft, by, to, iso_time(wall_us // 1_000))
        if isinstance(message, Failure):
            raise SwitchboardError(message)
        message.metadata["verified"] = verified
        if attachment is not None:
            message.metadata["attachment"] = attachment.record
            await self._loop.run_in_executor(None, attachments.write_file, self._attachments, attachment)
        outgoing = OutgoingMessage(message, self.policy, is_answer=draft.answers)

        def work(tx: Transaction) -> Sent:
            rows.require_agent(tx, to)
            sent = outgoing.store(tx)
            if attachment is not None:
                attachments.store_rows(tx, attachment)
            return sent

        return await self.write(work)

    @property
    def _attachments(self) -> str:
        return os.path.join(self.path, "attachments")

    async def send_to_many(
        self,
        draft: Draft,
        *,
        sender: str,
        recipients: Sequence[str],
        verified: bool = True,
        from_dashboard: bool = False,
    ) -> list[Sent | Failure]:
        """Send the same message to several recipients; each is stored or refused independently, in order."""
        if len(recipients) > 1 and {"workflow", "completes"} <= draft.metadata.keys():
            hint = "Send it to one recipient; the others are notified of the next turn."
            text = "A message that ends a phase needs one recipient."
            raise refused("mail_message_invalid", text, hint=hint)
        send = partial(self.send, draft, sender=sender, verified=verified, from_dashboard=from_dashboard)
        answers = await gather(*(send(recipient=name) for name in recipients), return_exceptions=True)
        return [_failure_of(answer) if isinstance(answer, BaseException) else answer for answer in answers]

    async def peek(
        self, agent: str, *, limit: int = 100, after: int = 0, exclude: Collection[str] = ()
    ) -> list[StoredMessage]:
        """List the messages waiting in an inbox, in claim order, without consuming them.

        `exclude` skips messages by id, `after` skips those up to this `order`.
        """
        name = rows.parse_name(agent)
        return await self.read_rows(lambda tx: reading.peek(tx, name, limit, after, exclude))

    async def read(self, agent: str, message_id: str) -> StoredMessage:
        """Return one message to `agent`, in any place, without consuming it. Raises `mail_not_found`."""
        name = rows.parse_name(agent)
        return await self.read_rows(lambda tx: reading.read(tx, name, message_id))

    async def wait(
        self, agent: str, timeout_s: float, *, limit: int = 100, after: int = 0, exclude: Collection[str] = ()
    ) -> list[StoredMessage]:
        """Like `peek`, but wait up to `timeout_s` seconds for a message; empty on timeout."""
        name = rows.parse_name(agent)
        changed = Event()
        unsubscribe = self.subscribe(lambda _: changed.set(), agents=(name,))
        deadline = self._loop.time() + timeout_s
        try:
            while True:
                changed.clear()
                messages = await self.peek(name, limit=limit, after=after, exclude=exclude)
                remaining = deadline - self._loop.time()
                if messages or remaining <= 0:
                    return messages
                try:
                    async with timeout(remaining):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            unsubscribe()

    async def claim(
        self,
        agent: str,
        *,
        limit: int = 1,
        lease_s: float = DEFAULT_LEASE_S,
        ids: Sequence[str] | None = None,
    ) -> list[Claimed]:
        """Lease up to `limit` messages for `lease_s` seconds.

        A message that is not acknowledged or renewed in time returns to the inbox, and becomes a dead letter the fifth
        time. Each sender's messages keep their order; across senders, urgent messages come first. `ids` restricts the
        claim to these messages. A power cut may undo a claim: then the message waits again.
        """
        request = ClaimRequest(rows.parse_name(agent), limit, lease_s, ids, self._folders.take)
        claimed = await self.write(request.claim, durable=False)
        self.report(request.dead)
        return claimed

    async def renew(
        self, agent: str, message_id: str, *, fence: int, lease_s: float = DEFAULT_LEASE_S
    ) -> Claimed:
        """Extend the lease of a claimed message, keeping the fence. Raises `mail_lease_lost`."""
        name = rows.parse_name(agent)
        return await self.write(lambda tx: leases.renew(tx, name, message_id, fence, lease_s), durable=False)

    async def ack(
        self,
        agent: str,
        message_id: str,
        *,
        fence: int = 0,
        outcome: Outcome = "done",
        summary: str = "",
        result: str | None = None,
        from_dashboard: bool = False,
    ) -> Acked:
        """Settle a message: `done` and `failed` archive it, `rejected` dead-letters it with `summary` as the reason.

        `result` is sent back as `submit_result`. A stale `fence` raises `mail_lease_lost` and changes nothing; the same
        acknowledgement may be repeated. Without a fence (0) the message is settled whoever holds it: for a person at
        a shell. Only the dashboard and the server itself, with `from_dashboard`, settle messages of the overseer.
        """
        name = rows.parse_name(agent)
        if not from_dashboard:
            rows.require_unreserved(name)
        how = Settlement(fence=fence, outcome=outcome, summary=summary, result=result)
        return await self.write(lambda tx: leases.ack(tx, name, message_id, how, self.policy))

    async def withdraw(
        self, agent: str, message_id: str, *, outcome: Outcome, summary: str = "", sender: str = ""
    ) -> Acked:
        """Settle a message to `agent` that nobody has claimed: it is never handed out after that.

        Raises `mail_claimed` if it was handed out before, `mail_not_found` if `sender` did not send it.
        """
        name = rows.parse_name(agent)
        return await self.write(lambda tx: leases.withdraw(tx, name, message_id, outcome, summary, sender))

    async def release(self, agent: str, message_id: str, *, fence: int = 0) -> None:
        """Return a claimed message to its place in the inbox. Raises `mail_lease_lost`."""
        name = rows.parse_name(agent)
        await self.write(lambda tx: leases.release(tx, name, message_id, fence), durable=False)

    async def receipts(
        self, sender: str, *, ids: Sequence[str] | None = None, limit: int = 100
    ) -> list[Receipt]:
        """Return the latest receipts of messages sent by `sender`, newest first."""
        name = rows.parse_name(sender)
        return await self.read_rows(lambda tx: reading.receipts(tx, name, ids, limit))

    async def search(
        self,
        agent: str,
        query: str = "",
        *,
        sender: str | None = None,
        action: str | None = None,
        places: Sequence[str] = ("inbox", "claimed", "archive"),
        limit: int = 50,
        thread: str | None = None,
    ) -> list[StoredMessage]:
        """Search messages to `agent`, best match first; without a query, newest first.

        A search by words in a large mailbox waits until all words are indexed, in pieces that are kept.
        """
        name = rows.parse_name(agent)
        criteria = SearchCriteria(
            query=query,
            sender=rows.parse_name(sender) if sender else None,
            action=action,
            places=places,
            limit=limit,
            thread=thread,
        )
        if query.strip() and self.database.engine.dialect == "sqlite":
            try:
                while await self.write(reading.index_words, durable=False):
                    pass
            except SwitchboardError:
                pass  # A read-only folder is searched as far as it was indexed.
        return await self.read_rows(lambda tx: reading.search(tx, name, criteria))

    async def attachment(self, message: MailMessage) -> bytes:
        """Return the full payload of a message with an attachment, after checking its hash."""
        return await self.read_rows(lambda tx: attachments.read(tx, self._attachments, message))

    async def dead_letters(self, agent: str) -> list[DeadLetter]:
        """List the dead letters of an agent, oldest first."""
        name = rows.parse_name(agent)
        return await self.read_rows(lambda tx: reading.dead_letters(tx, name))

    async def requeue(self, agent: str, dead_id: str) -> None:
        """Return a dead letter to the inbox. Raises `mail_not_found`."""
        name = rows.parse_name(agent)
        await self.write(lambda tx: aging.requeue(tx, name, dead_id))

    async def all_dead_letters(self) -> list[DeadLetter]:
        """List the dead letters of all agents."""
        return await self.read_rows(
            lambda tx: [
                dead
                for (agent,) in tx.rows("SELECT DISTINCT recipient FROM message WHERE place = 'deadletter'")
                for dead in reading.dead_letters(tx, agent)
            ]
        )

    async def waiting(self) -> dict[str, reading.Waiting]:
        """Return what waits for each agent for whom something waits."""
        return await self.read_rows(reading.waiting)

    async def waiting_for(self, agent: str) -> reading.Waiting:
        """Return what waits for one agent."""
        return await self.read_rows(lambda tx: reading.waiting_for(tx, agent))

    async def ids(self, agent: str, places: Sequence[str] = PLACES) -> list[str]:
        """List the ids of the messages to an agent in these places, the newest first."""
        return await self.read_rows(lambda tx: reading.ids(tx, agent, places))

    async def sent_ids(self, agent: str) -> list[str]:
        """List the ids of the messages that an agent has sent, the newest first."""
        return await self.read_rows(lambda tx: reading.sent_ids(tx, agent))

    async def import_files(self) -> None:
        """Import what was dropped, and show what waits: for a command, before it reads."""
        if self.surface is not None:
            await self.surface.sync()

    async def state(self) -> State:
        """Return the state of the workspace: its agents, teams, workflow runs and reservations."""
        return await self.read_rows(state_documents.load)

    async def update(self, change: Callable[[State], T]) -> T:
        """Apply `change` to the state, store the result, and return what `change` returned.

        `change` runs in the writer thread and modifies the state in place. If it raises, nothing is stored. To send
        or settle in the same transaction, call `state_documents.update` in a function for `write`.
        """
        return await self.write(lambda tx: state_documents.update(tx, change))

    async def prune(self, keep_s: float) -> int:
        """Remove what was settled longer ago than this, with attachments that nobody needs; returns how many."""
        count = 0
        while removed := await self.write(
            lambda tx: aging.prune(tx, rows.now_ms(tx) - int(keep_s * 1_000)), durable=False
        ):
            count += removed
        old = machine_clocks().wall_us() / 1e6 - max(keep_s, 3_600.0)
        await self.write(lambda tx: attachments.remove_unused(tx, self._attachments, old), durable=False)
        return count

    async def count(self) -> int:
        """Return how many messages are stored."""
        return await self.read_rows(usage.count_all)

    async def count_old(self, keep_s: float) -> int:
        """Return how many messages `prune` would remove."""
        return await self.read_rows(
            lambda tx: int(
                tx.rows(
                    "SELECT count(*) FROM message WHERE settled_at IS NOT NULL AND settled_at < ?",
                    rows.now_ms(tx) - int(keep_s * 1_000),
                )[0][0]
            )
        )

    async def verify(self) -> integrity.MailVerdict:
        """Check the content of every message and the counts."""
        return await self.read_rows(integrity.verify)

    async def back_up(self, path: str) -> None:
        """Write a whole copy of a database of SQLite to a new file, while others go on."""
        save: Callable[[str], None] | None = getattr(self.database.engine, "save_to", None)
        if save is None:
            text = "A database of PostgreSQL is not copied by Switchboard."
            raise refused("mail_not_stored", text, hint="Use `pg_dump --schema`.")
        try:
            await self._loop.run_in_executor(None, save, path)
        except StorageError as problem:
            raise _refusal_of(problem) from problem

    async def recount(self) -> None:
        """Count all messages again."""
        await self.write(integrity.recount)

    def subscribe(
        self, listener: Callable[[MailboxChange], None], *, agents: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call `listener` on the event loop for every change, by any process; returns the function to unsubscribe.

        With `agents`, it hears of their mailboxes and of the state. A change without an agent may concern any.
        """
        topics = None
        if agents is not None:
            topics = ["state", *(f"{place}.{name}" for name in agents for place in ("inbox", "outbox"))]
        return self.database.listen(lambda topic: listener(_change_of(topic)), topics)

    def report(self, deliveries: Sequence[Delivery]) -> None:
        """Report messages that became dead letters."""
        if self._report is not None:
            for delivery in deliveries:
                self._report(delivery)

    def _look_for_expired(self) -> None:
        self._expiry = create_task(self._return_expired())

    async def _return_expired(self) -> None:
        """Return expired claims, so that those who wait for mail hear of them, and come back for the next."""
        pause_s = EXPIRY_LOOK_S
        try:
            due = await self.database.read(aging.next_expiry)
            if due == 0:
                self.report(await self.database.write(leases.return_expired, durable=False))
            elif due is not None:
                pause_s = min(pause_s, due / 1_000)
        except (StorageError, SwitchboardError):
            pass  # Whoever needs the database hears of it.
        self._expiry_timer = self._loop.call_later(max(pause_s, 0.01), self._look_for_expired)


def _make_folder(workspace: str) -> str:
    path = os.path.join(os.path.abspath(workspace), FOLDER)
    try:
        os.mkdir(path, 0o700)
        write_gitignore(path)
    except FileExistsError:
        info = os.lstat(path)
        if info.st_uid != os.geteuid() or info.st_mode & 0o022 or os.path.islink(path):
            whose = "belongs to another user" if info.st_uid != os.geteuid() else "can be written by others"
            raise refused("mail_unsafe", f"The mail folder '{path}' {whose}.") from None
    except OSError as problem:
        raise refused("mail_not_stored", f"{path} cannot be created: {problem.strerror}.") from None
    return path


def _require_own_file(path: str) -> None:
    """Raise `mail_unsafe` for a database that came with a checkout: what it says of senders proves nothing."""
    try:
        info = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077:
        return
    hint = f"Remove it, or if it is yours: chmod 600 {path}"
    raise refused("mail_unsafe", f"{path} was not made by your Switchboard: others may read it.", hint=hint)


def _change_of(topic: str) -> MailboxChange:
    kind, _, agent = topic.partition(".")
    return MailboxChange(kind if kind in ("outbox", "state") else "inbox", agent)


def _failure_of(problem: BaseException) -> Failure:
    if isinstance(problem, SwitchboardError):
        return problem.failure
    raise problem


def _refusal_of(problem: StorageError) -> SwitchboardError:
    if problem.uncertain:
        hint = "Fix the problem, then send it again with the same idempotencyKey."
        return refused("mail_not_stored", f"{problem.text} The message may have been stored.", hint=hint)
    if problem.hint:
        return refused("mail_not_stored", problem.text, hint=problem.hint)
    return refused("mail_not_stored", problem.text)
