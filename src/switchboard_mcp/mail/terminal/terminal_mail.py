"""The mail of a terminal: rings on new messages, and types what verified leads send as `execute`.

Every `execute` message is claimed, typed or rejected, settled with a receipt, and logged. Messages from before the
terminal's start are never typed. Not aware of how keys reach the program (`Keys`).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Outcome, StoredMessage
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.mail.terminal.input_safety import ENTER, InputRateLimit, to_keystrokes
from switchboard_mcp.mail.terminal.terminal_registry import TerminalEntry, TerminalLease, is_attached, refusal

# A person must be able to follow, and a loop of agents must not flood the terminal.
MAX_TYPED, WITHIN_S = 10, 60.0
# How long to wait for a person to finish typing before the message is rejected.
PATIENCE_S = 30.0
LOOK_AGAIN_S = 0.25
# Programs with bracketed paste treat an Enter that arrives with the text as part of it.
BEFORE_ENTER_S = 0.15
MAX_MESSAGES = 1_000


class Keys(Protocol):
    """The terminal, as used by its mail."""

    @property
    def bracketed(self) -> bool:
        """Return True if the program has bracketed paste enabled."""

    def is_free(self) -> bool:
        """Return True if no person is typing."""

    def press(self, keys: bytes) -> None:
        """Type these bytes."""

    def ring(self, agent: str) -> None:
        """Signal new mail for this agent to the person at the terminal."""

    def quiet(self, agent: str) -> None:
        """Clear the signal: this agent has no unread mail."""


class TerminalMail:
    """Processes the inbox of one terminal."""

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
        """Record the messages that already exist; returns how many are unread."""
        earlier = await self._store.search(
            self._name, action="execute", places=("inbox", "claimed"), limit=MAX_MESSAGES
        )
        self._before = {stored.message.id for stored in earlier}
        waiting = await self._store.peek(self._name, limit=MAX_MESSAGES)
        self._seen = {stored.message.id for stored in waiting}
        return len(waiting)

    def wake(self) -> None:
        """Check the inbox soon."""
        self._news.set()

    async def run(self) -> None:
        """Ring and type until cancelled."""
        stop = self._store.subscribe(self._on_change, agents=(self._name,))
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
            message
            for message in messages
            if message.message.action == "execute" and message.message.id not in self._before
        ]
        rest = {stored.message.id for stored in messages} - {stored.message.id for stored in orders}
        if rest - self._seen:
            self._keys.ring(self._name)
        elif not rest:
            self._keys.quiet(self._name)
        self._seen = rest
        for stored in sorted(orders, key=lambda message: message.order):
            await self._execute(stored)

    async def _execute(self, stored: StoredMessage) -> None:
        message = stored.message
        claimed = await self._store.claim(self._name, ids=[message.id], lease_s=PATIENCE_S * 2)
        if not claimed:
            return  # Claimed by another process of this agent.
        # If settling fails and the message returns, it is not typed again.
        self._before.add(message.id)
        reason = await self._type(stored)
        outcome: Outcome = "rejected" if reason else "done"
        summary = f"Not typed: {reason}." if reason else f"Typed into terminal '{self._name}'."
        if reason:
            self._log({"outcome": "rejected", "id": message.id, "from": message.sender, "why": reason})
        await self._store.ack(
            self._name, message.id, fence=claimed[0].fence, outcome=outcome, summary=summary
        )

    async def _type(self, stored: StoredMessage) -> str:
        """Type the message, or return why not."""
        message = stored.message
        agents = agent_registry.agents(await self._store.state())
        nobody = agent_registry.Agent()
        role = agents.get(message.sender, nobody).role
        detached = is_attached(self._name, self._entry) and not agents.get(self._name, nobody).bridge
        entry = None if detached else self._entry
        problem = refusal(self._name, entry, verified=stored.verified, sender=message.sender, role=role)
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
                return "a person is typing there"
            await asyncio.sleep(LOOK_AGAIN_S)
        # The program may have changed while waiting.
        keys = to_keystrokes(message.payload, bracketed=self._keys.bracketed)
        if isinstance(keys, str):
            return keys
        if not self._log({"outcome": "typed", "id": message.id, "from": message.sender, "bytes": len(keys)}):
            return "it cannot be logged"
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
