"""Transport over a WebSocket: one message per text frame, subprotocol `mcp`.

The connection is opened when the transport starts; when it is lost, the transport is over. Redirects are not followed.
A message beyond the size limit is dropped fragment by fragment; if it is a single frame, the connection is closed,
since the library reads frames whole.
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

OPEN_TIMEOUT_S = 10.0
# A server that does not take part in the closing handshake must not delay us.
CLOSE_TIMEOUT_S = 0.5
# Detects dead connections.
PING_INTERVAL_S = 30.0
PROTOCOL = Subprotocol("mcp")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

# The library's errors are reported as failures; its log must not reach stderr by itself.
_muted_logger = logging.getLogger("switchboard.websocket")
_muted_logger.setLevel(logging.CRITICAL + 1)


class _Connect(connect):
    """The library's connect, without redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebSocketTransport(RemoteTransportBase):
    """Transport over one WebSocket connection."""

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(server, start_task, **options)
        self._queue: deque[QueuedMessage] = deque()
        self._wake = asyncio.Event()  # there are messages to send, or the connection is to be closed
        self._finishing = False

    def open(self) -> None:
        """Open the connection."""
        self.spawn(self._run())

    def send(self, message: bytes) -> None:
        """Queue one message."""
        if not self.over and not self._finishing:
            self._queue.append(QueuedMessage(self, message))
            self._wake.set()

    def close_sending(self) -> None:
        """Close the connection once everything has been sent."""
        self._finishing = True
        self._wake.set()

    async def _run(self) -> None:
        try:
            async with self._connect() as socket:
                self.spawn(self._send_all(socket))
                while True:
                    message = await self._receive_message(socket)
                    if isinstance(message, Oversized):
                        await self.deliver_oversized(message)
                    else:
                        await self.deliver(message)
        except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, InvalidURI) as problem:
            self.connection_lost(self._failure_for(problem))

    async def _receive_message(self, socket: ClientConnection) -> bytes | Oversized:
        """Return the next message, or its first and last bytes if it exceeds the limit."""
        whole = bytearray()  # not a list: there may be many tiny parts
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
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            compression=None,  # a frame of a hundred kilobytes could become one of the limit, at once
            max_size=(None, self.limit),  # messages are bounded in `_next`, frames here
            logger=_muted_logger,
            proxy=None if local else True,
        )

    async def _send_all(self, socket: ClientConnection) -> None:
        try:
            while True:
                while self._queue:
                    queued = self._queue[0]
                    await socket.send(queued.data, text=True)
                    self._queue.popleft().mark_sent()
                if self._finishing:
                    await socket.close()
                    self.sending_closed.set()
                    return
                self._wake.clear()
                await self._wake.wait()
        except ConnectionClosed:
            return  # the reader reports it

    async def release(self) -> None:
        """Drop messages that were not sent."""
        while self._queue:
            self._queue.popleft().mark_sent()

    def _failure_for(self, problem: Exception) -> Failure:
        server = self.server
        if isinstance(problem, InvalidStatus):
            status = problem.response.status_code
            body = (problem.response.body or b"")[:1000].decode("utf-8", "replace")
            if status in (401, 403):
                return server.failure(
                    "child_unauthorized", f"requires authorization (HTTP {status})", detail=body
                )
            return server.failure(
                "child_http_error", f"did not open a WebSocket (HTTP {status})", detail=body
            )
        if isinstance(problem, ConnectionClosed):
            ours = problem.sent
            if ours is not None and ours.code == CloseCode.MESSAGE_TOO_BIG:
                what = f"sent one WebSocket frame larger than the {self.limit:,} bytes that Switchboard accepts, "
                what += "so the connection had to be closed with all its calls"
                hint = "The next call reconnects. Request less data at once, or run this call alone."
                return server.failure("message_too_large", what, hint=hint)
            theirs = problem.rcvd
            reason = f" ({theirs.code} {theirs.reason})".replace(" )", ")") if theirs else ""
            return server.failure("child_crashed", f"has closed the connection{reason}")
        if isinstance(problem, TimeoutError):
            return server.failure(
                "child_unreachable", f"did not open a WebSocket within {OPEN_TIMEOUT_S:g} s"
            )
        if isinstance(problem, OSError):
            return server.failure("child_unreachable", f"cannot be reached: {describe_error(problem)}")
        return server.failure("child_http_error", f"did not open a WebSocket: {problem}")


dial = WebSocketTransport
