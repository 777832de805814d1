"""One client of the desk, and which agent it is: by the name of its token, else by the name it has registered under.

Owns that question and what hangs on it: the lock on the name, signs of life, what the client has claimed, which
changes it is told of. Letters are the store's matter, tools are in `tools`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.inprocess.server_app import ClientIdentity, Notifier
from switchboard_mcp.mail import agent_registry, location, presence, resources
from switchboard_mcp.mail.agent_names import agent_name
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import Claimed
from switchboard_mcp.mail.presence import PresenceLock
from switchboard_mcp.mail.store.store import MailboxChange

if TYPE_CHECKING:
    from switchboard_mcp.mail.server import MailServer

# A sign of life says when, to about this; each costs a look at the disk.
ACTIVITY_S = 5.0
# Nobody works on more at once.
MAX_FENCES = 1_000


class AgentSession:
    """One client. Is a `program.Sitting`. `named` is the agent it is, empty before it has said so."""

    def __init__(self, server: MailServer, notifier: Notifier, caller: ClientIdentity) -> None:
        self.server = server
        self.notifier = notifier
        self.caller = caller
        self.name = ""
        self.fences: dict[str, int] = {}  # of what it has claimed last, by message
        self._lock: PresenceLock | None = None
        self._replaced = False
        self._subscribed: frozenset[str] = frozenset()
        self._active_at = 0.0
        self._registering = asyncio.Lock()

    async def agent(self) -> str:
        """Who the client is; refused where nobody knows."""
        if not self.name and self.caller.principal:
            await self.register(self.caller.principal, kind="chat", interface="http")
        if not self.name:
            raise SwitchboardError(self._not_registered())
        await self._record_activity()
        return self.name

    async def register(self, written: str, **details: object) -> agent_registry.Agent:
        """Be the agent of this name from now on."""
        name = agent_registry.parse_name(written)
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
            host = location.host_of(os.environ)
            return await store.update(
                agent_registry.register(name, seenAt=agent_registry.now(), host=host, **details)
            )

    def _refusal(self, name: str) -> Failure | None:
        """Why the client cannot be this agent."""
        principal = self.caller.principal
        if principal and agent_name(principal) != name:
            message = f"Your token is that of '{principal}'; you cannot be '{name}'."
            hint = f"Register as '{agent_name(principal)}', or use the token of '{name}' (http.tokens)."
            return failure("mail_identity", message, hint=hint)
        if not principal and name in self.server.reserved:
            message = f"'{name}' has a token of its own (http.tokens), which this connection does not have."
            return failure(
                "mail_identity", message, hint="Register under another name, or connect with that token."
            )
        if not self.caller.is_single_client:
            message = f"Requests without a session cannot be told apart, so nobody is '{name}' here."
            hint = f"Connect with a token of your own (http.tokens has one for '{name}'), or with a session."
            return failure("mail_identity", message, hint=hint)
        if self.name and self.name != name:
            message = f"This connection is '{self.name}'; it cannot be '{name}' too."
            return failure(
                "mail_identity", message, hint="One connection is one agent: connect anew for another."
            )
        return None

    async def _acquire_name(self, name: str) -> None:
        server = self.server
        if self.caller.principal and server.has_other_session(name, self):
            self.name = name
            return
        node = await server.find_remote(name) if server.find_remote is not None else ""
        if node:
            message = f"'{name}' lives on another machine (node {node})."
            raise refused("mail_name_taken", message)
        try:
            hold = server.take_over(name, self) or await asyncio.to_thread(server.presence.acquire, name)
        except OSError as problem:
            message = f"'{name}' cannot be locked in {FOLDER}/{presence.FOLDER}: {problem.strerror}."
            raise refused("mail_not_stored", message) from None
        if hold is None:
            message = f"'{name}' is connected already, by another process."
            raise refused("mail_name_taken", message)
        self.name, self._lock, self._replaced = name, hold, False
        server.delivery_warnings.pop(name, None)

    def release_name(self) -> PresenceLock | None:
        """Another connection is this agent now."""
        hold, self._lock = self._lock, None
        self.name, self._replaced = "", True
        self.fences.clear()
        return hold

    def remember_claims(self, claimed: Sequence[Claimed]) -> None:
        """What the client has claimed it may settle."""
        self.fences.update((one.message.id, one.fence) for one in claimed)
        for id in list(self.fences)[:-MAX_FENCES]:
            del self.fences[id]

    def check_sender(self, agent: str, claimed: str | None) -> None:
        """Refuse a sender that is not who sends."""
        if claimed is not None and agent_name(claimed) != agent:
            message = f"You are '{agent}', and cannot send as '{claimed}'."
            raise refused("mail_identity", message, hint="Leave `sender` out: it is known.")

    async def read(self, uri: str) -> object:
        """What a resource holds."""
        return await resources.read(self, uri)

    def subscriptions_changed(self, uris: frozenset[str]) -> None:
        """The client wants to hear of these."""
        self._subscribed = uris

    def on_change(self, change: MailboxChange) -> None:
        """Something has changed: tell the client what it follows of it."""
        for uri in self._subscribed:
            if resources.is_affected(change, uri, self.name):
                self.notifier.resource_updated(uri)
                if change.kind == "inbox":
                    self.server.note_notified(self.name)

    async def close(self) -> None:
        """The client has gone."""
        if self in self.server.sessions:
            self.server.sessions.remove(self)
        self.server.delivery_warnings.pop(self.name, None)
        hold, self._lock = self._lock, None
        if hold is not None:
            heir = next((session for session in self.server.sessions if session.name == self.name), None)
            if heir is not None:
                heir._lock = hold  # another session of the same principal
            else:
                await asyncio.to_thread(hold.release)
                await self._record_departure()

    async def _record_departure(self) -> None:
        """Leave a note in the state, by which the others hear of it."""
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
            message = "Requests without a session cannot be told apart, so it is not known who you are."
            return failure(
                "mail_identity",
                message,
                hint="Connect with a token of your own (http.tokens), or with a session.",
            )
        if self._replaced:
            message = "Another connection has registered under your name, and is that agent now."
            return failure("mail_not_registered", message)
        return failure("mail_not_registered", "This connection has not said which agent it is.")
