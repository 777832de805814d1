"""Resumable event streams: each event has an id, so a client that lost its connection can resume (Last-Event-ID).

A stream belongs to a session, not to a connection. Event ids are `STREAM-EVENT`, both counted within the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from switchboard_mcp.errors import KNOWN_FAILURE
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.server.http.event_stream import EventStream, event

# Limits of what a stream stores for a client that resumes. A single larger message is not stored.
MAX_STORED_BYTES = 1_048_576
MAX_STORED_EVENTS = 1_000
RETRY_MS = 1_000


class Stream:
    """The stream of messages that belong to no request: what a session's GET returns."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.output: EventStream | None = None
        self.finished = False
        self._count = 0
        self._sent = 0  # number of the last event written to a connection
        self._stored: deque[tuple[int, bytes]] = deque()
        self._stored_bytes = 0

    @property
    def backlog(self) -> int:
        """Bytes that the host has not taken."""
        return self.output.size if self.output is not None and self.attached else 0

    def send(self, message: bytes) -> None:
        """Append a message to the stream."""
        self._count += 1
        chunk = event(message, b"%d-%d" % (self.number, self._count))
        self._store(chunk)
        if self.attached:
            assert self.output is not None
            self.output.put(chunk)
            self._sent = self._count

    def answer(self, message: bytes) -> None:
        """Append a response. There is no request to answer here, but it must not be lost."""
        self.send(message)

    @property
    def attached(self) -> bool:
        """True while a connection reads the stream."""
        return self.output is not None and not self.output.closed

    def attach(self, output: EventStream, after: int | None, *, primed: bool) -> None:
        """Attach a connection and replay the events after `after`, or those not sent yet if it is None."""
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
        """End the stream."""
        self.finished = True
        if self.output is not None:
            self.output.finish()

    def _priming_event(self, after: int) -> bytes:
        """Return an empty event that carries an id to resume from and the retry delay."""
        return b"id: %d-%d\nretry: %d\ndata: \n\n" % (self.number, after, RETRY_MS)

    def _store(self, chunk: bytes) -> None:
        self._stored.append((self._count, chunk))
        self._stored_bytes += len(chunk)
        while self._stored and (
            self._stored_bytes > MAX_STORED_BYTES or len(self._stored) > MAX_STORED_EVENTS
        ):
            self._stored_bytes -= len(self._stored.popleft()[1])


class PostStream(Stream):
    """The responses to one POST, and the messages sent before them.

    As long as there is nothing but responses, they can be returned as plain JSON; after `commit` they are events. There
    is one response, or one per request of a batch. `done` is called when all have arrived.
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
        """True if all responses have arrived."""
        return not self._open

    def body(self) -> bytes | None:
        """Return the responses as JSON, or None if one is missing or other messages were sent."""
        if self._open or self._count or self.committed:
            return None
        return b"[" + b",".join(self._answers) + b"]" if self._batch else self._answers[0]

    def answer(self, message: bytes) -> None:
        """Take one of the responses."""
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
        """Switch from JSON to events."""
        self.committed = True
        if self.output is not None and primed:
            self.output.put_first(self._priming_event(0))
        for message in self._answers:
            self.send(message)
        if self.answered:
            self.end()

    def refuse(self, id: bytes, code: int, message: str) -> None:
        """Answer a pending request with an error."""
        if id in self._open:
            self.answer(jsonrpc.error(id, code, message))

    def fail_all(self) -> None:
        """Answer all pending requests with an error: the session has ended."""
        for id in list(self._open):
            self.refuse(id, KNOWN_FAILURE, "The session has ended.")

    def _close(self, message: bytes) -> None:
        """Remove the request that this answers from the pending ones; if it cannot be matched, the first."""
        answered = self._open[0]
        if len(self._open) > 1:
            for id in self._open:
                if message.startswith(b'{"jsonrpc":"2.0","id":' + id + b","):
                    answered = id
        self._open.remove(answered)
