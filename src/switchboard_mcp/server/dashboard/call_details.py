"""Details of recent calls, kept in memory: arguments, results and when each phase was reached.

Bodies are kept as they came, cut, and redacted when they are shown, so a call pays for a copy only. The oldest are
dropped when all together are too large. Nothing of this is written to disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from switchboard_mcp.gateway.pipeline.watched_call import WatchedCall, WatchedRequest
from switchboard_mcp.redaction.arguments import hidden_values, mask_args
from switchboard_mcp.suites.sanitize import clean

if TYPE_CHECKING:
    from switchboard_mcp.redaction.redactor import Redactor
    from switchboard_mcp.server.dashboard.call_log import KeptError

# Enough to see what a call was about; the whole result is with the host.
SHOWN_CHARS = 16_384
# What a kept call takes beside its bodies.
CALL_BYTES = 1_000


class CallPhases(Struct, frozen=True, omit_defaults=True):
    """Milliseconds of each phase of a call; absent if it was not reached.

    `person` is the time for which a person was asked, `queue` the rest of the time until the call may go to its child:
    middleware, limits and the decision of the gate. `start` is
    the time until the child was ready, `child` until it has answered, `relay` until the host was answered.
    """

    person: float | None = None
    queue: float | None = None
    start: float | None = None
    child: float | None = None
    relay: float | None = None


class ShownBody(Struct, frozen=True):
    """Arguments or a result, redacted and cut. `bytes` is the size of the whole."""

    text: str
    bytes: int
    cut: bool


class CallDetails:
    """Keeps the details of the last calls by their number in the call log."""

    def __init__(self, most_bytes: int, redactor: Redactor, seq: Callable[[], int]) -> None:
        self._most_bytes = most_bytes
        self._redactor = redactor
        self._seq = seq
        self._calls: dict[int, WatchedCall] = {}  # oldest first
        self.bytes = 0
        # Cut so late that no secret within the shown part is cut.
        self.body_bytes = redactor.chars_to_keep(SHOWN_CHARS)

    def watch(self, request: WatchedRequest) -> WatchedCall:
        """Watch a call that begins."""
        return WatchedCall(request, self)

    def keep(self, call: WatchedCall) -> None:
        """Keep a call that was recorded just now."""
        self._calls[self._seq()] = call
        self.grown(call.size + CALL_BYTES)

    def grown(self, size: int) -> None:
        """Count more bytes, and drop the oldest calls if they are too many."""
        self.bytes += size
        while self.bytes > self._most_bytes and self._calls:
            call = self._calls.pop(next(iter(self._calls)))
            call.is_kept = False
            self.bytes -= call.size + CALL_BYTES

    def clear(self) -> None:
        """Forget all calls."""
        for call in self._calls.values():
            call.is_kept = False
        self._calls.clear()
        self.bytes = 0

    def get(self, seq: int) -> WatchedCall | None:
        """Return a call, if it is kept."""
        return self._calls.get(seq)

    def arguments(self, call: WatchedCall) -> ShownBody:
        """Return the arguments of a call for a viewer."""
        cut = call.args_bytes > len(call.args)
        # What is cut cannot be decoded, so patterns that hide arguments mask all of it.
        args = mask_args(call.redact_args, call.args) if call.redact_args else call.args
        return show_body(self._redactor, args, SHOWN_CHARS, call.args_bytes if cut else None)

    def result(self, call: WatchedCall) -> ShownBody | None:
        """Return the response to the host for a viewer; None if there is none."""
        if not call.result_bytes:
            return None
        if call.redact_args and call.args_bytes <= len(call.args):
            # The result may repeat what the arguments must hide, and other calls may have been made since.
            self._redactor.register_recent(hidden_values(call.redact_args, msgspec.Raw(call.args)))
        elif call.redact_args:
            return ShownBody("(not shown: the arguments to hide in it are too long)", call.result_bytes, True)
        size = call.result_bytes if call.result_bytes > len(call.result) else None
        return show_body(self._redactor, call.result, SHOWN_CHARS, size)


def show_error(redactor: Redactor, error: KeptError) -> ShownBody:
    """Return what went wrong in a failed call for a viewer."""
    if error.redact_args and not error.args:
        return ShownBody("(not shown: the arguments to hide in it are too long)", error.size, True)
    if error.redact_args:
        redactor.register_recent(hidden_values(error.redact_args, msgspec.Raw(error.args)))
    return show_body(redactor, error.body, SHOWN_CHARS, error.size if error.size > len(error.body) else None)


def show_body(redactor: Redactor, body: bytes, most_chars: int, whole: int | None = None) -> ShownBody:
    """Return a JSON body for a viewer: redacted, indented and cut. `whole` is the size of one that was cut before."""
    text = body.decode("utf-8", "replace")
    if whole is None:
        try:
            # Texts that hold JSON, as most results do, are masked like the JSON itself.
            value = redactor.redact_value(_unfold(msgspec.json.decode(body)))
            text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass
    else:
        # A secret may have become known since, and be cut at the end of what was kept.
        most_chars = min(most_chars, max(0, len(text) - redactor.chars_to_keep(0)))
    shown = clean(redactor.redact_and_clip(text, most_chars))
    return ShownBody(shown, whole or len(body), whole is not None or len(text) > most_chars)


def phases_of(call: WatchedCall) -> CallPhases:
    """Return the phases of a call."""
    acquired, sent, child = call.acquired_at, call.sent_at, call.child_at
    queue, person = _ms(call.started_at, acquired or child), round(call.person_s * 1000, 3)
    return CallPhases(
        person=person or None,
        queue=max(round(queue - person, 3), 0.0) if queue is not None else None,
        start=_ms(acquired, sent) if sent else _ms(acquired, child) if acquired else None,
        child=_ms(sent, child) if sent else None,
        relay=_ms(child, call.answered_at),
    )


def trace_id(traceparent: bytes) -> str:
    """Return the trace id in a `traceparent`, encoded as JSON; empty if there is none.

    >>> trace_id(b'"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"')
    '0af7651916cd43dd8448eb211c80319c'
    """
    parts = traceparent.strip(b'"').split(b"-")
    if len(parts) != 4 or len(parts[1]) != 32 or not parts[1].isalnum():
        return ""
    return parts[1].decode()


def _ms(begin: float, end: float) -> float | None:
    return round(max(end - begin, 0.0) * 1000, 3) if begin and end else None


def _unfold(value: object, depth: int = 0) -> object:
    """Return a decoded body with texts that are JSON objects or lists decoded too, so that it can be read."""
    if isinstance(value, str) and value[:1] in ("{", "[") and depth < 8:
        try:
            return _unfold(msgspec.json.decode(value), depth + 4)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return value
    if isinstance(value, dict) and depth < 50:
        return {name: _unfold(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list) and depth < 50:
        return [_unfold(item, depth + 1) for item in value]
    return value
