"""The mail server: an in-process MCP server with one `AgentSession` per client.

Opens the store on first use, notifies sessions of changes, warns of mail that waits unnoticed, advances workflow
notices, and prunes old messages. Identity is handled in `session`, the tools in `tools`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import ModuleType
from typing import Any

from switchboard_mcp.config.agent_names import agent_name
from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.inprocess.server_app import ClientIdentity, Notifier, Resource, ToolSpec
from switchboard_mcp.mail import resources
from switchboard_mcp.mail.agent_session import AgentSession
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import Delivery
from switchboard_mcp.mail.overseer import OverseerNotes
from switchboard_mcp.mail.personas import Personas
from switchboard_mcp.mail.presence import Presence, PresenceLock, UnclaimedMail
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.mail.store.reading import Waiting
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.observability.log import Log

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
# Checks per warning period, so a warning is sent soon after it is due.
CHECKS_PER_PERIOD = 4
MAX_CHECK_S = 60.0
DAY_S = 86_400.0
# A claim counts as a notification: those of a busy agent are recorded this often.
NOTIFIED_S = 0.2
# How long a delivery warning about a recipient is reused.
WARNING_CACHE_S = 2.0

INSTRUCTIONS = (
    "Mail between agents. First call register_chat_agent (or register_terminal) to set your name. Send with "
    "send_message. To receive: wait_for_mail or check_inbox (both read-only), then claim_messages, do the work, and "
    "ack_message each; `result` is sent back as your answer. list_agents shows who is here."
)


class MailServer:
    """Mail for the agents of one workspace. Implements `inprocess.server_app.ServerApp`."""

    name = "mail"
    instructions = INSTRUCTIONS
    resources: Sequence[Resource] = resources.RESOURCES

    def __init__(
        self,
        workspace: str,
        settings: MailSettings,
        log: Log,
        start_task: StartTask,
        reserved: Iterable[str] = (),
        database: str = "",
    ) -> None:
        folder = os.path.join(workspace, FOLDER)
        self.presence = Presence(folder)
        self.personas = Personas(folder)
        self.settings = settings
        self.unread_warn_s = settings.unread_warn_ms / 1000
        self._keep_s = settings.keep_days * DAY_S
        self._database = database
        self._pruned_at = -DAY_S
        self.sessions: list[AgentSession] = []
        self.reserved = frozenset(map(agent_name, reserved))  # usable only with a token of that name
        self.registration_lock = asyncio.Lock()
        self.workspace = workspace
        self._log = log
        self.start_task = start_task
        self._store: MessageStore | None = None
        self._opening = asyncio.Lock()
        self._unsubscribe: Callable[[], None] | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._warned: dict[str, str] = {}
        # Agents that were written to, or whose inbox has changed since it was empty; an empty name means any.
        self._maybe_unread = {""}
        self._watched: set[str] | None = None
        # Agents whose notification was recorded just now; True if they were notified again.
        self._notified: dict[str, bool] = {}
        self._delivery_warnings: dict[str, tuple[float, str]] = {}  # by recipient: time of the check, warning
        self._closed = False
        self.notes = OverseerNotes(self.store, start_task, log)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Return the tool table."""
        from switchboard_mcp.mail.tools.table import TOOLS  # Loaded when a client opens the suite.

        return TOOLS

    async def open_session(self, notifier: Notifier, caller: ClientIdentity) -> AgentSession:
        """Open a session for a client."""
        session = AgentSession(self, notifier, caller)
        self.sessions.append(session)
        return session

    async def store(self) -> MessageStore:
        """Return the store, opened on first use. Raises on every call if it cannot be opened."""
        async with self._opening:
            if self._closed:
                raise refused("shutting_down", "Switchboard is shutting down, and the mail server with it.")
            if self._store is None:
                store = await open_mail(
                    self.workspace,
                    self.settings,
                    database=self._database,
                    report=self._on_delivery,
                    say=lambda text: self._log.info("mail.migrated", note=text),
                )
                self._store = store
                self.watch_mailboxes()
                self._maintenance = self.start_task(self._maintain())
            return self._store

    async def serve_files(self) -> None:
        """Open the store at the start, for agents that only have files."""
        try:
            await self.store()
        except SwitchboardError as problem:
            self._log.warning("mail.away", problem=problem.failure.message)

    def watch_mailboxes(self) -> None:
        """Watch the mailboxes of the sessions that are subscribed to resources, or woken by events."""
        agents = {
            session.name
            for session in self.sessions
            if session.name and (session.subscribed or self.settings.channel)
        }
        if self._store is not None and agents != self._watched:
            stop, self._watched = self._unsubscribe, agents
            self._unsubscribe = self._store.subscribe(self._on_change, agents=agents)
            if stop is not None:
                stop()

    async def close(self) -> None:
        """Close the store; all clients have gone."""
        self._closed = True
        for agent in [agent for agent, again in self._notified.items() if again]:
            await asyncio.to_thread(self.presence.record_notified, agent)
        async with self._opening:
            if self._maintenance is not None:
                self._maintenance.cancel()
            if self._unsubscribe is not None:
                self._unsubscribe()
            if self._store is not None:
                store, self._store = self._store, None
                await store.close()

    def take_over(self, agent: str, newcomer: AgentSession) -> PresenceLock | None:
        """End the session of the same host that has this name in this process, and return its lock."""
        for session in self.sessions:
            is_same_host = session.caller.process == newcomer.caller.process
            if (
                session is not newcomer
                and session.name == agent
                and is_same_host
                and not session.caller.principal
            ):
                return session.release_name()
        return None

    def has_other_session(self, agent: str, newcomer: AgentSession) -> bool:
        """Return True if another client of the same principal is connected; both are the same agent."""
        return any(session is not newcomer and session.name == agent for session in self.sessions)

    async def check_recipient(self, recipient: str) -> str:
        """Return a warning for the sender if the recipient may not read its mail soon; checked now and then."""
        self._maybe_unread.add(recipient)
        now = asyncio.get_running_loop().time()
        checked_at, warning = self._delivery_warnings.get(recipient, (-WARNING_CACHE_S, ""))
        if now - checked_at < WARNING_CACHE_S:
            return warning
        self._delivery_warnings[recipient] = (now, warning)  # concurrent callers need not check too
        waiting = await (await self.store()).waiting_for(recipient)
        warning = await asyncio.to_thread(self._warning_for, recipient, waiting)
        self._delivery_warnings[recipient] = (now, warning)
        return warning

    def forget_warning(self, recipient: str) -> None:
        """Check this recipient again at the next message."""
        self._delivery_warnings.pop(recipient, None)

    def _warning_for(self, recipient: str, counted: Waiting) -> str:
        waiting = self.presence.unclaimed(recipient, self.unread_warn_s, counted)
        if waiting.overdue:
            return unread_warning(recipient, waiting)
        status, _ = self.presence.status(recipient)
        return f"'{recipient}' is offline; the message waits in its inbox." if status == "offline" else ""

    def note_notified(self, agent: str) -> None:
        """Record that an agent was notified of its mail, or has looked: now, and once for all calls soon after."""
        if agent in self._notified:
            self._notified[agent] = True
        elif not self._closed:
            self._notified[agent] = False
            self.start_task(asyncio.to_thread(self.presence.record_notified, agent))
            asyncio.get_running_loop().call_later(NOTIFIED_S, self._note_again, agent)

    def _note_again(self, agent: str) -> None:
        if self._notified.pop(agent, False):
            self.note_notified(agent)

    def _on_change(self, change: MailboxChange) -> None:
        """Pass a file change, by any process, to the sessions."""
        if change.kind == "inbox":
            self._maybe_unread.add(change.agent)
        for session in self.sessions:
            session.on_change(change)

    def _on_delivery(self, delivery: Delivery) -> None:
        """Handle a delivered or rejected dropped file."""
        if delivery.problem is not None:
            self._log.warning(
                "mail.refused", agent=delivery.agent, file=delivery.file, problem=delivery.problem.message
            )
        else:
            self.start_task(self.send_workflow_notices())

    async def send_workflow_notices(self) -> None:
        """Send workflow notices left unsent by a dropped message or a process that died."""
        try:
            await _upkeep().send_pending_notices(await self.store())
        except SwitchboardError as problem:
            self._log.warning("mail.maintenance_failed", problem=problem.failure.message)

    async def _maintain(self) -> None:
        """Send workflow notices, warn of unnoticed mail and prune, periodically."""
        while True:
            await asyncio.sleep(min(MAX_CHECK_S, self.unread_warn_s / CHECKS_PER_PERIOD))
            try:
                await self.send_workflow_notices()
                await self._act_on_deadlines()
                await self._warn_unread()
                await self._prune()
            except (OSError, SwitchboardError) as problem:
                self._log.warning("mail.maintenance_failed", problem=str(problem))

    async def _act_on_deadlines(self) -> None:
        for id in await _upkeep().act_on_deadlines(await self.store()):
            self._log.warning("mail.overdue", id=id)

    async def _prune(self) -> None:
        """Prune old messages once a day, if `mail.keepDays` is set."""
        now = asyncio.get_running_loop().time()
        if not self._keep_s or now - self._pruned_at < DAY_S:
            return
        self._pruned_at = now
        count = await (await self.store()).prune(self._keep_s)
        if count:
            self._log.info("mail.pruned", messages=count)

    async def _warn_unread(self) -> None:
        store = await self.store()
        if "" in self._maybe_unread:
            self._maybe_unread = set(await store.agents())
        for agent in sorted(self._maybe_unread):
            self._maybe_unread.discard(agent)
            counted = await store.waiting_for(agent)
            waiting = await asyncio.to_thread(self.presence.unclaimed, agent, self.unread_warn_s, counted)
            if waiting.unread:
                self._maybe_unread.add(agent)
            if not waiting.overdue:
                self._warned.pop(agent, None)
                continue
            messages = await store.peek(agent, limit=20)
            if not messages or self._warned.get(agent) == messages[0].message.id:
                continue
            senders = {message.message.sender for message in messages}
            concerned = [
                session for session in self.sessions if session.name in senders or session.name == agent
            ]
            if concerned:
                self._warned[agent] = messages[0].message.id
                text = unread_warning(agent, waiting)
                self._log.warning("mail.unread_overdue", agent=agent, unread=waiting.unread, problem=text)
                for session in concerned:
                    session.notifier.log_message("warning", text)


def _upkeep() -> ModuleType:
    from switchboard_mcp.mail import upkeep  # Not needed to serve a host's first requests.

    return upkeep


def unread_warning(agent: str, waiting: UnclaimedMail) -> str:
    """Return the warning for mail whose recipient was not notified."""
    return (
        f"{waiting.unread} message(s) wait for '{agent}', the oldest for {waiting.oldest_s:.0f} s, and it was not "
        f"notified. '{agent}' should call wait_for_mail or check_inbox, subscribe to switchboard://inbox/{agent}, or "
        "use a mail hook."
    )
