"""The stdio front: the one host that started us."""

from __future__ import annotations

import asyncio
import os

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.observability.log import Log
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.stdio import Cork, PipeTransport

# While answers are still owed after stdin has ended, how often to look whether anybody can read them.
DRAIN_POLL_S = 0.1
# Looks in a row that find nothing taken until the host is held to have forgotten us: five seconds.
MAX_DRAIN_STALLS = 50


def take_over_stdio() -> tuple[int, int]:
    """Our own stdin and stdout, for the protocol alone: whatever else prints goes to stderr from now on."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return read_fd, write_fd


class StdioServer:
    """Serves one host until it closes its end and has its answers."""

    def __init__(self, gateway: Gateway, cork: Cork, valve: FlowControl, log: Log) -> None:
        self._gateway = gateway
        self._valve = valve
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        read_fd, write_fd = take_over_stdio()
        self._link = PipeTransport(
            self._loop,
            read_fd,
            write_fd,
            cork,
            mirror=True,
            congested=self._congested,
            on_error=self._internal_error,
        )
        valve.add(self._link)
        self._session = gateway.attach(self._link, self._closed)

    async def run(self, done: asyncio.Event) -> None:
        """Serve until the host is done with us, then set `done`. When cancelled, nothing new is taken."""
        try:
            await self._ended.wait()
            self._gateway.stop_listening(self._session)
            await self._drain()
            self._gateway.close(self._session)
        finally:
            self._link.pause()
            done.set()

    async def _drain(self) -> None:
        """Wait for the answers that are owed, as long as somebody takes them. Nobody tells that a reader has gone."""
        stalled, write_buffer_size = 0, self._link.write_buffer_size
        while self._session.in_flight or self._link.write_buffer_size:
            if self._link.other_side_gone or stalled > MAX_DRAIN_STALLS:
                return
            await asyncio.sleep(DRAIN_POLL_S)
            unmoved = 0 < self._link.write_buffer_size == write_buffer_size
            stalled, write_buffer_size = stalled + 1 if unmoved else 0, self._link.write_buffer_size

    def _closed(self, session: Session) -> None:
        self._ended.set()

    def _congested(self, slow: bool) -> None:
        """A host that does not read its answers gets no new ones made: neither it nor the children are read."""
        self._valve.turn(shut=slow)
        if slow:
            self._poll_for_eof()

    def _poll_for_eof(self) -> None:
        """While the host is not read, its end is not heard either."""
        if self._link.source_ended:
            self._ended.set()
        elif self._link.paused:
            self._loop.call_later(DRAIN_POLL_S, self._poll_for_eof)

    def _internal_error(self, problem: BaseException) -> None:
        self._log.error("internal", problem=repr(problem))
