"""A child process that formats and writes audit records while there are many.

Formatting a line costs more than half a call, and a thread would take that time from serving. So the audit thread
hands large batches to a process, waits until each is written, and gets the same errors as if it had written itself.
The process has nothing open but the socket to us, and ends with it. Owns the protocol over that socket; `writer`
formats and writes.
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


class WriterGoneError(Exception):
    """The writer process has ended."""


class WriterConfig(Struct, array_like=True):
    """The first message: the settings of the writer."""

    workspace: str
    settings: Settings
    masks: dict[str, list[str]]


class WriteBatch(Struct, array_like=True):
    """A batch, or a request to sync. `secrets` replaces the known secrets if they have changed."""

    records: list[CallRecord] = []
    lost: int = 0
    secrets: list[str] | None = None
    sync: bool = False


class WriteReply(Struct, array_like=True):
    """Success, or the error of the batch."""

    done: bool = True
    number: int = 0
    message: str = ""


_encode = msgspec.msgpack.encode
_decode_config = msgspec.msgpack.Decoder(WriterConfig).decode
_decode_batch = msgspec.msgpack.Decoder(WriteBatch).decode
_decode_reply = msgspec.msgpack.Decoder(WriteReply).decode


class WriterProcess:
    """Our side of the connection. Raises the OSError of the process, or `WriterGoneError`."""

    def __init__(self, workspace: str, settings: Settings, masks: Mapping[str, Sequence[str]]) -> None:
        ours, theirs = socket.socketpair()
        try:
            self.pid = _spawn(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours
        self._sent_version = -1  # version of the redactor that the process has
        self._send(WriterConfig(workspace, settings, {name: list(names) for name, names in masks.items()}))

    def append(self, records: list[CallRecord], lost: int, redactor: Redactor) -> None:
        """Append one batch to the audit log."""
        version = redactor.version
        secrets = redactor.hidden_values() if version != self._sent_version else None
        self._request(WriteBatch(records, lost, secrets))
        self._sent_version = version

    def sync(self) -> None:
        """Flush appended lines to the disk."""
        self._request(WriteBatch(sync=True))

    def close(self) -> None:
        """Close the connection and wait for the process to exit."""
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _request(self, batch: WriteBatch) -> None:
        self._send(batch)
        frame = _receive(self._socket)
        if frame is None:
            self.close()
            raise WriterGoneError
        reply = _decode_reply(frame)
        if not reply.done:
            raise OSError(reply.number, reply.message)

    def _send(self, message: Struct) -> None:
        body = _encode(message)
        try:
            self._socket.sendall(len(body).to_bytes(HEAD_BYTES, "big") + body)
        except OSError as problem:
            self.close()
            raise WriterGoneError from problem


def _spawn(connection: socket.socket) -> int:
    """Start the process with an empty environment, and nothing open but the socket and stderr."""
    import switchboard_mcp

    roots = {os.path.dirname(os.path.dirname(str(module.__file__))) for module in (switchboard_mcp, msgspec)}
    connection.set_inheritable(True)
    number = connection.fileno()
    argv = [sys.executable, "-I", "-S", "-c", MAIN, "switchboard-audit", *sorted(roots)]
    null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    return os.posix_spawn(sys.executable, argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, number, 0), null])


def _receive(connection: socket.socket) -> bytes | None:
    """Read one frame; None at the end."""
    head = _read(connection, HEAD_BYTES)
    return None if head is None else _read(connection, int.from_bytes(head, "big"))


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size > 0:
        try:
            part = connection.recv(min(size, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> None:
    """Run the writer process until the socket is closed."""
    # The parent decides when to stop; a Ctrl-C in a terminal is meant for it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=0) as connection:
        frame = _receive(connection)
        if frame is None:
            return
        config = _decode_config(frame)
        redactor = Redactor()
        writer = AuditWriter(config.settings, config.workspace, redactor, config.masks)
        while (frame := _receive(connection)) is not None:
            batch = _decode_batch(frame)
            if batch.secrets is not None:
                redactor = Redactor()
                for secret in batch.secrets:
                    redactor.register(secret)
                writer.redactor = redactor
            reply = WriteReply()
            try:
                if batch.sync:
                    writer.sync()
                else:
                    writer.append(batch.records, batch.lost)
            except OSError as problem:
                reply = WriteReply(False, problem.errno or 0, problem.strerror or str(problem))
            body = _encode(reply)
            with suppress(ConnectionError):
                connection.sendall(len(body).to_bytes(HEAD_BYTES, "big") + body)
