"""Structured logs on stderr, as a chain of functions: level, fields, redaction, rendering, writing.

Owns the format of a line, and that writing one never blocks: stderr may have no reader, and a server that waits for its
log is dead. Lines that do not fit are dropped, and the next line reports how many.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.redaction.redactor import Redactor

Level = Literal["debug", "info", "warning", "error"]
Style = Literal["text", "json"]
Fields = dict[str, object]
# Writes one line; returns False if it was dropped.
Write = Callable[[bytes], bool | None]

LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# A pipe that is writable at all takes this much without blocking, and in one piece.
MAX_LINE = 4096
# Fields of a line that is too long are cut to these lengths in turn.
_CLIPS = (1024, 256, 64)
_COLOURS = {"debug": "\x1b[2m", "info": "\x1b[36m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_RESET = "\x1b[0m"
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class LogRecord(Struct):
    """One event on its way through the chain."""

    time: float
    level: Level
    event: str
    fields: Fields
    dropped: int = 0
    subject: object = None  # the object it is about, for the listener


class Sink(Struct):
    """State shared by a log and all logs bound from it."""

    threshold: int
    redactor: Redactor | None
    render: Callable[[LogRecord], bytes]
    write: Write
    clock: Callable[[], float]
    dropped: int = 0
    listener: Callable[[LogRecord], None] | None = None
    """Gets every record that is written, redacted."""


class Log:
    """A log with fields of its own. `bind` returns one with more."""

    __slots__ = ("fields", "sink", "subject")

    def __init__(
        self,
        level: Level = "info",
        style: Style = "text",
        *,
        redactor: Redactor | None = None,
        write: Write | None = None,
        clock: Callable[[], float] = time.time,
        colour: bool = False,
    ) -> None:
        render = render_json if style == "json" else render_colour if colour else render_text
        self.sink = Sink(LEVELS[level], redactor, render, write or stderr_writer(), clock)
        self.fields: Fields = {}
        self.subject: object = None

    def bind(self, **fields: object) -> Log:
        """Return the same log with these fields on every line."""
        bound = Log.__new__(Log)
        bound.sink = self.sink
        bound.fields = {**self.fields, **fields}
        bound.subject = self.subject
        return bound

    def about(self, subject: object) -> Log:
        """Return the same log for lines about one object, which the listener sees and the lines do not show."""
        bound = self.bind()
        bound.subject = subject
        return bound

    def enabled(self, level: Level) -> bool:
        """Return whether a line of this level would be written; check before computing costly fields."""
        return LEVELS[level] >= self.sink.threshold

    def debug(self, event: str, **fields: object) -> None:
        """Log details that help to find a fault."""
        self._log("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log a normal event."""
        self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a problem that does not stop anything."""
        self._log("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure."""
        self._log("error", event, fields)

    def _log(self, level: Level, event: str, fields: Fields) -> None:
        sink = self.sink
        if LEVELS[level] < sink.threshold:
            return
        record = LogRecord(sink.clock(), level, event, plain_fields({**self.fields, **fields}), sink.dropped)
        record.subject = self.subject
        if sink.redactor is not None:
            redact(record, sink.redactor)
        if sink.write(sink.render(record)) is False:
            sink.dropped += 1
        else:
            sink.dropped = 0
        if sink.listener is not None:
            sink.listener(record)

    def repeat(self, record: LogRecord) -> None:
        """Write a record of another log, which has redacted it; a line that does not fit is dropped."""
        if LEVELS[record.level] >= self.sink.threshold:
            self.sink.write(self.sink.render(record))


def plain_fields(fields: Mapping[str, object]) -> Fields:
    """Return the fields as plain values, so later functions of the chain need not handle other types."""
    return {name: plain(value) for name, value in fields.items()}


