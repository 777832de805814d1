"""Turns between the sessions that share a connection: none may fill it with its own calls.

Each session has at most a number of calls at the other side, its window; its further calls wait here, in their order.
An answer lets the next one go. So the calls of others wait for a few calls of a busy session, not for all of them. The
window is fixed; while no answer comes, as from a server whose calls take long, it doubles, since such servers often
work on many calls side by side. Later it shrinks again.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable
from typing import Protocol

# Calls of a session at the other side. One is too few: the other side would have nothing to do between two of them.
WINDOW = 2
# A session whose calls wait is looked at this often. A silence of this long doubles its window, at first. On a busy
# machine there are silences of some milliseconds all the time.
REVIEW_S = 0.02
# A window that no silence has widened for so long is halved. One that was too narrow is widened again.
SHRINK_S = 0.5
# The next silence has to be twice as long, up to this.
LONGEST_S = 2.0
# Messages that wait may have this size in total; beyond it they are sent, and the limit of the connection applies.
MAX_WAITING_BYTES = 8 * 1024 * 1024
# A session that has been the only one for this long takes no turns. Agents often think for some seconds.
ALONE_S = 30.0


class QueuedRequest(Protocol):
    """A request as seen from here."""

    id: bytes
    message: bytes

    @property
    def sender(self) -> object:
        """The session it is sent for; None if it takes no turns."""


class Lane:
    """The requests of one session: a number that was sent, and those that wait, by id."""

    __slots__ = ("answered_at", "changed_at", "limit", "patience_s", "sender", "sent", "waiting")

    def __init__(self, sender: object) -> None:
        self.sender = sender
        self.sent = 0
        self.waiting: dict[bytes, QueuedRequest] = {}
        self.limit = WINDOW  # calls that may be at the other side
        self.patience_s = REVIEW_S
        self.answered_at = 0.0  # or the time since which requests wait
        self.changed_at = 0.0  # when the window was

    def resize(self, now: float) -> None:
        """Double the window if no answer has come for long; halve it if that has not happened for a while."""
        if now - self.answered_at >= self.patience_s:
            self.limit *= 2
            self.patience_s = min(2 * self.patience_s, LONGEST_S)
            self.changed_at = now
        elif now - self.changed_at >= SHRINK_S:
            self.limit = max(self.limit // 2, WINDOW)
            self.patience_s = max(self.patience_s / 2, REVIEW_S)
            self.changed_at = now


class FairQueue:
    """Decides when the requests of each session are sent. It answers none: all of them stay pending in the peer."""

    def __init__(
        self, loop: AbstractEventLoop, send: Callable[[bytes], None], sent: Iterable[QueuedRequest]
    ) -> None:
        self.lanes: dict[object, Lane] = {}
        self._loop = loop
        self._send = send
        self._lane_of: dict[bytes, Lane] = {}  # by request id
        self._waiting_bytes = 0
        self._last_sender: object = None
        self._shared_at = loop.time()
        self._timer: TimerHandle | None = None
        for request in sent:
            if request.sender is not None:
                self._lane(request).sent += 1

    def admit(self, request: QueuedRequest) -> bool:
        """Return True if a request may be sent now. Otherwise it is sent later, unless `remove` is called first."""
        if request.sender is None:
            return True
        lane = self._lane(request)
        if request.sender is not self._last_sender or len(self.lanes) > 1:
            self._last_sender, self._shared_at = request.sender, self._loop.time()
        if lane.sent < lane.limit and not lane.waiting:
            lane.sent += 1
            return True
        if not lane.waiting:
            lane.answered_at = self._loop.time()
        lane.waiting[request.id] = request
        self._waiting_bytes += len(request.message)
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._send_round()
        if self._timer is None:
            self._timer = self._loop.call_later(REVIEW_S, self._review)
        return False

    def is_waiting(self, id: bytes) -> bool:
        """Return True if a request has not been sent yet."""
        lane = self._lane_of.get(id)
        return lane is not None and id in lane.waiting

    def answered(self, request: QueuedRequest) -> None:
        """Forget a request that has been answered, and send the next one of its session."""
        lane = self._lane_of.get(request.id)
        self.remove(request)
        if lane is not None and lane.waiting:
            lane.answered_at = self._loop.time()
            self._fill(lane)

    def remove(self, request: QueuedRequest) -> bool:
        """Forget a request that has ended. Return False if it had not been sent.

        The next one is sent at the next review: the whole session may be ending, one request after the other.
        """
        lane = self._lane_of.pop(request.id, None)
        if lane is None:
            return True
        waited = lane.waiting.pop(request.id, None)
        if waited is not None:
            self._waiting_bytes -= len(waited.message)
        else:
            lane.sent -= 1
        if not lane.sent and not lane.waiting:
            del self.lanes[lane.sender]
        return waited is None

    def is_needless(self, request: QueuedRequest) -> bool:
        """Return True if the session of a new request has long been the only one that sends any."""
        return (
            request.sender is self._last_sender
            and len(self.lanes) <= 1
            and self._loop.time() - self._shared_at > ALONE_S
        )

    def release(self) -> None:
        """Send everything that waits, a request of each session in turn."""
        while self._waiting_bytes:
            self._send_round()
        self.close()

    def close(self) -> None:
        """Forget everything: the connection is over, or no turns are needed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting_bytes = 0
        self.lanes.clear()
        self._lane_of.clear()

    def _lane(self, request: QueuedRequest) -> Lane:
        """Return the lane of a request, which belongs to it from now on."""
        lane = self.lanes.get(request.sender)
        if lane is None:
            lane = self.lanes[request.sender] = Lane(request.sender)
        self._lane_of[request.id] = lane
        return lane

    def _fill(self, lane: Lane) -> None:
        """Send what the window has room for."""
        while lane.waiting and lane.sent < lane.limit:
            self._send_next(lane)

    def _send_next(self, lane: Lane) -> None:
        request = lane.waiting.pop(next(iter(lane.waiting)))
        self._waiting_bytes -= len(request.message)
        lane.sent += 1
        self._send(request.message)

    def _send_round(self) -> None:
        """Send one request of each session, whatever its window."""
        for lane in list(self.lanes.values()):
            if lane.waiting:
                self._send_next(lane)

    def _review(self) -> None:
        """Widen the windows of sessions that have waited for long, and send what there is room for."""
        self._timer = None
        now = self._loop.time()
        for lane in list(self.lanes.values()):
            if lane.waiting:
                lane.resize(now)
                self._fill(lane)
        if self._waiting_bytes:
            self._timer = self._loop.call_later(REVIEW_S, self._review)
