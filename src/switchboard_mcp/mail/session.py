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
BEAT_S = 5.0
# Nobody works on more at once.
MAX_FENCES = 1_000


class AgentSession:
    """One client. Is a `program.Sitting`. `named` is the agent it is, empty before it has said so."""

    def __init__(self, desk: MailServer, voice: Notifier, caller: ClientIdentity) -> None:
        self.desk = desk
        self.voice = voice
        self.caller = caller
        self.named = ""
        self.fences: dict[str, int] = {}  # of what it has claimed last, by message
        self._hold: PresenceLock | None = None
        self._replaced = False
        self._following: frozenset[str] = frozenset()
        self._beaten = 0.0
        self._registering = asyncio.Lock()

    async def agent(self) -> str:
        """Who the client is; refused where nobody knows."""
        if not self.named and self.caller.principal:
            await self.register(self.caller.principal, kind="chat", interface="http")
        if not self.named:
            raise SwitchboardError(self._nobody())
        await self._beat()
        return self.named

    async def register(self, written: str, **told: object) -> agent_registry.Agent:
        """Be the agent of this name from now on."""
        name = agent_registry.read_name(written)
        async with self._registering:
            refusal = self._refusal(name)
            if refusal is not None:
                raise SwitchboardError(refusal)
            post = await self.desk.post()
            if self.named != name:
                async with self.desk.taking:
                    await self._take(name)
            await post.register(name)
            self._beaten = 0.0
            host = location.host_of(os.environ)
            return await post.update(
                agent_registry.enrol(name, seenAt=agent_registry.now(), host=host, **told)
            )

    def _refusal(self, name: str) -> Failure | None:
        """Why the client cannot be this agent."""
        principal = self.caller.principal
        if principal and agent_name(principal) != name:
            told = f"Your token is that of '{principal}'; you cannot be '{name}'."
            hint = f"Register as '{agent_name(principal)}', or use the token of '{name}' (http.tokens)."
            return failure("mail_identity", told, hint=hint)
        if not principal and name in self.desk.reserved:
            told = f"'{name}' has a token of its own (http.tokens), which this connection does not have."
            return failure(
                "mail_identity", told, hint="Register under another name, or connect with that token."
            )
        if not self.caller.one:
            told = f"Requests without a session cannot be told apart, so nobody is '{name}' here."
            hint = f"Connect with a token of your own (http.tokens has one for '{name}'), or with a session."
            return failure("mail_identity", told, hint=hint)
        if self.named and self.named != name:
            told = f"This connection is '{self.named}'; it cannot be '{name}' too."
            return failure(
                "mail_identity", told, hint="One connection is one agent: connect anew for another."
            )
        return None

    async def _take(self, name: str) -> None:
        desk = self.desk
        if self.caller.principal and desk.shared_hold(name, self):
            self.named = name
            return
        elsewhere = await desk.ask_bus(name) if desk.ask_bus is not None else ""
        if elsewhere:
            told = f"'{name}' lives on another machine (node {elsewhere})."
            raise refused("mail_name_taken", told)
        try:
            hold = desk.vacate(name, self) or await asyncio.to_thread(desk.presence.hold, name)
        except OSError as problem:
            told = f"'{name}' cannot be locked in {FOLDER}/{presence.FOLDER}: {problem.strerror}."
            raise refused("mail_not_stored", told) from None
        if hold is None:
            told = f"'{name}' is connected already, by another process."
            raise refused("mail_name_taken", told)
        self.named, self._hold, self._replaced = name, hold, False
        desk.outlooks.pop(name, None)

    def give_way(self) -> PresenceLock | None:
        """Another connection is this agent now."""
        hold, self._hold = self._hold, None
        self.named, self._replaced = "", True
        self.fences.clear()
        return hold

    def remember(self, claimed: Sequence[Claimed]) -> None:
        """What the client has claimed it may settle."""
        self.fences.update((one.message.id, one.fence) for one in claimed)
        for id in list(self.fences)[:-MAX_FENCES]:
            del self.fences[id]

    def check_sender(self, agent: str, said: str | None) -> None:
        """Refuse a sender that is not who sends."""
        if said is not None and agent_name(said) != agent:
            told = f"You are '{agent}', and cannot send as '{said}'."
            raise refused("mail_identity", told, hint="Leave `sender` out: it is known.")

    async def read(self, uri: str) -> object:
        """What a resource holds."""
        return await resources.read(self, uri)

    def followed(self, uris: frozenset[str]) -> None:
        """The client wants to hear of these."""
        self._following = uris

    def hear(self, change: MailboxChange) -> None:
        """Something has changed: tell the client what it follows of it."""
        for uri in self._following:
            if resources.concerns(change, uri, self.named):
                self.voice.updated(uri)
                if change.kind == "inbox":
                    self.desk.note_woken(self.named)

    async def leave(self) -> None:
        """The client has gone."""
        if self in self.desk.seats:
            self.desk.seats.remove(self)
        self.desk.outlooks.pop(self.named, None)
        hold, self._hold = self._hold, None
        if hold is not None:
            heir = next((seat for seat in self.desk.seats if seat.named == self.named), None)
            if heir is not None:
                heir._hold = hold  # another session of the same principal
            else:
                await asyncio.to_thread(hold.release)
                await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """Leave a note in the state, by which the others hear of it."""
        with suppress(SwitchboardError):
            post = await self.desk.post()
            await post.update(agent_registry.enrol(self.named, seenAt=agent_registry.now()))

    async def _beat(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            await asyncio.to_thread(self.desk.presence.beat, self.named)

    def _nobody(self) -> Failure:
        if not self.caller.one:
            told = "Requests without a session cannot be told apart, so it is not known who you are."
            return failure(
                "mail_identity",
                told,
                hint="Connect with a token of your own (http.tokens), or with a session.",
            )
        if self._replaced:
            told = "Another connection has registered under your name, and is that agent now."
            return failure("mail_not_registered", told)
        return failure("mail_not_registered", "This connection has not said which agent it is.")
