"""MCP sessions over Streamable HTTP: their owner, their streams, and their lifetime.

A session outlives connections. It ends when its client deletes it, after an idle timeout, or to make room. A client
that did not open a session cannot find out that it exists.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Set
from secrets import token_urlsafe

from switchboard_mcp.config.sections import REPLICA_VARIABLE
from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import http_host
from switchboard_mcp.protocol.versions import LATEST_LEGACY
from switchboard_mcp.server.http.event_stream import EventStream
from switchboard_mcp.server.http.resumable_streams import PostStream, Stream

# Long enough not to be guessed.
KEY_BYTES = 24
# A client resumes a stream within seconds and has only a few requests in progress.
MAX_STREAMS = 64
SWEEPS_PER_IDLE_TIME = 4
MAX_SWEEP_S = 60.0
CANCELLED = -32800


def check_replica_name(environ: Mapping[str, str]) -> None:
    """Raise `config_invalid` unless the name of this server, if it has one, can stand in headers and URLs."""
    name = environ.get(REPLICA_VARIABLE, "")
    if name and not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
        message = f"{REPLICA_VARIABLE} is {name!r}. Use letters, digits, _ and - only."
        raise refused("config_invalid", message)


def new_key() -> str:
    """Return a new session id. A load balancer can route by the replica name before the dot."""
    replica = os.environ.get(REPLICA_VARIABLE, "")
    return f"{replica}.{token_urlsafe(KEY_BYTES)}" if replica else token_urlsafe(KEY_BYTES)


class HostSession:
    """One session of a client."""

    def __init__(self, gateway: Gateway, principal: str) -> None:
        self.key = new_key()
        self.principal = principal
        self.own_stream = Stream(0)
        self.session = gateway.open(self.own_stream, http_host("http", principal))
        self.open_requests = 0  # including open streams
        self.idle_since = 0.0
        self._count = 0
        self._streams: dict[int, PostStream] = {}
        self._posts: dict[bytes, PostStream] = {}

    @property
    def supports_priming(self) -> bool:
        """True if the client's protocol version has priming events (an id without data)."""
        return self.session.version >= LATEST_LEGACY

    def post(self, output: EventStream, ids: list[bytes], *, batch: bool = False) -> PostStream:
        """Create the stream for the responses to a POST."""
        self._count += 1
        post = PostStream(self._count, output, ids, self.forget, batch=batch)
        self._posts.update(dict.fromkeys(ids, post))
        return post

    def retain(self, post: PostStream) -> None:
        """Keep a stream for a client that may resume it."""
        self._streams[post.number] = post
        if len(self._streams) > MAX_STREAMS:
            oldest = next((number for number, kept in self._streams.items() if kept.finished), post.number)
            del self._streams[oldest]

    def forget(self, post: PostStream) -> None:
        """Drop a POST that has been answered, or whose client cannot get the response any more."""
        for id in post.ids:
            if self._posts.get(id) is post:
                del self._posts[id]

    def stream(self, number: int) -> Stream | None:
        """Return a stream by number, or None if it is not kept."""
        return self.own_stream if number == 0 else self._streams.get(number)

    def on_cancelled(self, id: bytes) -> None:
        """End the POST of a cancelled request, which gets no response from the gateway."""
        post = self._posts.get(id)
        if post is not None:
            post.refuse(id, CANCELLED, "Request cancelled.")

    def end(self) -> None:
        """Fail pending requests and end all streams."""
        for post in list(self._posts.values()):
            post.fail_all()
        for stream in (self.own_stream, *self._streams.values()):
            stream.end()


class Sessions:
    """All sessions by id."""

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
        """Open a session. Return None if there is no room."""
        if len(self.all) >= self._max_sessions and not self._evict_idle(principal):
            return None
        session = HostSession(self._gateway, principal)
        self.all[session.key] = session
        self.opened += 1
        return session

    def find(self, key: str, principal: str) -> HostSession | None:
        """Return the session with this id, or None if it is unknown or belongs to another principal."""
        session = self.all.get(key)
        return session if session is not None and session.principal == principal else None

    def begin_request(self, session: HostSession) -> None:
        """Count a request in."""
        session.open_requests += 1

    def end_request(self, session: HostSession) -> None:
        """Count a request out and restart the idle time."""
        session.open_requests -= 1
        session.idle_since = self._loop.time()

    def end(self, session: HostSession) -> None:
        """End a session and cancel its requests."""
        if self.all.pop(session.key, None) is not None:
            self._gateway.close(session.session)
            session.end()

    def end_all(self, principals: Set[str] | None = None) -> None:
        """End all sessions, or those of some clients."""
        for session in list(self.all.values()):
            if principals is None or session.principal in principals:
                self.end(session)

    async def sweep_forever(self) -> None:
        """Sweep periodically until cancelled."""
        while True:
            await asyncio.sleep(min(MAX_SWEEP_S, self._idle_s / SWEEPS_PER_IDLE_TIME))
            self.sweep()

    def sweep(self) -> None:
        """End sessions that have been idle for too long."""
        now = self._loop.time()
        for session in list(self.all.values()):
            if self._is_idle(session) and now - session.idle_since >= self._idle_s:
                self.end(session)

    def _evict_idle(self, principal: str) -> bool:
        """End the session that was idle for the longest time: one of the same client, if it has any."""
        idle = [session for session in self.all.values() if self._is_idle(session)]
        own = [session for session in idle if session.principal == principal]
        if not idle:
            return False
        self.end(min(own or idle, key=lambda session: session.idle_since))
        return True

    def _is_idle(self, session: HostSession) -> bool:
        return session.open_requests == 0 and not session.session.in_flight
