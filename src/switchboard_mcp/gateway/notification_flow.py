"""Sends hosts the notifications that may be lost: log messages and progress, which a child can send without end.

Answers must not queue behind them. A host that lags behind slows their sender down, and loses those that come when it
lags further; it is told how many.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.flow_control import DROPPING_PAUSE_S, SLOW_PAUSE_S, FlowControl

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session

# Bytes that a host has not taken, beside the 64 KiB in its pipe. Above the first, the sender is slowed down; above the
# second, notifications are lost: a host that reads 2 MB/s gets an answer at most 0.1 s later.
SLOW_BYTES = 32 * 1024
FULL_BYTES = 128 * 1024
REPORT_S = 1.0
LOGGER = "switchboard"


# Different updates that wait for a host. It is told that they have changed, once, when it reads.
MAX_WAITING = 1_000


class Lost(Struct):
    """What a host has not been sent: the number of lost notifications, and updates that wait, each once."""

    channel: ReplyChannel
    count: int = 0
    updates: dict[bytes, ReplyChannel] = {}


class NotificationFlow:
    """Sends notifications that may be lost, for all sessions of a gateway."""

    def __init__(self, loop: AbstractEventLoop, flow_control: FlowControl, log: Log) -> None:
        self._loop = loop
        self._flow_control = flow_control
        self._log = log
        self._lost: dict[Session, Lost] = {}

    def offer(
        self,
        session: Session,
        channel: ReplyChannel,
        message: bytes,
        source: MessageTransport | None,
        *,
        is_update: bool = False,
    ) -> None:
        """Send a notification unless the host lags too far behind. `source` is the transport of its sender.

        An update is sent later then, and only once if it is repeated.
        """
        backlog = channel.backlog
        if backlog < SLOW_BYTES:
            channel.send(message)
            return
        is_full = backlog >= FULL_BYTES
        if source is not None:
            pause_s = DROPPING_PAUSE_S if is_full else SLOW_PAUSE_S
            self._flow_control.slow_down(source, self._loop, pause_s)
        if not is_full:
            channel.send(message)
            return
        lost = self._lost.get(session)
        if lost is None:
            lost = self._lost[session] = Lost(channel)
            self._loop.call_later(REPORT_S, self._report, session)
        lost.channel = channel
        if is_update and len(lost.updates) < MAX_WAITING:
            lost.updates[message] = channel
        else:
            lost.count += 1

    def _report(self, session: Session) -> None:
        """Tell a host what it has lost, once it reads."""
        lost = self._lost[session]
        if not session.closed and lost.channel.backlog >= FULL_BYTES:
            self._loop.call_later(REPORT_S, self._report, session)
            return
        del self._lost[session]
        for message, channel in lost.updates.items():
            channel.send(message)
        if not lost.count:
            return
        self._log.warning("host.slow", session=session.number, client=session.client, dropped=lost.count)
        if not session.closed and session.initialized:
            text = (
                f"{lost.count:,} notifications were dropped, because this host reads slower than they come."
            )
            params = jsonrpc.encode({"level": "warning", "logger": LOGGER, "data": text})
            lost.channel.send(jsonrpc.notification("notifications/message", params))
