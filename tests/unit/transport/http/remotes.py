"""Remote links for tests: with a clock for nothing, and everything they say written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.transport.http.remote_base import RemoteServer, RemoteTransportBase
from tests.patience import PATIENCE_S
from tests.unit.transport.recorder import Recorder, settle

Dial = Callable[..., RemoteTransportBase]


class Rig(Recorder):
    """A link with the recorder that hears it."""

    def __init__(self, link: RemoteTransportBase) -> None:
        super().__init__()
        self.link = link
        self.lost: dict[bytes, Failure] = {}
        self.notes: list[str] = []
        link.watch(self.lose)
        self.listen(link)

    def lose(self, id: bytes, problem: Failure) -> None:
        assert id not in self.lost, "an answer is lost once"
        self.lost[id] = problem
        self._news.set()

    def ask(self, method: str, id: int = 1, params: bytes = b"{}") -> None:
        self.link.send(jsonrpc.request(b"%d" % id, method, params))

    def tell(self, method: str, params: bytes | None = None) -> None:
        self.link.send(jsonrpc.notification(method, params))

    async def until_lost(self, id: int = 1) -> Failure:
        """Return the reason why a request failed, alone or with the connection."""
        await self.until(lambda: b"%d" % id in self.lost or self.ends > 0)
        return self.lost.get(b"%d" % id) or await self.until_over()

    async def until_over(self) -> Failure:
        await self.until_closed()
        assert self.link.problem is not None
        return self.link.problem


@asynccontextmanager
async def dialled(
    dial: Dial, url: str, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Rig]:
    """A link to an address. On leaving, it has let go of everything."""
    tasks: set[asyncio.Task[None]] = set()
    notes: list[str] = []
    errors: list[BaseException] = []

    def start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        return task

    link = dial(
        RemoteServer(name="kid", url=url, headers=headers or {}),
        start_task,
        note=notes.append,
        on_error=errors.append,
        **options,
    )
    rig = Rig(link)
    rig.notes, rig.errors = notes, errors
    try:
        yield rig
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await link.aclose()
        await settle()  # uvloop closes a socket one turn later
    assert all(task.done() for task in tasks)
    surprises = [task.exception() for task in tasks if not task.cancelled()]
    assert not any(surprises), surprises
    assert rig.link.write_buffer_size == 0