def plain(value: object) -> object:
    """Return text, numbers, lists and objects as they are; anything else as text."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}" if str(value) else type(value).__name__
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_fallback, builtin_types=(bytes,))
    except Exception:  # noqa: BLE001 - logging must not fail, whatever the value does
        return f"<{type(value).__name__}>"


def _fallback(value: object) -> object:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else str(value)


def redact(record: LogRecord, redactor: Redactor) -> None:
    """Mask secrets in event and fields."""
    record.event = redactor.redact_text(record.event)
    masked = redactor.redact_value(record.fields)
    record.fields = masked if isinstance(masked, dict) else {}


def render_text(record: LogRecord) -> bytes:
    """Render a line for people: time, level, event, then `name=value`."""
    return _text_line(record, "", "")


def render_colour(record: LogRecord) -> bytes:
    """Render a line for people with the level in colour, for a terminal."""
    return _text_line(record, _COLOURS[record.level], _RESET)


def render_json(record: LogRecord) -> bytes:
    """Render a line for programs: one object with time, level, event and the fields."""
    seconds = int(record.time // 1)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    head: Fields = {
        "time": f"{stamp}.{int((record.time - seconds) * 1000):03d}Z",
        "level": record.level,
        "event": _cut(_encodable(record.event), _CLIPS[1]),
    }
    if record.dropped:
        head["dropped"] = record.dropped
    fields = {(f"{name}_" if name in head else name): value for name, value in record.fields.items()}
    line = _json({**head, **fields})
    for limit in _CLIPS:
        if len(line) < MAX_LINE:
            return line + b"\n"
        short = {_cut(name, _CLIPS[2]): _shortened(value, limit) for name, value in fields.items()}
        line = _json({**head, **short, "clipped": True})
    if len(line) >= MAX_LINE:
        line = _json({**head, "clipped": True})
    return line + b"\n"


def stderr_writer(descriptor: int = 2) -> Write:
    """Return a writer that drops lines rather than wait."""
    torn = False

    def write(line: bytes) -> bool:
        nonlocal torn
        try:
            if not _is_writable(descriptor):
                return False
            # Start a new line after one that was written in part.
            data = b"\n" + line[: MAX_LINE - 1] if torn else line
            torn = os.write(descriptor, data) < len(data)
        except (OSError, ValueError):
            return False
        return True

    return write


def _is_writable(descriptor: int) -> bool:
    if sys.platform == "darwin":
        return bool(select.select([], [descriptor], [], 0)[1])  # poll does not know terminals there.
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))


def _text_line(record: LogRecord, before: str, after: str) -> bytes:
    stamp = time.strftime("%H:%M:%S", time.localtime(record.time))
    parts = [stamp, f"{before}{record.level}{after}", _escaped(record.event)]
    if record.dropped:
        parts.append(f"dropped={record.dropped}")
    parts += (f"{_escaped(name)}={_shown(value)}" for name, value in record.fields.items())
    line = " ".join(parts).encode()
    if len(line) >= MAX_LINE:
        mark = "…".encode()
        line = line[: MAX_LINE - 1 - len(mark)].decode("utf-8", "ignore").encode() + mark
    return line + b"\n"


def _shown(value: object) -> str:
    if isinstance(value, str):
        if value and not any(character in value for character in ' "='):
            return _escaped(value)
        return '"' + _escaped(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    if isinstance(value, float):
        return f"{value:.6g}"
    return _json(value).decode()


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    if short := _ESCAPES.get(character):
        return short
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _json(value: object) -> bytes:
    try:
        line = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        line = msgspec.json.encode(_encodable(value)).decode()
    # Control characters that JSON does not escape, such as U+009B, can only occur inside its strings.
    return _escaped(line).encode()


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


def _shortened(value: object, limit: int) -> object:
    if isinstance(value, str):
        return _cut(value, limit)
    if isinstance(value, dict | list):
        return _cut(_json(value).decode(), limit)
    return value


def _cut(text: object, limit: int) -> str:
    whole = str(text)
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"
