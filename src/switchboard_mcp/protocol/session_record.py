"""Reads from the messages of one host what a process that continues its session must know. Pure.

Input are the messages that the host has sent and those that were sent to it. The result are the requests without an
answer, and the messages that established the session: `initialize`, the log level, and resource subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from mmap import mmap

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import Frame, NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed
from switchboard_mcp.protocol.method_traits import traits_of

CANCELLED = "notifications/cancelled"
INITIALIZED = "notifications/initialized"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
# The last message of each of these methods is kept.
KEPT = frozenset({"initialize", INITIALIZED, "logging/setLevel"})
# A session with one of these among its messages is read with more care.
UNUSUAL = KEPT | {CANCELLED, SUBSCRIBE, UNSUBSCRIBE}
# Every response that Switchboard sends begins like this; the id follows.
RESPONSE_START = b'{"jsonrpc":"2.0","id":'
MAX_ID_BYTES = 1024
# To shorten a message that has no more than this takes longer than to copy it.
SHORT_BYTES = 512


class ReceivedRequest(Struct, frozen=True):
    """A request of the host. `line` is the whole message, or a shorter one with the same id and method."""

    id: bytes
    method: str
    line: bytes

    @property
    def repeatable(self) -> bool:
        """True if the request may be served again."""
        return traits_of(self.method).repeatable

    def shortened(self) -> ReceivedRequest:
        """Return a long request without its params, which nobody needs if it is not served again."""
        if len(self.line) <= SHORT_BYTES or self.repeatable:
            return self
        return ReceivedRequest(self.id, self.method, jsonrpc.request(self.id, self.method))


class SessionRecord(Struct, frozen=True):
    """The state of a session: messages that established it, in order, and requests without an answer."""

    kept: list[bytes]
    open: list[ReceivedRequest]


class _Envelope(Struct, gc=False):
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET


class _Concerned(Struct):
    request_id: Raw | UnsetType = msgspec.field(default=UNSET, name="requestId")
    uri: str = ""


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_concerned = msgspec.json.Decoder(_Concerned).decode


def read_session(kept: Iterable[Frame], received: Iterable[Frame], sent: Iterable[Frame]) -> SessionRecord:
    """Return the state of a session. `kept` are messages that an earlier record kept; they have been answered."""
    kept, received, sent = list(kept), list(received), list(sent)
    plain = _read_plain(received, sent)
    if plain is not None:
        return SessionRecord([line for line in kept if isinstance(line, bytes)], plain)
    established: dict[str, tuple[bytes, bytes]] = {}  # by method, or method and URI: its id and message
    for message in _messages(kept):
        _establish(established, message)
    waiting: dict[bytes, list[tuple[int, ReceivedRequest]]] = {}
    cancelled: list[tuple[int, bytes]] = []
    for place, message in enumerate(_messages(received)):
        _establish(established, message)
        if message.id:
            waiting.setdefault(message.id, []).append((place, message))
        elif message.method == CANCELLED:
            cancelled.append((place, _concerned(message.line).request_id_bytes))
    for id in _answered(sent):
        if waiting.get(id):
            waiting[id].pop(0)
    for place, id in cancelled:
        # An id may be used again, so a cancellation concerns requests before it only.
        waiting[id] = [entry for entry in waiting.get(id, []) if entry[0] > place]
    pending = sorted((entry for entries in waiting.values() for entry in entries), key=lambda entry: entry[0])
    open_ids = {request.id for _, request in pending}
    return SessionRecord(
        [line for id, line in established.values() if not id or id not in open_ids],
        [request for _, request in pending],
    )


def find_requests(
    received: bytes | mmap, start_of_all: int, end: int, ids: set[bytes]
) -> list[ReceivedRequest] | None:
    """Return the last request with each id, in order; None if one is not found.

    Input are messages that end with a newline. They are decoded from the last one back, since requests without an
    answer are usually the last.
    """
    missing, found = set(ids), []
    try:
        while missing and end > start_of_all:
            start = max(received.rfind(b"\n", start_of_all, end - 1) + 1, start_of_all)
            line, end = received[start : end - 1], start
            envelope = _decode_envelope(line)
            if (
                envelope.id is not UNSET
                and envelope.method is not UNSET
                and (id := bytes(envelope.id)) in missing
            ):
                missing.remove(id)
                found.append(ReceivedRequest(id, envelope.method, line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found.reverse()
    return None if missing else found


def _read_plain(received: list[Frame], sent: list[Frame]) -> list[ReceivedRequest] | None:
    """Return the open requests if all messages are of the usual kinds, in a tenth of the time; otherwise None."""
    waiting: dict[bytes, ReceivedRequest] = {}
    try:
        for line in received:
            envelope = _decode_envelope(line)  # type: ignore[arg-type]  # raises for what is no message
            if envelope.method is UNSET:
                continue
            if envelope.method in UNUSUAL:
                return None
            if envelope.id is not UNSET:
                id = bytes(envelope.id)
                if id in waiting:
                    return None
                waiting[id] = ReceivedRequest(id, envelope.method, line)  # type: ignore[arg-type]  # as above
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        return None
    for id in _answered(sent):
        waiting.pop(id, None)
    return list(waiting.values())


def _establish(established: dict[str, tuple[bytes, bytes]], message: ReceivedRequest) -> None:
    if message.method in KEPT:
        established.pop(message.method, None)
        established[message.method] = (message.id, message.line)
    elif message.method in (SUBSCRIBE, UNSUBSCRIBE):
        key = f"{SUBSCRIBE} {_concerned(message.line).uri}"
        established.pop(key, None)
        if message.method == SUBSCRIBE:
            established[key] = (message.id, message.line)


class _Subject(Struct):
    """The object of a notification or subscription: the id of a request, or a URI."""

    request_id_bytes: bytes = b""
    uri: str = ""


def _concerned(line: bytes) -> _Subject:
    message = jsonrpc.parse(line)
    if isinstance(message, Malformed) or message.params is UNSET:
        return _Subject()
    try:
        params = _decode_concerned(message.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Subject()
    return _Subject(b"" if params.request_id is UNSET else bytes(params.request_id), params.uri)


def _messages(frames: Iterable[Frame]) -> Iterator[ReceivedRequest]:
    """Yield requests, and notifications with an empty id. Responses and what is no message are skipped."""
    for frame in frames:
        if isinstance(frame, Oversized):
            id = jsonrpc.find_id(frame.head, frame.tail)
            if id != b"null":
                yield ReceivedRequest(id, "", b"")
        elif not isinstance(frame, NonMessage):
            members = jsonrpc.split_batch(frame) if frame[:1] == b"[" else [frame]
            for line in [] if isinstance(members, Malformed) else members:
                message = jsonrpc.parse(line)
                if not isinstance(message, Malformed) and message.method is not UNSET:
                    id = b"" if message.id is UNSET else bytes(message.id)
                    yield ReceivedRequest(id, message.method, line)


def _answered(frames: Iterable[Frame]) -> Iterator[bytes]:
    """Yield the ids of responses. Most are found without decoding, since results may be large."""
    for frame in frames:
        if not isinstance(frame, bytes):
            continue
        # Inside a string these would have a backslash before the quote, so the first one is the envelope's own.
        end = frame.find(b',"', len(RESPONSE_START), MAX_ID_BYTES)
        if (
            end > 0
            and frame.startswith(RESPONSE_START)
            and frame.startswith((b',"result":', b',"error":'), end)
        ):
            yield frame[len(RESPONSE_START) : end]
            continue
        message = jsonrpc.parse(frame)
        if not isinstance(message, Malformed) and message.method is UNSET and message.id is not UNSET:
            yield bytes(message.id)
