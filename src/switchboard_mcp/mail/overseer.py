"""Notes to the overseer, the person at the dashboard, about what this server waits for.

They are sent in the overseer's own name, which no agent can use, so the reader knows that the server has written
it. A note is settled when it no longer matters, so that the inbox shows what is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from switchboard_mcp.config.agent_names import OVERSEER
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log


async def register_overseer(store: MessageStore, name: str = OVERSEER) -> None:
    """Register a person at the dashboard, if needed, so that messages to that name arrive."""
    if name not in await store.agents():
        await store.register(name)
        await store.update(
            agent_registry.register(
                name, interface="dashboard", purpose="The person who oversees the workspace."
            )
        )


class OverseerNotes:
    """Sends notes, and settles them. `open_store` opens the store of the mail server."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[MessageStore]],
        start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        log: Log,
    ) -> None:
        self._open_store = open_store
        self._start_task = start_task
        self._log = log
        self._sent: dict[str, asyncio.Task[None]] = {}
        self._ids: dict[str, str] = {}

    def post(self, key: str, payload: str) -> None:
        """Send a note, known by `key` until it is settled."""
        self._sent[key] = self._start_task(self._post(key, payload))

    def settle(self, key: str, summary: str) -> None:
        """Settle a note: what it is about has been decided, or no longer matters."""
        sent = self._sent.pop(key, None)
        if sent is not None:
            self._start_task(self._settle(key, sent, summary))

    async def _post(self, key: str, payload: str) -> None:
        try:
            store = await self._open_store()
            await register_overseer(store)
            draft = Draft(
                action="request_review", payload=payload, priority="high", metadata={"approval": key}
            )
            sent = await store.send(draft, sender=OVERSEER, recipient=OVERSEER, from_dashboard=True)
            self._ids[key] = sent.id
        except SwitchboardError as problem:
            self._log.warning("mail.no_note", problem=problem.failure.message)

    async def _settle(self, key: str, sent: asyncio.Task[None], summary: str) -> None:
        await asyncio.wait([sent])
        id = self._ids.pop(key, "")
        try:
            if id:
                store = await self._open_store()
                await store.ack(OVERSEER, id, outcome="done", summary=summary, from_dashboard=True)
        except SwitchboardError as problem:  # settled by the overseer, or the server stops
            self._log.debug("mail.note_kept", problem=problem.failure.message)
