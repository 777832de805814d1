"""One client of the mail server and the agent it acts as: named by its token, else by registration.

Holds the lock on the name, records activity, remembers claims and forwards changes the client has subscribed to.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from switchboard_mcp.config.agent_names import agent_name
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.inprocess.server_app import ClientIdentity, Notifier
from switchboard_mcp.mail import agent_registry, hooks, presence, resources
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import Claimed, Unread
from switchboard_mcp.mail.presence import PresenceLock
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.store import MailboxChange
from switchboard_mcp.mail.wake_rules import WakeRecord, next_announcement
from switchboard_mcp.system.host_process import host_process

if TYPE_CHECKING:
    from switchboard_mcp.mail.server import MailServer

# Resolution of the recorded activity; each record costs a file access.
ACTIVITY_S = 5.0
# The name of the agent, among what the session of the host remembers.
AGENT_KEY = "mail.agent"
# More claims than any client works on at once.
MAX_FENCES = 1_000
# Unread messages that an announcement looks at.
MAX_ANNOUNCED = 100


class AgentSession:
    """A client session. Implements `inprocess.server_app.ClientSession`. `name` is empty until it has registered."""

    def __init__(self, server: MailServer, notifier: Notifier, caller: ClientIdentity) -> None:
        self.server = server
        self.notifier = notifier
        self.caller = caller
        self.name = ""
        self.fences: dict[str, int] = {}  # latest fence of each claimed message
        self.notes: dict[str, str] = {}  # by claimed message: the last note to its sender
        self._lock: PresenceLock | None = None
        self._replaced = False
        self.subscribed: frozenset[str] = frozenset()
        self.waiting = 0  # calls of wait_for_mail in progress: they report new mail themselves
        self.announced = WakeRecord()
        self._announcing: asyncio.Task[None] | None = None
        self._active_at = 0.0
        self._registering = asyncio.Lock()

    async def agent(self) -> str:
        """Return the client's agent name. Raises `mail_not_registered` or `mail_identity` if unknown."""
        if not self.name and self.caller.principal:
            await self.register(self.caller.principal, kind="chat", interface="http")
        if not self.name and AGENT_KEY in self.caller.remembered:
            with suppress(SwitchboardError):  # another connection has the name now
                await self.register(self.caller.remembered[AGENT_KEY])
        if not self.name and self.caller.process is not None:
            await self._resume(self.caller.process)
        if not self.name:
            raise SwitchboardError(self._not_registered())
        await self._record_activity()
        return self.name

    async def _resume(self, process: Mapping[str, object]) -> None:
        """Be the agent again that this host has registered with an earlier broker."""
        agents = (await (await self.server.store()).state()).get("agents", {})
        for name, entry in agents.items() if isinstance(agents, dict) else ():
            if isinstance(entry, dict) and entry.get("host") == process:
                with suppress(SwitchboardError):  # another process has the name now
                    await self.register(name)
                return

    async def register(self, written: str, **details: object) -> agent_registry.Agent:
        """Register the client as the agent of this name."""
        name = rows.require_unreserved(agent_registry.parse_name(written))
        async with self._registering:
            refusal = self._refusal(name)
            if refusal is not None:
                raise SwitchboardError(refusal)
            store = await self.server.store()
            if self.name != name:
                async with self.server.registration_lock:
                    await self._acquire_name(name)
            await store.register(name)
            self._active_at = 0.0
            host = self.caller.process or host_process(os.environ)
            return await store.update(
                agent_registry.register(name, seenAt=agent_registry.now(), host=host, **details)
            )

    def _refusal(self, name: str) -> Failure | None:
        """Return why the client cannot be this agent, or None."""
        principal = self.caller.principal
        if principal and agent_name(principal) != name:
            message = f"Your token is for '{principal}', so you cannot be '{name}'."
            hint = f"Register as '{agent_name(principal)}', or use the token of '{name}' (http.tokens)."
            return failure("mail_identity", message, hint=hint)
        if not principal and name in self.server.reserved:
            message = (
                f"'{name}' is reserved for its own token (http.tokens), which this connection does not use."
            )
            return failure(
                "mail_identity", message, hint="Register under another name, or connect with that token."
            )
        if not self.caller.is_single_client:
            message = (
                f"Cannot register '{name}': this connection has no session, so its requests cannot be attributed to "
                "one agent."
            )
            hint = f"Connect with a token of your own (http.tokens for '{name}'), or with a session."
            return failure("mail_identity", message, hint=hint)
        if self.name and self.name != name:
            message = f"This connection is already '{self.name}', so it cannot be '{name}' too."
            return failure(
                "mail_identity", message, hint="One connection is one agent. Open another connection."
            )
        return None

    async def _acquire_name(self, name: str) -> None:
        server = self.server
        if self.caller.principal and server.has_other_session(name, self):
            self.name = name
            server.watch_mailboxes()
            return
        try:
            lock = server.take_over(name, self) or await asyncio.to_thread(server.presence.acquire, name)
        except OSError as problem:
            message = f"Cannot lock the name '{name}' in {FOLDER}/{presence.FOLDER}: {problem.strerror}."
            raise refused("mail_not_stored", message) from None
        if lock is None:
            message = f"Agent '{name}' is already connected through another process."
            raise refused("mail_name_taken", message)
        self.name, self._lock, self._replaced = name, lock, False
        self.caller.remembered[AGENT_KEY] = name
        server.watch_mailboxes()
        server.forget_warning(name)

    def release_name(self) -> PresenceLock | None:
        """Give up the name to another connection and return its lock."""
        lock, self._lock = self._lock, None
        self.name, self._replaced = "", True
        self.caller.remembered.pop(AGENT_KEY, None)
        self.fences.clear()
        return lock

    def inherit_lock(self, lock: PresenceLock) -> None:
        """Hold the lock on the name from now on; the session that held it has ended."""
        self._lock = lock

    def remember_claims(self, claimed: Sequence[Claimed]) -> None:
        """Remember the fences of claimed messages, for `ack_message`."""
        self.fences.update((claim.message.id, claim.fence) for claim in claimed)
        for id in list(self.fences)[:-MAX_FENCES]:
            del self.fences[id]
            self.notes.pop(id, None)

    def require_fence(self, id: str, fence: int | None) -> int:
        """Return the fence of a message, claimed here or with this fence. Raises `mail_lease_lost`."""
        known_fence = fence or self.fences.get(id)
        if known_fence is None:
            message = f"Message '{id}' was not claimed through this connection."
            hint = "Claim it first, or pass the `fence` from claim_messages."
            raise refused("mail_lease_lost", message, hint=hint)
        return known_fence

    def check_sender(self, agent: str, claimed: str | None) -> None:
        """Raise `mail_identity` if the client claims to be another sender."""
        if claimed is not None and agent_name(claimed) != agent:
            message = f"You are '{agent}', so you cannot send as '{claimed}'."
            raise refused("mail_identity", message, hint="Omit `sender`; it is filled in.")

    async def read(self, uri: str) -> object:
        """Return the contents of a resource."""
        return await resources.read(self, uri)

    def subscriptions_changed(self, uris: frozenset[str]) -> None:
        """Set the resources the client is subscribed to."""
        self.subscribed = uris
        self.server.watch_mailboxes()

    def on_change(self, change: MailboxChange) -> None:
        """Notify the client if the change affects a subscribed resource."""
        for uri in self.subscribed:
            if resources.is_affected(change, uri, self.name):
                self.notifier.resource_updated(uri)
                if change.kind == "inbox":
                    self.server.note_notified(self.name)

        if change.kind == "inbox" and change.agent in ("", self.name) and self.server.settings.channel:
            self._announce()

    def _announce(self) -> None:
        """Wake the client's session with a channel event, unless that is under way."""
        if self.name and (self._announcing is None or self._announcing.done()):
            self._announcing = self.server.start_task(self._announce_mail())

    async def _announce_mail(self) -> None:
        loop = asyncio.get_running_loop()
        while self.name and not self.waiting:
            store = await self.server.store()
            unread = await store.peek(self.name, limit=MAX_ANNOUNCED)
            orders = [stored.order for stored in unread] or [0]
            decided = next_announcement(self.announced, min(orders), max(orders), loop.time())
            if isinstance(decided, float):
                if not decided:
                    return
                await asyncio.sleep(decided)
                continue
            self.announced = decided
            waiting = Unread(len(unread), unread[: hooks.MAX_LISTED])
            self.notifier.channel_event(hooks.format_notice(self.name, waiting), {"agent": self.name})
            self.server.note_notified(self.name)

    async def close(self) -> None:
        """End the session."""
        if self._announcing is not None:
            self._announcing.cancel()
        if self in self.server.sessions:
            self.server.sessions.remove(self)
            self.server.watch_mailboxes()
        self.server.forget_warning(self.name)
        lock, self._lock = self._lock, None
        if lock is not None:
            heir = next((session for session in self.server.sessions if session.name == self.name), None)
            if heir is not None:
                heir.inherit_lock(lock)  # another session of the same principal
            else:
                await asyncio.to_thread(lock.release)
                await self._record_departure()

    async def _record_departure(self) -> None:
        """Update the state, which notifies the other agents."""
        with suppress(SwitchboardError):
            store = await self.server.store()
            await store.update(agent_registry.register(self.name, seenAt=agent_registry.now()))

    async def _record_activity(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._active_at >= ACTIVITY_S:
            self._active_at = now
            await asyncio.to_thread(self.server.presence.record_activity, self.name)

    def _not_registered(self) -> Failure:
        if not self.caller.is_single_client:
            message = "This connection has no session, so its requests cannot be attributed to an agent."
            return failure(
                "mail_identity",
                message,
                hint="Connect with a token of your own (http.tokens), or with a session.",
            )
        if self._replaced:
            message = "Another connection has registered under your name and replaced this one."
            return failure("mail_not_registered", message)
        return failure("mail_not_registered", "This connection has not registered as an agent.")
