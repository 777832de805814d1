"""The desk: the message desk as an MCP server, with a seat for each client.

A seat knows which agent its client is: by the name of the client's token, else by the name it has registered under.
The desk opens the store when it is first needed, tells seats of news, and warns of mail that waits while nobody was
told of it. What the tools do is in `tools`; letters are the store's matter.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from switchboard_mcp.config.mail import Mail
from switchboard_mcp.core.agentnames import agent_name
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail import directory, presence, resources
from switchboard_mcp.mail.gates import FOLDER, gates
from switchboard_mcp.mail.letters import Claimed, Delivery
from switchboard_mcp.mail.personas import Personas
from switchboard_mcp.mail.post import Change, Post
from switchboard_mcp.mail.presence import Hold, Presence, Waiting
from switchboard_mcp.observe.log import Log
from switchboard_mcp.transport.inhouse import Caller, Resource, Server, Tool

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
# Often enough that a warning comes soon after its time.
LOOKS_PER_TIME = 4
LONGEST_LOOK_S = 60.0
# A sign of life says when, to about this; each costs a look at the disk.
BEAT_S = 5.0
# How long what was seen of a recipient is told to its senders.
LOOK_AGAIN_S = 2.0
# Nobody works on more at once.
MOST_FENCES = 1_000

INSTRUCTIONS = (
    "Mail between agents. Begin with register_chat_agent (or register_terminal): that is who you are from then on. "
    "Send with send_message. To receive: wait_for_mail or check_inbox (both only look), then claim_messages, do what "
    "they ask, and ack_message each; with `result` your answer goes back to the sender. list_agents shows who is here."
)


class Desk:
    """See the module. Is an `inhouse.Program`."""

    name = "mail"
    instructions = INSTRUCTIONS
    resources: Sequence[Resource] = resources.RESOURCES

    def __init__(
        self,
        workspace: str,
        settings: Mail,
        log: Log,
        start_task: StartTask,
        reserved: Iterable[str] = (),
    ) -> None:
        folder = os.path.join(workspace, FOLDER)
        self.presence = Presence(folder)
        self.personas = Personas(folder)
        self.starving_s = settings.starving_ms / 1000
        self.seats: list[Seat] = []
        self.reserved = frozenset(map(agent_name, reserved))  # for those who have a token of that name
        self.taking = asyncio.Lock()
        self._workspace = workspace
        self._log = log
        self._start_task = start_task
        self._post: Post | None = None
        self._opening = asyncio.Lock()
        self._hush: Callable[[], None] | None = None
        self._look_out: asyncio.Task[None] | None = None
        self._warned: dict[str, str] = {}
        self.outlooks: dict[str, tuple[float, str]] = {}  # when it was looked, and what was seen
        self._closed = False

    @property
    def tools(self) -> Sequence[Tool]:
        """All of them."""
        from switchboard_mcp.mail.tools import TOOLS  # which know the desk

        return TOOLS

    async def sit(self, server: Server, caller: Caller) -> Seat:
        """One more client."""
        seat = Seat(self, server, caller)
        self.seats.append(seat)
        return seat

    async def post(self) -> Post:
        """The store, opened once. Where it cannot be opened, every try says why."""
        async with self._opening:
            if self._closed:
                raise SwitchboardError(
                    failure("shutting_down", "Switchboard is stopping; the mail desk with it.")
                )
            if self._post is None:
                post = await Post.open(self._workspace, gates=gates(self._workspace), report=self._delivered)
                self._post = post
                self._hush = post.subscribe(self._changed)
                self._look_out = self._start_task(self._look_after())
            return self._post

    async def close(self) -> None:
        """All clients have gone."""
        self._closed = True
        async with self._opening:
            if self._look_out is not None:
                self._look_out.cancel()
            if self._hush is not None:
                self._hush()
            if self._post is not None:
                post, self._post = self._post, None
                await post.close()

    def vacate(self, agent: str, newcomer: Seat) -> Hold | None:
        """Whoever was this agent in this process is it no longer; what it held is handed on."""
        for seat in self.seats:
            if seat is not newcomer and seat.named == agent and not seat.caller.principal:
                return seat.give_way()
        return None

    def shared_hold(self, agent: str, newcomer: Seat) -> bool:
        """Whether another client of the same principal is here: then both are the one agent."""
        return any(seat is not newcomer and seat.named == agent for seat in self.seats)

    async def outlook(self, recipient: str) -> str:
        """What a sender should know of a recipient that may not read this soon; looked at now and then."""
        now = asyncio.get_running_loop().time()
        looked, told = self.outlooks.get(recipient, (-LOOK_AGAIN_S, ""))
        if now - looked >= LOOK_AGAIN_S:
            self.outlooks[recipient] = (now, told)  # whoever asks meanwhile need not look too
            told = await asyncio.to_thread(self._look, recipient)
            self.outlooks[recipient] = (now, told)
        return told

    def _look(self, recipient: str) -> str:
        waiting = self.presence.waiting(recipient, self.starving_s)
        if waiting.starving:
            return starvation(recipient, waiting)
        here, _ = self.presence.here(recipient)
        return f"'{recipient}' is not here now; the message waits in its inbox." if here == "offline" else ""

    def note_woken(self, agent: str) -> None:
        """An agent has been told that there is mail, or has looked."""
        self._start_task(asyncio.to_thread(self.presence.woken, agent))

    def _changed(self, change: Change) -> None:
        """Something is new in the files, by whomever."""
        for uri in resources.affected(change, [seat.named for seat in self.seats]):
            for seat in self.seats:
                seat.tell(uri, change)

    def _delivered(self, delivery: Delivery) -> None:
        """A dropped file was taken or not."""
        if delivery.problem is not None:
            self._log.warning(
                "mail.refused", agent=delivery.agent, file=delivery.file, problem=delivery.problem.message
            )

    async def _look_after(self) -> None:
        """Warn, once for each first of a queue, of mail that nobody was told of."""
        while True:
            await asyncio.sleep(min(LONGEST_LOOK_S, self.starving_s / LOOKS_PER_TIME))
            try:
                await self._warn()
            except (OSError, SwitchboardError) as problem:
                self._log.warning("mail.look_failed", problem=str(problem))

    async def _warn(self) -> None:
        post = await self.post()
        for agent in await post.agents():
            waiting = await asyncio.to_thread(self.presence.waiting, agent, self.starving_s)
            if not waiting.starving:
                self._warned.pop(agent, None)
                continue
            letters = await post.peek(agent, limit=20)
            if not letters or self._warned.get(agent) == letters[0].message.id:
                continue
            senders = {letter.message.sender for letter in letters}
            concerned = [seat for seat in self.seats if seat.named in senders or seat.named == agent]
            if concerned:
                self._warned[agent] = letters[0].message.id
                told = starvation(agent, waiting)
                self._log.warning("mail.starving", agent=agent, unread=waiting.unread, problem=told)
                for seat in concerned:
                    seat.server.say("warning", told)


def starvation(agent: str, waiting: Waiting) -> str:
    """What is said of mail that nobody was told of."""
    return (
        f"{waiting.unread} message(s) wait for '{agent}', the oldest for {waiting.oldest_s:.0f} s, and nobody was "
        "woken: "
        f"'{agent}' should call wait_for_mail or check_inbox, follow switchboard://inbox/{agent}, or have a mail hook."
    )


class Seat:
    """One client. Is an `inhouse.Sitting`. `named` is the agent it is, empty before it has said so."""

    def __init__(self, desk: Desk, server: Server, caller: Caller) -> None:
        self.desk = desk
        self.server = server
        self.caller = caller
        self.named = ""
        self.fences: dict[str, int] = {}  # of what it has claimed last, by message
        self._hold: Hold | None = None
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

    async def register(self, written: str, **told: object) -> directory.Agent:
        """Be the agent of this name from now on."""
        name = directory.read_name(written)
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
            return await post.update(directory.enrol(name, **told))

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
        try:
            hold = desk.vacate(name, self) or await asyncio.to_thread(desk.presence.hold, name)
        except OSError as problem:
            told = f"'{name}' cannot be locked in {FOLDER}/{presence.FOLDER}: {problem.strerror}."
            raise SwitchboardError(failure("mail_not_stored", told)) from None
        if hold is None:
            told = f"'{name}' is connected already, by another process."
            raise SwitchboardError(failure("mail_name_taken", told))
        self.named, self._hold, self._replaced = name, hold, False
        desk.outlooks.pop(name, None)

    def give_way(self) -> Hold | None:
        """Another connection is this agent now."""
        hold, self._hold = self._hold, None
        self.named, self._replaced = "", True
        self.fences.clear()
        return hold

    def remember(self, claimed: Sequence[Claimed]) -> None:
        """What the client has claimed it may settle."""
        self.fences.update((one.message.id, one.fence) for one in claimed)
        for id in list(self.fences)[:-MOST_FENCES]:
            del self.fences[id]

    def check_sender(self, agent: str, said: str | None) -> None:
        """Refuse a sender that is not who sends."""
        if said is not None and agent_name(said) != agent:
            told = f"You are '{agent}', and cannot send as '{said}'."
            raise SwitchboardError(failure("mail_identity", told, hint="Leave `sender` out: it is known."))

    async def read(self, uri: str) -> object:
        """What a resource holds."""
        return await resources.read(self, uri)

    def followed(self, uris: frozenset[str]) -> None:
        """The client wants to hear of these."""
        self._following = uris

    def tell(self, uri: str, change: Change) -> None:
        """A resource has changed: tell the client, if it is for its eyes."""
        if uri not in self._following or not resources.may_read(uri, self.named):
            return
        self.server.updated(uri)
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
