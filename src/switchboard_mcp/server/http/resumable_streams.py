"""Streams of the handshake era: each event has an id, and a client that lost its connection takes up where it was.

A stream belongs to a session, not to a connection. Event ids are `STREAM-EVENT`, both counted within the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from switchboard_mcp.errors import KNOWN_FAILURE
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.server.http.event_stream import EventStream, event

# What a stream keeps for a client that comes back. One larger message is not kept.
MAX_STORED_BYTES = 1_048_576
MAX_STORED_EVENTS = 1_000
RETRY_MS = 1_000


class Stream:
    """Messages to the client that belong to no request of it: what its GET listens to."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.output: EventStream | None = None
        self.finished = False
        self._count = 0
        self._sent = 0  # the last that was given to a connection
        self._stored: deque[tuple[int, bytes]] = deque()
        self._stored_bytes = 0

    def send(self, message: bytes) -> None:
        """Put a message on the stream."""
        self._count += 1
        chunk = event(message, b"%d-%d" % (self.number, self._count))
        self._store(chunk)
        if self.attached:
            assert self.output is not None
            self.output.put(chunk)
            self._sent = self._count

    def answer(self, message: bytes) -> None:
        """There is no request here to answer; what is said all the same is not lost."""
        self.send(message)

    @property
    def attached(self) -> bool:
        """Whether somebody listens."""
        return self.output is not None and not self.output.closed

    def attach(self, output: EventStream, after: int | None, *, primed: bool) -> None:
        """Somebody listens: give what came after the event it names, or else what nobody has got yet."""
        if self.output is not None:
            self.output.finish()
        self.output = output
        after = self._sent if after is None else after
        if primed:
            output.put(self._priming_event(after))
        for number, chunk in list(self._stored):
            if number > after:
                output.put(chunk)
        self._sent = self._count
        if self.finished:
            output.finish()

    def end(self) -> None:
        """Nothing comes any more."""
        self.finished = True
        if self.output is not None:
            self.output.finish()

    def _priming_event(self, after: int) -> bytes:
        """An event that says nothing but where to take up, and how soon."""
        return b"id: %d-%d\nretry: %d\ndata: \n\n" % (self.number, after, RETRY_MS)

    def _store(self, chunk: bytes) -> None:
        self._stored.append((self._count, chunk))
        self._stored_bytes += len(chunk)
        while self._stored and (
            self._stored_bytes > MAX_STORED_BYTES or len(self._stored) > MAX_STORED_EVENTS
        ):
            self._stored_bytes -= len(self._stored.popleft()[1])


class PostStream(Stream):
    """The answers to one POST, and what is said before them.

    As long as nothing but the answers has come they can go out as plain JSON; once `commit` has been called they are
    events. There is one answer, or as many as a batch has requests. `done` hears when all are there.
    """

    def __init__(
        self,
        number: int,
        output: EventStream,
        ids: list[bytes],
        done: Callable[[PostStream], None],
        *,
        batch: bool = False,
    ) -> None:
        super().__init__(number)
        self.output = output
        self.ids = ids
        self.committed = False
        self._batch = batch
        self._done = done
        self._open = list(ids)
        self._answers: list[bytes] = []

    @property
    def answered(self) -> bool:
        """Whether all answers are there."""
        return not self._open

    def body(self) -> bytes | None:
        """The answers as JSON, where nothing else has been said."""
        if self._open or self._count or self.committed:
            return None
        return b"[" + b",".join(self._answers) + b"]" if self._batch else self._answers[0]

    def answer(self, message: bytes) -> None:
        """One of the answers."""
        if not self._open:
            return
        self._close(message)
        self._answers.append(message)
        if self.committed:
            self.send(message)
        if self.answered:
            self._done(self)
            if self.committed:
                self.end()
            elif self.output is not None:
                self.output.wake()

    def commit(self, *, primed: bool) -> None:
        """From now on they are events."""
        self.committed = True
        if self.output is not None and primed:
            self.output.put_first(self._priming_event(0))
        for message in self._answers:
            self.send(message)
        if self.answered:
            self.end()

    def refuse(self, id: bytes, code: int, message: str) -> None:
        """Answer one that nobody will answer any more."""
        if id in self._open:
            self.answer(jsonrpc.error(id, code, message))

    def fail_all(self) -> None:
        """Answer all that nobody will answer any more."""
        for id in list(self._open):
            self.refuse(id, KNOWN_FAILURE, "The session has ended.")

    def _close(self, message: bytes) -> None:
        """Strike out the request that this answers; where that cannot be told, any."""
        answered = self._open[0]
        if len(self._open) > 1:
            for id in self._open:
                if message.startswith(b'{"jsonrpc":"2.0","id":' + id + b","):
                    answered = id
        self._open.remove(answered)
