"""The mail of a terminal: rings when there is something new, and types what verified leads send to be executed.

Every `execute` message is claimed, then typed or rejected, settled with a receipt, and recorded; what came before the
terminal was started is never typed. Owns these decisions; how keys reach a program and what is on its screen is for
whoever has the terminal (`Keys`).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Outcome, StoredMessage
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.mail.terminal.input_safety import ENTER, InputRateLimit, to_keystrokes
from switchboard_mcp.mail.terminal.registry import TerminalEntry, TerminalLease, refusal

# A person needs to see what happens; a loop of agents must not become a flood.
MAX_TYPED, WITHIN_S = 10, 60.0
# So long somebody may go on typing before a message is sent back.
PATIENCE_S = 30.0
LOOK_AGAIN_S = 0.25
# Programs that take pasted text as such take an Enter that comes along with it as part of it.
BEFORE_ENTER_S = 0.15
MAX_MESSAGES = 1_000


class Keys(Protocol):
    """The terminal, as its mail uses it."""

    @property
    def bracketed(self) -> bool:
        """Whether the program takes pasted text as such now."""

    def is_free(self) -> bool:
        """Whether nobody is in the middle of typing."""

    def press(self, keys: bytes) -> None:
        """Type."""

    def ring(self) -> None:
        """Tell whoever sits there that there is mail."""

    def quiet(self) -> None:
        """There is no unread mail any more."""


class TerminalMail:
    """See the module."""

    def __init__(self, store: MessageStore, place: TerminalLease, entry: TerminalEntry, keys: Keys) -> None:
        self._store = store
        self._place = place
        self._name = place.name
        self._entry = entry
        self._keys = keys
        self._news = asyncio.Event()
        self._allowance = InputRateLimit(MAX_TYPED, WITHIN_S)
        self._before: set[str] = set()
        self._seen: set[str] = set()

    async def prepare(self) -> int:
        """Note what is there already; how much of it is unread."""
        earlier = await self._store.search(
            self._name, action="execute", places=("inbox", "claimed"), limit=MAX_MESSAGES
        )
        self._before = {stored.message.id for stored in earlier}
        waiting = await self._store.peek(self._name, limit=MAX_MESSAGES)
        self._seen = {stored.message.id for stored in waiting}
        return len(waiting)

    def wake(self) -> None:
        """Something may be new."""
        self._news.set()

    async def run(self) -> None:
        """Ring and type until cancelled."""
        stop = self._store.subscribe(self._on_change)
        try:
            while True:
                try:
                    await self._process_inbox()
                except SwitchboardError as problem:
                    self._log({"outcome": "trouble", "problem": problem.failure.message})
                await self._news.wait()
                self._news.clear()
        finally:
            stop()

    def _on_change(self, change: MailboxChange) -> None:
        if change.kind == "inbox" and change.agent in ("", self._name):
            self._news.set()

    async def _process_inbox(self) -> None:
        messages = await self._store.peek(self._name, limit=MAX_MESSAGES)
        orders = [
            each
            for each in messages
            if each.message.action == "execute" and each.message.id not in self._before
        ]
        rest = {stored.message.id for stored in messages} - {stored.message.id for stored in orders}
        if rest - self._seen:
            self._keys.ring()
        elif not rest:
            self._keys.quiet()
        self._seen = rest
        for stored in sorted(orders, key=lambda each: each.order):
            await self._execute(stored)

    async def _execute(self, stored: StoredMessage) -> None:
        message = stored.message
        taken = await self._store.claim(self._name, ids=[message.id], lease_s=PATIENCE_S * 2)
        if not taken:
            return  # Another program of this agent was quicker.
        # Should it come back, because it could not be settled, it is not typed a second time.
        self._before.add(message.id)
        reason = await self._type(stored)
        outcome: Outcome = "rejected" if reason else "done"
        summary = f"Not typed: {reason}." if reason else f"Typed into terminal '{self._name}'."
        if reason:
            self._log({"outcome": "rejected", "id": message.id, "from": message.sender, "why": reason})
        await self._store.ack(self._name, message.id, fence=taken[0].fence, outcome=outcome, summary=summary)

    async def _type(self, stored: StoredMessage) -> str:
        """Type it; or why not."""
        message = stored.message
        role = (
            agent_registry.agents(await self._store.state()).get(message.sender, agent_registry.Agent()).role
        )
        problem = refusal(self._name, self._entry, verified=stored.verified, sender=message.sender, role=role)
        if problem is not None:
            return problem.message.rstrip(".")
        loop = asyncio.get_running_loop()
        if not self._allowance.take(loop.time()):
            return f"more than {MAX_TYPED} messages within {WITHIN_S:g} s"
        keys = to_keystrokes(message.payload, bracketed=self._keys.bracketed)
        if isinstance(keys, str):
            return keys
        until = loop.time() + PATIENCE_S
        while not self._keys.is_free():
            if loop.time() >= until:
                return "somebody is typing there"
            await asyncio.sleep(LOOK_AGAIN_S)
        # The program may have changed while somebody typed.
        keys = to_keystrokes(message.payload, bracketed=self._keys.bracketed)
        if isinstance(keys, str):
            return keys
        if not self._log({"outcome": "typed", "id": message.id, "from": message.sender, "bytes": len(keys)}):
            return "it cannot be recorded"
        self._keys.press(keys)
        await asyncio.sleep(BEFORE_ENTER_S)
        self._keys.press(ENTER)
        return ""

    def _log(self, line: dict[str, object]) -> bool:
        try:
            self._place.log({"at": agent_registry.now(), "terminal": self._name, **line})
        except OSError:
            return False
        return True
