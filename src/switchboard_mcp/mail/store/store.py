"""The message store of a workspace: every tool, command and workflow sends and receives through `MessageStore`.

Any number of processes may open the same workspace. All state is in the files, so a process may be killed at any
moment. A call that changes something returns once the change is durable; if it cannot be made durable, the call
raises `SwitchboardError` and nothing has been accepted.
Blocking work runs in one writer thread and one reader thread; the event loop never waits for a disk.
This module is not aware of hosts, tools, terminals or workflows.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Event, gather, get_running_loop, sleep, timeout
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import (
    Acked,
    Claimed,
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
    claims,
    dropped_files,
    message_lookup,
    message_search,
    receipts,
    sending,
    workspace_state,
)
from switchboard_mcp.mail.store.claims import AckRequest
from switchboard_mcp.mail.store.clocks import Clocks, system_clocks
from switchboard_mcp.mail.store.directory import FOLDERS, Quotas, StoreDirectory, Transaction
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.maintenance import cleanup, lease_record, removal
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding
from switchboard_mcp.mail.store.maintenance.sweeper import Sweeper
from switchboard_mcp.mail.store.watcher import POLL_S, MailboxChange, WatchedMailboxes
from switchboard_mcp.mail.store.worker import StoreWorker
from switchboard_mcp.mail.store.workspace_state import State

if TYPE_CHECKING:
    from switchboard_mcp.mail.store.maintenance.verify import StoreVerdict

__all__ = ["MailboxChange", "MessageStore", "State"]

T = TypeVar("T")
DEFAULT_LEASE_S = 300.0
# Between two pieces of an index that a search needs: it may be waiting for the process that sweeps.
INDEXING_PAUSE_S = 0.002


class MessageStore:
    """The durable message queue of one workspace: `async with await MessageStore.open(folder) as store: …`."""

    def __init__(
        self,
        directory: StoreDirectory,
        rules: Sequence[DeliveryRule],
        report: Callable[[Delivery], None] | None,
    ) -> None:
        """Initialize; use `open` instead."""
        self._directory = directory
        self._rules = rules
        self._report = report
        self._writer = StoreWorker(directory)
        self._reader = StoreWorker(directory, "switchboard-mail-reader")
        # Each with the agents whose mailboxes it needs to hear of; None stands for all.
        self._listeners: list[tuple[Callable[[MailboxChange], None], frozenset[str] | None]] = []
        self._sweeper: Sweeper | None = None
        self._loop: AbstractEventLoop = get_running_loop()

    @property
    def path(self) -> str:
        """Return the path of `.switchboard`."""
        return self._directory.path

    @property
    def is_sweeper(self) -> bool:
        """Return True if this process does the periodic work of the workspace."""
        return self._sweeper is not None and self._sweeper.elected

    @classmethod
    async def open(
        cls,
        workspace: str,
        *,
        rules: Sequence[DeliveryRule] = (),
        report: Callable[[Delivery], None] | None = None,
        watch: bool = True,
        clocks: Clocks | None = None,
        mailboxes: bool = True,
        quotas: Quotas | None = None,
    ) -> MessageStore:
        """Create or open `.switchboard/` in `workspace`, clean up after crashes, and start watching.

        `report` is called on the event loop for every dropped file that was delivered or dead-lettered.
        Without `watch` (for short commands), dropped files are delivered on the next read. Without `mailboxes`, only
        the folder for temporary files is created.
        """
        directory = StoreDirectory(workspace, clocks or system_clocks(), quotas)
        loop = get_running_loop()
        await loop.run_in_executor(None, directory.make, FOLDERS if mailboxes else ("tmp",))
        store = cls(directory, rules, report)
        await store._start(watch=watch)
        return store

    async def _start(self, *, watch: bool) -> None:
        if self._directory.read_only:
            return
        try:
            await self._writer.run(cleanup.remove_stale_temp_files)
            self._report_deliveries((await self._writer.run(dropped_files.collect_misplaced))[1])
        except SwitchboardError:
            pass  # A read-only folder can still be read.
        if watch:
            self._sweeper = Sweeper(
                self.path, self._writer, self._rules, self._report_deliveries, self._notify_listeners
            )
            self._sweeper.start()
            self._watch()

    async def close(self) -> None:
        """Finish the queued jobs and stop."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.stop()
        await self._reader.close()
        await self._writer.close()
        if sweeper is not None:
            sweeper.close()
        self._directory.close()

    async def __aenter__(self) -> MessageStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def register(self, name: str) -> str:
        """Create the mailbox folders of an agent and return its normalized name."""
        agent = message_lookup.parse_agent_name(name)

        def make(tx: Transaction) -> str:
            for place in ("inbox", "outbox"):
                tx.folder(place, agent, make=True)
            return agent

        return await self._writer.run(make)

    async def remove_agent(self, name: str, *, force: bool = False) -> int:
        """Remove an agent; returns how many of its messages were rejected. Raises `mail_forbidden`, unless `force`, if
        some are not settled.
        """
        agent = message_lookup.parse_agent_name(name)
        return await self._writer.run(lambda tx: removal.remove_agent(tx, agent, force=force))

    async def agents(self) -> list[str]:
        """List all agents that have an inbox."""
        return await self._reader.run(lambda tx: tx.agents())

    async def send(
        self,
        draft: Draft,
        *,
        sender: str,
        recipient: str,
        verified: bool = True,
        from_dashboard: bool = False,
        from_system: bool = False,
        then: Callable[[Transaction], None] | None = None,
    ) -> Sent:
        """Store one message. `verified` means the caller knows the sender from its connection.

        `then` is called in the writer thread once the message is durable; it must be quick, and its errors are ignored.

        Only the dashboard, with `from_dashboard`, sends in the name of the overseer, and only the mail server itself,
        with `from_system`, in its own. Raises `mail_recipient_unknown` (with the nearest names), `mail_identity`,
        `mail_message_invalid`, `mail_too_large`, `mail_quota`, the failure of a delivery rule, or `mail_not_stored`.
        """
        if not (from_dashboard or from_system):
            message_lookup.require_unreserved(message_lookup.parse_agent_name(sender))
        return await self._writer.commit(
            lambda tx: sending.send(tx, draft, sender, recipient, self._rules, verified=verified, then=then)
        )

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
            raise refused(
                "mail_message_invalid", "A message that ends a phase needs one recipient.", hint=hint
            )
        answers = await gather(
            *(
                self.send(
                    draft, sender=sender, recipient=each, verified=verified, from_dashboard=from_dashboard
                )
                for each in recipients
            ),
            return_exceptions=True,
        )
        return [_refusal(answer) if isinstance(answer, BaseException) else answer for answer in answers]

    async def peek(
        self, agent: str, *, limit: int = 100, after: int = 0, exclude: Collection[str] = ()
    ) -> list[StoredMessage]:
        """List the messages waiting in an inbox, in claim order, without consuming them.

        `exclude` skips messages by id, `after` skips those up to this `order`. Use `after` for paging only: a
        concurrent writer may still add a message with a lower order. To detect new mail, pass the ids already seen.
        """
        name = message_lookup.parse_agent_name(agent)

        def look(tx: Transaction, last: bool) -> list[StoredMessage] | None:
            message_lookup.require_agent(tx, name)
            inbox = dropped_files.scan(tx, name)
            if inbox.dropped and not last:
                return None
            entries = inbox.first(limit, after=after, exclude=exclude)
            return list(message_lookup.load_all(tx, name, entries))

        return await self._read_or_deliver(name, look) or []

    async def read(self, agent: str, message_id: str) -> StoredMessage:
        """Return one message to `agent`, in any place, without consuming it. Raises `mail_not_found`."""
        name = message_lookup.parse_agent_name(agent)

        def look(tx: Transaction, last: bool) -> StoredMessage | None:
            message_lookup.require_agent(tx, name)
            entry = message_lookup.find(tx, name, message_id)
            if entry is None or not (last or dropped_files.is_delivered(tx, name, entry)):
                return None
            return message_lookup.load(tx, name, entry)

        message = await self._read_or_deliver(name, look)
        if message is None:
            raise refused("mail_not_found", f"Agent '{name}' has no message '{message_id[:150]}'.")
        return message

    async def wait(
        self,
        agent: str,
        timeout_s: float,
        *,
        limit: int = 100,
        after: int = 0,
        exclude: Collection[str] = (),
    ) -> list[StoredMessage]:
        """Like `peek`, but wait up to `timeout_s` seconds for a message; empty on timeout."""
        name = message_lookup.parse_agent_name(agent)
        changed = Event()
        unsubscribe = self.subscribe(
            lambda change: changed.set() if change.agent in ("", name) else None, agents=(name,)
        )
        deadline = self._loop.time() + timeout_s
        try:
            while True:
                changed.clear()
                messages = await self.peek(name, limit=limit, after=after, exclude=exclude)
                remaining = deadline - self._loop.time()
                if messages or remaining <= 0:
                    return messages
                try:
                    async with timeout(remaining if self._sweeper else min(remaining, POLL_S)):
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
        claim to these messages.
        """
        name = message_lookup.parse_agent_name(agent)
        only = None if ids is None else frozenset(ids)

        def take(tx: Transaction) -> tuple[list[Claimed], list[Delivery]]:
            message_lookup.require_agent(tx, name)
            message_lookup.require_local(tx, name)
            # Claims of all agents: the record of the next expiry spares every other claim a listing.
            dead = claims.return_all_expired(tx) if lease_record.is_due(tx) else []
            inbox, deliveries = dropped_files.deliver(tx, name, self._rules)
            return claims.claim(tx, name, inbox, limit, lease_s, only), dead + deliveries

        claimed, deliveries = await self._writer.run(take, numbers=1)
        self._report_deliveries(deliveries)
        return claimed

    async def renew(
        self, agent: str, message_id: str, *, fence: int, lease_s: float = DEFAULT_LEASE_S
    ) -> Claimed:
        """Extend the lease of a claimed message, keeping the fence. Raises `mail_lease_lost`."""
        name = message_lookup.parse_agent_name(agent)
        return await self._writer.run(lambda tx: claims.renew(tx, name, message_id, fence, lease_s))

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
        name = message_lookup.parse_agent_name(agent)
        if not from_dashboard:
            message_lookup.require_unreserved(name)
        how = AckRequest(fence=fence, outcome=outcome, summary=summary, result=result)
        return await self._writer.commit(
            lambda tx: claims.ack(tx, name, message_id, how, self._rules), numbers=2
        )

    async def withdraw(
        self, agent: str, message_id: str, *, outcome: Outcome, summary: str = "", sender: str = ""
    ) -> Acked:
        """Settle a message to `agent` that nobody has claimed: it is never handed out after that.

        Raises `mail_claimed` if it was handed out before, `mail_not_found` if `sender` did not send it.
        """
        name = message_lookup.parse_agent_name(agent)
        return await self._writer.commit(
            lambda tx: claims.withdraw(tx, name, message_id, outcome, summary, sender)
        )

    async def release(self, agent: str, message_id: str, *, fence: int = 0) -> None:
        """Return a claimed message to its place in the inbox. Raises `mail_lease_lost`."""
        name = message_lookup.parse_agent_name(agent)
        await self._writer.run(lambda tx: claims.release(tx, name, message_id, fence))

    async def receipts(
        self, sender: str, *, ids: Sequence[str] | None = None, limit: int = 100
    ) -> list[Receipt]:
        """Return the latest receipts of messages sent by `sender`, newest first."""
        name = message_lookup.parse_agent_name(sender)
        work = receipts.NewestReceipts(name, ids, limit)
        while (found := await self._reader.run(work.advance)) is None:
            pass  # Others read between two pieces of a listing.
        return found

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

        The first search of a large mailbox waits until all its words are indexed, in pieces that are kept if it is
        cancelled.
        """
        name = message_lookup.parse_agent_name(agent)
        by = message_lookup.parse_agent_name(sender) if sender else None
        criteria = message_search.SearchQuery(
            query=query, sender=by, action=action, places=places, limit=limit, thread=thread
        )
        while True:
            found = await self._reader.run(lambda tx: message_search.search(tx, name, criteria))
            if found is not None:
                return found
            await sleep(INDEXING_PAUSE_S)  # Others read between two pieces.

    async def attachment(self, message: MailMessage) -> bytes:
        """Return the full payload of a message with an attachment, after checking its hash."""
        return await self._reader.run(lambda tx: sending.attachment(tx, message))

    async def deliver(self, agent: str | None = None) -> list[Delivery]:
        """Deliver dropped files for one agent or all. The watcher does this automatically."""
        name = None if agent is None else message_lookup.parse_agent_name(agent)

        def work(tx: Transaction) -> list[Delivery]:
            deliveries: list[Delivery] = []
            if name is None:
                deliveries += dropped_files.collect_misplaced(tx)[1]
            for each in tx.agents() if name is None else [name]:
                deliveries += dropped_files.deliver(tx, each, self._rules)[1]
            return deliveries

        deliveries = await self._writer.run(work)
        self._report_deliveries(deliveries)
        return deliveries

    async def state(self) -> State:
        """Return the contents of `state.json`. An unreadable file is moved aside and rebuilt."""
        state = await self._reader.run(workspace_state.read)
        return state if state is not None else await self.update(dict)

    async def update(self, change: Callable[[State], T]) -> T:
        """Apply `change` to the state under the lock, store the result, and return what `change` returned.

        `change` runs in the writer thread and modifies the state in place. If it raises, the file stays as it was.
        """
        return await self._writer.run(lambda tx: workspace_state.update(tx, change))

    async def run(self, what: Callable[[Transaction], T]) -> T:
        """Run a function with a transaction in the writer thread."""
        return await self._writer.run(what)

    async def commit(self, job: Callable[[Transaction], Job[T]], *, numbers: int = 1) -> T:
        """Run a job as part of a group commit; durable on return."""
        return await self._writer.commit(job, numbers=numbers)

    @property
    def rules(self) -> Sequence[DeliveryRule]:
        """Return the delivery rules applied to every message."""
        return self._rules

    def subscribe(
        self, listener: Callable[[MailboxChange], None], *, agents: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call `listener` on the event loop for every change, by any process; returns the function to unsubscribe.

        With `agents`, only their mailboxes are watched for it, and the state; the listener may hear of others too.
        """
        entry = (listener, None if agents is None else frozenset(agents))
        self._listeners.append(entry)
        self._watch()

        def stop() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)
                self._watch()

        return stop

    def _watch(self) -> None:
        """Watch the mailboxes that listeners need."""
        if self._sweeper is not None:
            needs = [agents for _, agents in self._listeners]
            some = frozenset().union(*(agents for agents in needs if agents is not None))
            self._sweeper.watch(WatchedMailboxes(some, everything=None in needs))

    async def verify(self) -> StoreVerdict:
        """Check every file; the store is sound if each accepted id is in exactly one place."""
        from switchboard_mcp.mail.store.maintenance.verify import verify

        return await self._reader.run(verify)

    async def repair(self) -> list[StoreFinding]:
        """Repair what a crash left: temporary files, half moves, expired leases, missing receipts."""
        from switchboard_mcp.mail.store.maintenance.repair import repair

        return await self._writer.run(repair)

    async def _read_or_deliver(self, agent: str, look: Callable[[Transaction, bool], T | None]) -> T | None:
        """Read in the reader thread; if that finds too little, deliver dropped files and read a `last` time.

        Readers wait for the writer only if files were dropped.
        """
        result = await self._reader.run(lambda tx: look(tx, False))
        if result is not None:
            return result
        try:
            await self.deliver(agent)
        except SwitchboardError:
            pass  # A read-only folder can still be read.
        return await self._reader.run(lambda tx: look(tx, True))

    def _notify_listeners(self, change: MailboxChange) -> None:
        for listener, _ in tuple(self._listeners):
            listener(change)

    def _report_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        if self._report is not None:
            for delivery in deliveries:
                self._report(delivery)


def _refusal(problem: BaseException) -> Failure:
    if isinstance(problem, SwitchboardError):
        return problem.failure
    raise problem
