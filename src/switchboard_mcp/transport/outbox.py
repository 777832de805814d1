"""Messages that leave one after the other, each when the one before has been taken.

Requests go their own ways, many at once; notifications and answers must not overtake each other. Does not know how a
message is sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.transport.remote import Parcel, RemoteLink

# A server takes such a message at once; one that takes longer must not hold back the next for good.
TAKEN_WITHIN_S = 30.0


class Outbox:
    """See the module. `failed` hears why a message was not taken."""

    def __init__(
        self,
        link: RemoteLink,
        post: Callable[[Parcel], Awaitable[None]],
        failed: Callable[[Failure], None],
    ) -> None:
        self._link = link
        self._post = post
        self._failed = failed
        self._waiting: deque[tuple[Parcel, Callable[[], object] | None]] = deque()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, parcel: Parcel, then: Callable[[], object] | None = None) -> None:
        """Send after what was put before; `then` is called when it has been taken, or will not be."""
        self._waiting.append((parcel, then))
        if self._empty.is_set():
            self._empty.clear()
            self._link.spawn(self._send_all())

    async def until_empty(self) -> None:
        """Wait until all has been sent."""
        await self._empty.wait()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                parcel, then = self._waiting.popleft()
                try:
                    async with asyncio.timeout(TAKEN_WITHIN_S):
                        await self._post(parcel)
                except TimeoutError:
                    self._failed(self._link.server.failure("child_timeout", "did not take a message in time"))
                except SwitchboardError as problem:
                    self._failed(problem.failure)
                finally:
                    parcel.taken()
                if then is not None:
                    then()
        finally:
            while self._waiting:  # the link is over
                self._waiting.popleft()[0].taken()
            self._empty.set()
