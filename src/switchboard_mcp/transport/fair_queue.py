"""Turns between the sessions that share a connection: none may fill it with its own calls.

Each session has at most a number of calls at the other side, its window; its further calls wait here, in their order.
An answer lets the next one go. So the calls of others wait for a few calls of a busy session, not for all of them.

A server that works on one call at a time needs a window of one: any further call only makes others wait. One that works
on many side by side needs as many. Which one it is shows in its answers alone: if they come faster with a window of
twice the size, it is worth it. So a window is measured, doubled as long as that helps, and kept for a while (`Window`).
While no answer comes at all, as from a server whose calls take seconds, it doubles too, until the answers come.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable
from typing import Protocol

# Answers after which a window is judged: as many as its size, and this many, or fewer if they take long.
SAMPLE = 16
FEWEST = 4
LONG_SAMPLE_S = 1.0
# A window is too large if an answer takes this many times as long as with a smaller one.
SLOWER = 1.4
# Samples for which a window is kept before its size is looked for again.
KEEP = 8
# A session whose calls wait is looked at this often. A shorter silence never widens its window.
REVIEW_S = 0.002
# A silence of this many usual intervals between answers widens a window, a multiple of it one that is wide already.
LONG_INTERVALS = 4
# A longer silence always does.
LONGEST_S = 2.0
# A window that is wider is widened after longer silences only.
WIDE = 4
# The weight of the latest interval in the usual one.
WEIGHT = 1 / 8
# Messages that wait may have this size in total; beyond it they are sent, and the limit of the connection applies.
MAX_WAITING_BYTES = 8 * 1024 * 1024
# A session that has been the only one for so long may have further calls at the other side: as many as are answered
# within AHEAD_S, so that the next call of another session waits no longer.
PAUSE_S = 1.0
AHEAD_S = 0.001
MOST_AHEAD = 256
# After this time it need not take turns. Agents often think for some seconds.
ALONE_S = 30.0


class QueuedRequest(Protocol):
    """A request as seen from here."""

    id: bytes
    message: bytes

    @property
    def sender(self) -> object:
        """The session it is sent for; None if it takes no turns."""


class Window:
    """Looks for the smallest number of calls that keeps the other side busy. Pure: it is passed the time of answers."""

    __slots__ = ("_count", "_is_kept", "_shortest_s", "_since", "_skipped", "size")

    def __init__(self) -> None:
        self.size = 1
        self._shortest_s = 0.0  # time that an answer takes with a window that is small enough
        self._is_kept = False
        self.restart()

    def restart(self) -> None:
        """Begin a sample. Answers to calls that were sent before are not part of it."""
        self._skipped = self.size
        self._count = 0
        self._since = 0.0

    def add_answer(self, now: float) -> None:
        """Add an answer that came while calls were waiting."""
        if self._skipped:
            self._skipped -= 1
            self._since = now
            return
        self._count += 1
        is_long = now - self._since > LONG_SAMPLE_S
        if self._count >= max(FEWEST if is_long else SAMPLE, self.size) * (KEEP if self._is_kept else 1):
            self._resize((now - self._since) / self._count)

    def _resize(self, interval_s: float) -> None:
        answer_s = interval_s * self.size
        if self._is_kept:
            self._is_kept = False
            self.size = max(self.size // 2, 1)
        elif self.size == 1 or answer_s <= SLOWER * self._shortest_s:
            self._shortest_s = answer_s if self.size == 1 else min(answer_s, self._shortest_s)
            self.size *= 2
        else:
            self._is_kept = True
            self.size //= 2
        self.restart()


class Lane:
    """The requests of one session: a number that was sent, and those that wait, by id."""

    __slots__ = ("ahead", "answered_at", "interval_s", "more", "sender", "sent", "waiting", "window")

    def __init__(self, sender: object) -> None:
        self.sender = sender
        self.sent = 0
        self.waiting: dict[bytes, QueuedRequest] = {}
        self.window = Window()
        self.more = 0  # calls beyond the window, since no answer came
        self.ahead = 0  # calls beyond the window, while others pause
        self.answered_at = 0.0  # or the time since which requests wait
        self.interval_s = 0.0  # usual time between answers while requests wait

    @property
    def limit(self) -> int:
        """Calls that may be at the other side."""
        return self.window.size + self.more + self.ahead

    def add_answer(self, now: float, *, is_alone: bool) -> None:
        """Note an answer that came while requests wait."""
        interval_s = now - self.answered_at
        self.interval_s += (interval_s - self.interval_s) * (WEIGHT if self.interval_s else 1)
        self.answered_at = now
        self.ahead = min(int(AHEAD_S / self.interval_s), MOST_AHEAD) if is_alone and self.interval_s else 0
        if self.more or self.ahead or self.sent > self.window.size:
            self.window.restart()  # answers to more calls than it allows say nothing about it
        else:
            self.window.add_answer(now)


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
            lane.window.restart()
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
            now = self._loop.time()
            lane.add_answer(now, is_alone=now - self._shared_at > PAUSE_S)
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
            lane.more = max(lane.more - 1, 0)
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
            if lane.waiting and now - lane.answered_at >= _patience_s(lane):
                lane.more += lane.limit
            self._fill(lane)
        if self._waiting_bytes:
            self._timer = self._loop.call_later(REVIEW_S, self._review)


def _patience_s(lane: Lane) -> float:
    """Return the silence after which a window is widened: the wider it is, the longer."""
    unknown_s = REVIEW_S * max(lane.limit / WIDE, 1)
    return min(max(unknown_s, LONG_INTERVALS * lane.interval_s * lane.limit), LONGEST_S)
