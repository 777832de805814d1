"""A process beside ours that makes and writes the lines of the audit record, while there are many.

Making a line costs more than half of a call, and a thread of ours would take that from those who serve. So the writing
thread hands its batches over to a process of its own as soon as they are large, waits until each is written, and is
told what went wrong just as if it had written itself. The process has nothing open but the way to us, and ends with it.
Owns the way there and back; what a line holds is `audit`'s, files are `audit_files`'.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.observability.audit.writer import AuditWriter
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor

HEAD_BYTES = 4
MAIN = (
    "import sys; sys.path[:0] = sys.argv[2:]; "
    "from switchboard_mcp.observability.audit.writer_process import main; main()"
)


class ScribeGoneError(Exception):
    """The process beside us has ended."""


class WriterConfig(Struct, array_like=True):
    """What it writes, and where."""

    workspace: str
    settings: Settings
    masks: dict[str, list[str]]


class WriteBatch(Struct, array_like=True):
    """A batch, or to force to the disk what was written. `secrets` are all there are, where there are others now."""

    records: list[CallRecord] = []
    lost: int = 0
    secrets: list[str] | None = None
    sync: bool = False


class WriteReply(Struct, array_like=True):
    """That it is done, or the error that it was not."""

    done: bool = True
    number: int = 0
    words: str = ""


_encode = msgspec.msgpack.encode
_read_duty = msgspec.msgpack.Decoder(WriterConfig).decode
_read_order = msgspec.msgpack.Decoder(WriteBatch).decode
_read_reply = msgspec.msgpack.Decoder(WriteReply).decode


class WriterProcess:
    """Our side. Raises what the other side met, or `ScribeGoneError`."""

    def __init__(self, workspace: str, settings: Settings, masks: Mapping[str, Sequence[str]]) -> None:
        ours, theirs = socket.socketpair()
        try:
            self.pid = _spawn(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._way = ours
        self._told = -1  # which version of the redactor it knows
        self._send(WriterConfig(workspace, settings, {name: list(names) for name, names in masks.items()}))

    def append(self, records: list[CallRecord], lost: int, redactor: Redactor) -> None:
        """Append one batch to the record."""
        version = redactor.version
        secrets = redactor.hidden_values() if version != self._told else None
        self._ask(WriteBatch(records, lost, secrets))
        self._told = version

    def sync(self) -> None:
        """Force what was appended to the disk."""
        self._ask(WriteBatch(sync=True))

    def close(self) -> None:
        """Let it go, and wait until it has gone."""
        self._way.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _ask(self, order: WriteBatch) -> None:
        self._send(order)
        frame = _receive(self._way)
        if frame is None:
            self.close()
            raise ScribeGoneError
        reply = _read_reply(frame)
        if not reply.done:
            raise OSError(reply.number, reply.words)

    def _send(self, message: Struct) -> None:
        body = _encode(message)
        try:
            self._way.sendall(len(body).to_bytes(HEAD_BYTES, "big") + body)
        except OSError as problem:
            self.close()
            raise ScribeGoneError from problem


def _spawn(way: socket.socket) -> int:
    """Start it: nothing of our environment, and nothing open but the way to us and stderr."""
    import switchboard_mcp

    roots = {os.path.dirname(os.path.dirname(str(module.__file__))) for module in (switchboard_mcp, msgspec)}
    way.set_inheritable(True)
    number = way.fileno()
    argv = [sys.executable, "-I", "-S", "-c", MAIN, "switchboard-audit", *sorted(roots)]
    null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    return os.posix_spawn(sys.executable, argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, number, 0), null])


def _receive(way: socket.socket) -> bytes | None:
    """One frame; None at the end."""
    head = _read(way, HEAD_BYTES)
    return None if head is None else _read(way, int.from_bytes(head, "big"))


def _read(way: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size > 0:
        try:
            part = way.recv(min(size, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> None:
    """The other side: write what comes until nobody is there any more."""
    # Whoever started us says when it is over; a Ctrl-C in a terminal is for them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=0) as way:
        frame = _receive(way)
        if frame is None:
            return
        duty = _read_duty(frame)
        redactor = Redactor()
        writer = AuditWriter(duty.settings, duty.workspace, redactor, duty.masks)
        while (frame := _receive(way)) is not None:
            order = _read_order(frame)
            if order.secrets is not None:
                redactor = Redactor()
                for secret in order.secrets:
                    redactor.register(secret)
                writer.redactor = redactor
            reply = WriteReply()
            try:
                if order.sync:
                    writer.sync()
                else:
                    writer.append(order.records, order.lost)
            except OSError as problem:
                reply = WriteReply(False, problem.errno or 0, problem.strerror or str(problem))
            body = _encode(reply)
            with suppress(ConnectionError):
                way.sendall(len(body).to_bytes(HEAD_BYTES, "big") + body)
