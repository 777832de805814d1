"""The desk: the message desk as an MCP server, with a seat for each client.

Opens the store when it is first needed, tells seats of news, warns of mail that waits while nobody was told of it, and
takes away what was settled long ago.
Who a client is, is its `seat`'s matter; what the tools do is in `tools`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.inprocess.server_app import ClientIdentity, Notifier, Resource, ToolSpec
from switchboard_mcp.mail import resources
from switchboard_mcp.mail.agent_names import agent_name
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import Delivery
from switchboard_mcp.mail.personas import Personas
from switchboard_mcp.mail.presence import Presence, PresenceLock, UnclaimedMail
from switchboard_mcp.mail.roles import OVERSEER
from switchboard_mcp.mail.session import AgentSession
from switchboard_mcp.mail.store.delivery_rules import load_rules
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.observability.log import Log

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
# Often enough that a warning comes soon after its time.
CHECKS_PER_PERIOD = 4
MAX_CHECK_S = 60.0
DAY_S = 86_400.0
# How long what was seen of a recipient is told to its senders.
WARNING_CACHE_S = 2.0

INSTRUCTIONS = (
    "Mail between agents. Begin with register_chat_agent (or register_terminal): that is who you are from then on. "
    "Send with send_message. To receive: wait_for_mail or check_inbox (both only look), then claim_messages, do what "
    "they ask, and ack_message each; with `result` your answer goes back to the sender. list_agents shows who is here."
)


class MailServer:
    """See the module. Is a `program.Program`."""

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
    ) -> None:
        folder = os.path.join(workspace, FOLDER)
        self.presence = Presence(folder)
        self.personas = Personas(folder)
        self.starving_s = settings.starving_ms / 1000
        self._keep_s = settings.keep_days * DAY_S
        self._pruned_at = -DAY_S
        self.sessions: list[AgentSession] = []
        self.reserved = frozenset(
            map(agent_name, (*reserved, OVERSEER))
        )  # for those who have a token of that name
        self.registration_lock = asyncio.Lock()
        # On which other machine an agent of this name lives, where machines are joined; empty for none.
        self.find_remote: Callable[[str], Coroutine[Any, Any, str]] | None = None
        self._workspace = workspace
        self._log = log
        self._start_task = start_task
        self._store: MessageStore | None = None
        self._opening = asyncio.Lock()
        self._unsubscribe: Callable[[], None] | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._warned: dict[str, str] = {}
        self.delivery_warnings: dict[str, tuple[float, str]] = {}  # when it was looked, and what was seen
        self._closed = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """All of them."""
        from switchboard_mcp.mail.tools.table import TOOLS  # Only when somebody opens the suite.

        return TOOLS

    async def open_session(self, notifier: Notifier, caller: ClientIdentity) -> AgentSession:
        """One more client."""
        session = AgentSession(self, notifier, caller)
        self.sessions.append(session)
        return session

    async def store(self) -> MessageStore:
        """The store, opened once. Where it cannot be opened, every try says why."""
        async with self._opening:
            if self._closed:
                raise refused("shutting_down", "Switchboard is stopping; the mail desk with it.")
            if self._store is None:
                store = await MessageStore.open(
                    self._workspace, rules=load_rules(self._workspace), report=self._on_delivery
                )
                self._store = store
                self._unsubscribe = store.subscribe(self._on_change)
                self._maintenance = self._start_task(self._maintain())
            return self._store

    async def close(self) -> None:
        """All clients have gone."""
        self._closed = True
        async with self._opening:
            if self._maintenance is not None:
                self._maintenance.cancel()
            if self._unsubscribe is not None:
                self._unsubscribe()
            if self._store is not None:
                store, self._store = self._store, None
                await store.close()

    def take_over(self, agent: str, newcomer: AgentSession) -> PresenceLock | None:
        """Whoever was this agent in this process is it no longer; what it held is handed on."""
        for session in self.sessions:
            if session is not newcomer and session.name == agent and not session.caller.principal:
                return session.release_name()
        return None

    def has_other_session(self, agent: str, newcomer: AgentSession) -> bool:
        """Whether another client of the same principal is here: then both are the one agent."""
        return any(session is not newcomer and session.name == agent for session in self.sessions)

    async def delivery_warning(self, recipient: str) -> str:
        """What a sender should know of a recipient that may not read this soon; looked at now and then."""
        now = asyncio.get_running_loop().time()
        checked_at, warning = self.delivery_warnings.get(recipient, (-WARNING_CACHE_S, ""))
        if now - checked_at >= WARNING_CACHE_S:
            self.delivery_warnings[recipient] = (now, warning)  # whoever asks meanwhile need not look too
            warning = await asyncio.to_thread(self._check_recipient, recipient)
            self.delivery_warnings[recipient] = (now, warning)
        return warning

    def _check_recipient(self, recipient: str) -> str:
        waiting = self.presence.unclaimed(recipient, self.starving_s)
        if waiting.starving:
            return unread_warning(recipient, waiting)
        here, _ = self.presence.status(recipient)
        return f"'{recipient}' is not here now; the message waits in its inbox." if here == "offline" else ""

    def note_notified(self, agent: str) -> None:
        """An agent has been told that there is mail, or has looked."""
        self._start_task(asyncio.to_thread(self.presence.record_notified, agent))

    def _on_change(self, change: MailboxChange) -> None:
        """Something is new in the files, by whomever."""
        for session in self.sessions:
            session.on_change(change)

    def _on_delivery(self, delivery: Delivery) -> None:
        """A dropped file was taken or not."""
        if delivery.problem is not None:
            self._log.warning(
                "mail.refused", agent=delivery.agent, file=delivery.file, problem=delivery.problem.message
            )
        else:
            self._start_task(self.send_workflow_notices())

    async def send_workflow_notices(self) -> None:
        """Tell whose turn it is in a workflow, where a letter or somebody who died has left it untold."""
        from switchboard_mcp.mail.workflows.engine import send_pending_notices

        try:
            await send_pending_notices(await self.store())
        except SwitchboardError as problem:
            self._log.warning("mail.look_failed", problem=problem.failure.message)

    async def _maintain(self) -> None:
        """Warn, once for each first of a queue, of mail that nobody was told of."""
        while True:
            await asyncio.sleep(min(MAX_CHECK_S, self.starving_s / CHECKS_PER_PERIOD))
            try:
                await self.send_workflow_notices()
                await self._warn_unread()
                await self._prune()
            except (OSError, SwitchboardError) as problem:
                self._log.warning("mail.look_failed", problem=str(problem))

    async def _prune(self) -> None:
        """Once a day, take away what was settled long ago, where somebody wants that."""
        now = asyncio.get_running_loop().time()
        if not self._keep_s or now - self._pruned_at < DAY_S:
            return
        from switchboard_mcp.mail.store.maintenance.retention import prune

        self._pruned_at = now
        done = await prune(await self.store(), self._keep_s)
        if done.messages:
            self._log.info("mail.pruned", messages=done.messages, receipts=done.receipts)

    async def _warn_unread(self) -> None:
        store = await self.store()
        for agent in await store.agents():
            waiting = await asyncio.to_thread(self.presence.unclaimed, agent, self.starving_s)
            if not waiting.starving:
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
                self._log.warning("mail.starving", agent=agent, unread=waiting.unread, problem=text)
                for session in concerned:
                    session.notifier.log_message("warning", text)


def unread_warning(agent: str, waiting: UnclaimedMail) -> str:
    """What is said of mail that nobody was told of."""
    return (
        f"{waiting.unread} message(s) wait for '{agent}', the oldest for {waiting.oldest_s:.0f} s, and nobody was "
        f"woken. '{agent}' should call wait_for_mail or check_inbox, follow switchboard://inbox/{agent}, or have a "
        "mail hook."
    )
