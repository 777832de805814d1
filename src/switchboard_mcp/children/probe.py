"""Probes a running child: after a call timeout, while it is unhealthy, and on probation.

Sends the probes and waits between them. What a result means is decided in `children.lifecycle`. A healthy child is
never probed.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import UNSET

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.protocol import message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import Peer


class ProbedChild(Protocol):
    """The child as the probe sees it."""

    peer: Peer | None

    @property
    def is_stateless(self) -> bool:
        """True if this run speaks a protocol version without handshakes, which has no ping."""

    def on_probe_result(self, *, alive: bool) -> bool:
        """Apply the result of one probe. Return True to probe again."""


class Probe:
    """Probes one child, one request at a time."""

    def __init__(self, child: ProbedChild, context: ChildContext, interval_s: float) -> None:
        self._child = child
        self._context = context
        self._interval_s = interval_s
        self._probed_peer: Peer | None = None

    def start(self, peer: Peer) -> None:
        """Probe until the child wants no more probes or this run is over. Does nothing if already probing."""
        if self._probed_peer is not peer:
            self._probed_peer = peer
            self._context.start_task(self._run(peer))

    async def _run(self, peer: Peer) -> None:
        try:
            while self._child.peer is peer:
                alive = await self._is_alive(peer)
                # If the run ended meanwhile, the child has already handled it.
                if self._child.peer is not peer or not self._child.on_probe_result(alive=alive):
                    return
                await asyncio.sleep(self._interval_s)
        finally:
            if self._probed_peer is peer:
                self._probed_peer = None

    async def _is_alive(self, peer: Peer) -> bool:
        """Return True if the child answers at all: an error, or the answer to another call, will do."""
        answers_before = peer.response_count
        method, params = "ping", b"{}"
        if self._child.is_stateless:
            meta = message_meta.child_meta(UNSET, b"", stateless=True, capabilities=b"{}")
            method, params = "server/discover", b'{"_meta":%b}' % (meta or b"{}")
        answer = await peer.request(method, params, self._interval_s, cancellable=False)
        return isinstance(answer, RpcMessage) or peer.response_count > answers_before
