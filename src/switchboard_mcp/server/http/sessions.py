"""Sessions of the handshake era over HTTP: who opened them, their streams, and when they end.

A session outlives connections. It ends when its client says so, when nobody has used it for long, or to make room.
Somebody who did not open it does not learn that it exists.
"""

from __future__ import annotations

import asyncio
import os
from secrets import token_urlsafe

from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.protocol.versions import LATEST_LEGACY
from switchboard_mcp.server.http.event_stream import EventStream
from switchboard_mcp.server.http.resumable_streams import PostStream, Stream

# The name of this one of several servers behind one address.
REPLICA = "SWITCHBOARD_REPLICA"
# Long enough that nobody guesses one.
KEY_BYTES = 24
# A client resumes a stream within seconds; it has only a few requests under way.
MAX_STREAMS = 64
SWEEPS_PER_IDLE_TIME = 4
MAX_SWEEP_S = 60.0
CANCELLED = -32800


def new_key() -> str:
    """The id of a session. Before the dot stands who has it, for a load balancer in front of several."""
    replica = os.environ.get(REPLICA, "")
    return f"{replica}.{token_urlsafe(KEY_BYTES)}" if replica else token_urlsafe(KEY_BYTES)


class HostSession:
    """One session."""

    def __init__(self, gateway: Gateway, principal: str) -> None:
        self.key = new_key()
        self.principal = principal
        self.own_stream = Stream(0)
        self.session = gateway.open(self.own_stream, principal)
        self.open_requests = 0  # requests and streams that are open
        self.idle_since = 0.0
        self._count = 0
        self._streams: dict[int, PostStream] = {}
        self._posts: dict[bytes, PostStream] = {}

    @property
    def supports_priming(self) -> bool:
        """Whether the client knows events that only name a place."""
        return self.session.version >= LATEST_LEGACY

    def post(self, output: EventStream, ids: list[bytes], *, batch: bool = False) -> PostStream:
        """A stream for the answers to a POST."""
        self._count += 1
        post = PostStream(self._count, output, ids, self.forget, batch=batch)
        self._posts.update(dict.fromkeys(ids, post))
        return post

    def retain(self, post: PostStream) -> None:
        """The client may come back for this one."""
        self._streams[post.number] = post
        if len(self._streams) > MAX_STREAMS:
            oldest = next((number for number, kept in self._streams.items() if kept.finished), post.number)
            del self._streams[oldest]

    def forget(self, post: PostStream) -> None:
        """It has been answered, or nobody can get the answer any more."""
        for id in post.ids:
            if self._posts.get(id) is post:
                del self._posts[id]

    def stream(self, number: int) -> Stream | None:
        """One that can be taken up again."""
        return self.own_stream if number == 0 else self._streams.get(number)

    def on_cancelled(self, id: bytes) -> None:
        """A request will not be answered: its POST ends all the same."""
        post = self._posts.get(id)
        if post is not None:
            post.refuse(id, CANCELLED, "Request cancelled.")

    def end(self) -> None:
        """Whoever waits is told."""
        for post in list(self._posts.values()):
            post.fail_all()
        for stream in (self.own_stream, *self._streams.values()):
            stream.end()


class Sessions:
    """All of them, by key."""

    def __init__(
        self, gateway: Gateway, loop: asyncio.AbstractEventLoop, max_sessions: int, idle_s: float
    ) -> None:
        self._gateway = gateway
        self._loop = loop
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self.all: dict[str, HostSession] = {}
        self.opened = 0

    def open(self, principal: str) -> HostSession | None:
        """A new one; None where there is no room."""
        if len(self.all) >= self._max_sessions and not self._evict_idle():
            return None
        session = HostSession(self._gateway, principal)
        self.all[session.key] = session
        self.opened += 1
        return session

    def find(self, key: str, principal: str) -> HostSession | None:
        """The one of that key, if it is theirs."""
        session = self.all.get(key)
        return session if session is not None and session.principal == principal else None

    def begin_request(self, session: HostSession) -> None:
        """A request on it begins."""
        session.open_requests += 1

    def end_request(self, session: HostSession) -> None:
        """A request on it has ended."""
        session.open_requests -= 1
        session.idle_since = self._loop.time()

    def end(self, session: HostSession) -> None:
        """It is over."""
        if self.all.pop(session.key, None) is not None:
            self._gateway.close(session.session)
            session.end()

    def end_all(self) -> None:
        """All are over."""
        for session in list(self.all.values()):
            self.end(session)

    async def sweep_forever(self) -> None:
        """End those that nobody uses, until cancelled."""
        while True:
            await asyncio.sleep(min(MAX_SWEEP_S, self._idle_s / SWEEPS_PER_IDLE_TIME))
            self.sweep()

    def sweep(self) -> None:
        """End those that nobody has used for too long."""
        now = self._loop.time()
        for session in list(self.all.values()):
            if self._is_idle(session) and now - session.idle_since >= self._idle_s:
                self.end(session)

    def _evict_idle(self) -> bool:
        idle = [session for session in self.all.values() if self._is_idle(session)]
        if not idle:
            return False
        self.end(min(idle, key=lambda session: session.idle_since))
        return True

    def _is_idle(self, session: HostSession) -> bool:
        return session.open_requests == 0 and not session.session.in_flight
