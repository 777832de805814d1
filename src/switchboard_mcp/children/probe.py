"""Asking a child that runs whether it is there: while it is in doubt, unhealthy, or on its way back from that.

Owns the question and the pause between two. What an answer or a silence means is decided in `children.lifecycle`; what
becomes of the child is up to its owner. A child nobody doubts is never asked.
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
    """Who is asked."""

    peer: Peer | None

    @property
    def is_stateless(self) -> bool:
        """Whether it is spoken to in the era without handshakes, which has no ping."""

    def on_probe_result(self, *, alive: bool) -> bool:
        """How one probe went; whether there shall be another."""


class Probe:
    """See the module. One question at a time."""

    def __init__(self, patient: ProbedChild, context: ChildContext, pause_s: float) -> None:
        self._patient = patient
        self._context = context
        self._pause_s = pause_s
        self._asked: Peer | None = None

    def begin(self, peer: Peer) -> None:
        """Ask until nobody wants to know, or this run of the child is over."""
        if self._asked is not peer:
            self._asked = peer
            self._context.start_task(self._ask_on(peer))

    async def _ask_on(self, peer: Peer) -> None:
        try:
            while self._patient.peer is peer:
                alive = await self._ask(peer)
                # A child that has gone meanwhile has an owner who knows.
                if self._patient.peer is not peer or not self._patient.on_probe_result(alive=alive):
                    return
                await asyncio.sleep(self._pause_s)
        finally:
            if self._asked is peer:
                self._asked = None

    async def _ask(self, peer: Peer) -> bool:
        """Whether the child answers anything at all: an error, or another call, will do."""
        before = peer.response_count
        method, params = "ping", b"{}"
        if self._patient.is_stateless:
            meta = message_meta.child_meta(UNSET, b"", stateless=True, capabilities=b"{}")
            method, params = "server/discover", b'{"_meta":%b}' % (meta or b"{}")
        answer = await peer.request(method, params, self._pause_s, cancellable=False)
        return isinstance(answer, RpcMessage) or peer.response_count > before
