"""A link over a WebSocket: one message a text frame, subprotocol `mcp`.

The connection is opened when the link starts, and is the whole life of the link. Redirects are not followed. A message
beyond the limit is thrown away frame by frame; one that is a single frame ends the connection, since the library reads
frames whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Unpack
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from switchboard_mcp import __version__
from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol.framing import OVERSIZED_EXCERPT_BYTES, Oversized
from switchboard_mcp.transport.http.remote_base import (
    QueuedMessage,
    RemoteServer,
    RemoteTransportBase,
    StartTask,
    TransportOptions,
    describe_error,
)

OPEN_S = 10.0
# A server that does not take part in closing must not hold us up.
CLOSE_S = 0.5
# A connection over which nothing comes is asked whether it lives.
PING_EVERY_S = 30.0
PROTOCOL = Subprotocol("mcp")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

# What the library has to say is told as failures; its log must not reach stderr by itself.
_silent = logging.getLogger("switchboard.websocket")
_silent.setLevel(logging.CRITICAL + 1)


class _Connect(connect):
    """As the library does it, but for redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebSocketTransport(RemoteTransportBase):
    """See the module."""

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(server, start_task, **options)
        self._parcels: deque[QueuedMessage] = deque()
        self._news = asyncio.Event()  # something to send, or to end
        self._leaving = False

    def begin(self) -> None:
        """Open the connection."""
        self.spawn(self._live())

    def send(self, message: bytes) -> None:
        """Send one message after those before."""
        if not self.over and not self._leaving:
            self._parcels.append(QueuedMessage(self, message))
            self._news.set()

    def close_sending(self) -> None:
        """Close when all has been sent."""
        self._leaving = True
        self._news.set()

    async def _live(self) -> None:
        try:
            async with self._connect() as socket:
                self.spawn(self._send_all(socket))
                while True:
                    message = await self._next(socket)
                    if isinstance(message, Oversized):
                        await self.deliver_oversized(message)
                    else:
                        await self.deliver(message)
        except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, InvalidURI) as problem:
            self.finish(self._explain(problem))

    async def _next(self, socket: ClientConnection) -> bytes | Oversized:
        """The next message, or its ends where it is beyond the limit."""
        whole = bytearray()  # not a list of parts: they may be tiny, and many
        size, tail, kept = 0, b"", OVERSIZED_EXCERPT_BYTES
        async for part in socket.recv_streaming(decode=False):
            size += len(part)
            if size <= self.limit:
                whole += part
            else:
                tail = ((tail or bytes(whole[-kept:])) + part[-kept:])[-kept:]
                whole[kept:] = part[: max(0, kept - len(whole))]
        return bytes(whole) if size <= self.limit else Oversized(size, bytes(whole), tail)

    def _connect(self) -> connect:
        local = urlsplit(self.server.url).hostname in LOOPBACK
        return _Connect(
            self.server.url,
            subprotocols=[PROTOCOL],
            additional_headers=self.server.headers,
            user_agent_header=f"switchboard/{__version__}",
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            ping_interval=PING_EVERY_S,
            max_size=(None, self.limit),  # messages are bounded in `_next`, frames here
            logger=_silent,
            proxy=None if local else True,
        )

    async def _send_all(self, socket: ClientConnection) -> None:
        try:
            while True:
                while self._parcels:
                    parcel = self._parcels[0]
                    await socket.send(parcel.data, text=True)
                    self._parcels.popleft().taken()
                if self._leaving:
                    await socket.close()
                    self.sending_closed.set()
                    return
                self._news.clear()
                await self._news.wait()
        except ConnectionClosed:
            return  # who reads has heard of it too

    async def release(self) -> None:
        """Forget what was not sent."""
        while self._parcels:
            self._parcels.popleft().taken()

    def _explain(self, problem: Exception) -> Failure:
        server = self.server
        if isinstance(problem, InvalidStatus):
            status = problem.response.status_code
            body = (problem.response.body or b"")[:1000].decode("utf-8", "replace")
            if status in (401, 403):
                return server.failure(
                    "child_unauthorized", f"does not let us in (HTTP {status})", detail=body
                )
            return server.failure("child_http_error", f"opens no WebSocket (HTTP {status})", detail=body)
        if isinstance(problem, ConnectionClosed):
            ours = problem.sent
            if ours is not None and ours.code == CloseCode.MESSAGE_TOO_BIG:
                told = f"sent one WebSocket frame larger than the {self.limit:,} bytes that Switchboard carries, "
                told += "so that the connection had to be closed with all calls on it"
                hint = (
                    "The next call connects again. Ask for less data at once, or call nothing else beside it."
                )
                return server.failure("message_too_large", told, hint=hint)
            theirs = problem.rcvd
            told = f" ({theirs.code} {theirs.reason})".replace(" )", ")") if theirs else ""
            return server.failure("child_crashed", f"has closed the connection{told}")
        if isinstance(problem, TimeoutError):
            return server.failure("child_unreachable", f"opened no WebSocket within {OPEN_S:g} s")
        if isinstance(problem, OSError):
            return server.failure("child_unreachable", f"cannot be reached: {describe_error(problem)}")
        return server.failure("child_http_error", f"opens no WebSocket: {problem}")


dial = WebSocketTransport
