"""The stdio server: serves the one host that started this process."""

from __future__ import annotations

import asyncio
import os

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import HostIdentity, Session
from switchboard_mcp.observability.log import Log
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.stdio import Cork, PipeTransport

# After stdin has ended: how often to check whether pending responses can still be delivered.
DRAIN_POLL_S = 0.1
# Checks in a row without progress (five seconds) after which the host is considered dead.
MAX_DRAIN_STALLS = 50


def take_over_stdio() -> tuple[int, int]:
    """Reserve stdin and stdout for the protocol. Anything else that prints goes to stderr from now on."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return read_fd, write_fd


class StdioServer:
    """Serves one host until it closes stdin and has received its responses."""

    def __init__(
        self, gateway: Gateway, cork: Cork, flow_control: FlowControl, identity: HostIdentity, log: Log
    ) -> None:
        self._gateway = gateway
        self._flow_control = flow_control
        self._identity = identity
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._link = self._open(cork)
        flow_control.add_host(self._link)
        self._session = self._attach()

    def _open(self, cork: Cork) -> PipeTransport:
        """Open the transport to the host."""
        read_fd, write_fd = take_over_stdio()
        return PipeTransport(
            self._loop,
            read_fd,
            write_fd,
            cork,
            mirror=True,
            on_congestion=self._congested,
            on_error=self._internal_error,
        )

    def _attach(self) -> Session:
        """Open the session, and start reading."""
        return self._gateway.attach(self._link, self._closed, self._identity)

    @property
    def client(self) -> str:
        """Return the name of the host program; empty if it is unknown."""
        return self._session.client

    async def run(self, done: asyncio.Event) -> None:
        """Serve until the host disconnects, then set `done`. When cancelled, stop reading."""
        try:
            await self._ended.wait()
            self._gateway.stop_listening(self._session)
            await self._drain()
            self._gateway.close(self._session)
        finally:
            self._flow_control.discard_host(self._link)
            self._link.pause()
            done.set()

    async def _drain(self) -> None:
        """Wait until pending responses are written, as long as the host reads. Polls: a dead reader is not reported."""
        stalled, write_buffer_size = 0, self._link.write_buffer_size
        ended_at = self._loop.time()
        while self._session.in_flight or self._link.write_buffer_size:
            if self._link.other_side_gone or stalled > MAX_DRAIN_STALLS:
                return
            self._abandon_hung_starts(ended_at)
            await asyncio.sleep(DRAIN_POLL_S)
            unmoved = 0 < self._link.write_buffer_size == write_buffer_size
            stalled, write_buffer_size = stalled + 1 if unmoved else 0, self._link.write_buffer_size

    def _abandon_hung_starts(self, ended_at: float) -> None:
        self._gateway.abandon_hung_starts(ended_at)

    def _closed(self, session: Session) -> None:
        self._ended.set()

    def _congested(self, slow: bool) -> None:
        """Stop reading the host while it does not read its responses."""
        self._flow_control.congested(self._link, slow)
        if slow:
            self._poll_for_eof()

    def _poll_for_eof(self) -> None:
        """Poll for the end of stdin, which goes unnoticed while reading is paused."""
        if self._link.source_ended:
            self._ended.set()
        elif self._link.paused:
            self._loop.call_later(DRAIN_POLL_S, self._poll_for_eof)

    def _internal_error(self, problem: BaseException) -> None:
        self._log.error("internal", problem=repr(problem))
