"""What links over HTTP have in common: their client, and the order in which messages leave.

Requests go their own ways, many at once; notifications and answers must not overtake each other: each leaves when the
one before has been taken. Does not know where a message is posted, nor how it is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Unpack

from msgspec import UNSET

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.http.client import HttpClient
from switchboard_mcp.transport.http.remote_base import (
    QueuedMessage,
    RemoteServer,
    RemoteTransportBase,
    StartTask,
    TransportOptions,
)

# A server takes such a message at once; one that takes longer must not hold back the next for good.
TAKEN_WITHIN_S = 30.0


class OrderedHttpTransport(RemoteTransportBase):
    """See the module. `introduced` is set but while the server has not yet taken that we are ready."""

    scoped = True

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(server, start_task, **options)
        self.client = HttpClient(server, options.get("auth"))
        self.introduced = asyncio.Event()
        self.introduced.set()
        self._leaving = False
        self._waiting: deque[tuple[QueuedMessage, Callable[[], object] | None]] = deque()
        self._empty = asyncio.Event()
        self._empty.set()

    def send(self, message: bytes) -> None:
        """Send one message: a request at once, anything else after what was sent before."""
        if self.over or self._leaving:
            return
        envelope = jsonrpc.parse(message)
        if isinstance(envelope, Malformed):
            return
        parcel = QueuedMessage(self, message)
        if envelope.method is not UNSET and envelope.id is not UNSET:
            self.request(envelope, parcel)
        elif envelope.method == "notifications/cancelled":
            self.cancel(envelope, parcel)
        elif envelope.method == "notifications/initialized":
            self.introduced.clear()
            self.put(parcel, self.introduce)
        else:
            self.put(parcel)

    def request(self, message: RpcMessage, parcel: QueuedMessage) -> None:
        """Ask, and see to it that an answer comes."""
        raise NotImplementedError

    def cancel(self, message: RpcMessage, parcel: QueuedMessage) -> None:
        """Stop a request, by a message like any other."""
        self.put(parcel)

    def introduce(self) -> None:
        """The server knows that we are ready: what waits may go."""
        self.introduced.set()

    async def post(self, parcel: QueuedMessage) -> None:
        """Send a message that is no request. Raises where it is not taken."""
        raise NotImplementedError

    def not_taken(self, problem: Failure) -> None:
        """Such a message was not taken."""
        self.note(problem.message)

    def put(self, parcel: QueuedMessage, then: Callable[[], object] | None = None) -> None:
        """Send after what was put before; `then` is called when it has been taken, or will not be."""
        self._waiting.append((parcel, then))
        if self._empty.is_set():
            self._empty.clear()
            self.spawn(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                parcel, then = self._waiting.popleft()
                try:
                    async with asyncio.timeout(TAKEN_WITHIN_S):
                        await self.post(parcel)
                except TimeoutError:
                    self.not_taken(self.server.failure("child_timeout", "did not take a message in time"))
                except SwitchboardError as problem:
                    self.not_taken(problem.failure)
                finally:
                    parcel.taken()
                if then is not None:
                    then()
        finally:
            while self._waiting:  # the link is over
                self._waiting.popleft()[0].taken()
            self._empty.set()

    def close_sending(self) -> None:
        """Take leave, once what was sent before has gone."""
        if not self._leaving and not self.over:
            self._leaving = True
            self.spawn(self._leave())

    async def _leave(self) -> None:
        await self.leave()
        self.sending_closed.set()

    async def leave(self) -> None:
        """Wait until all has gone: closing the connections tells the server the rest."""
        await self._empty.wait()

    async def release(self) -> None:
        """Close the connections."""
        await self.client.aclose()
