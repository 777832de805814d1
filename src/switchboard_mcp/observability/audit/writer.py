"""Formats audit records as lines of the hash chain and appends them to the files.

Runs in the audit thread. Arguments are written as a keyed hash
only; names are redacted. The chain is in `hash_chain`, the files are in `segments`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.hash_chain import ChainHead
from switchboard_mcp.observability.audit.segments import AuditFiles
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.latency_buckets import bucket
from switchboard_mcp.redaction.arguments import mask_args
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.system.atomic_write import write_gitignore

# The GIL is released after this many lines, so serving never waits for a whole batch.
AT_ONCE = 100
# Names that repeat are encoded once; the cache is cleared at this size.
MAX_KNOWN = 4096
SALT = ".switchboard/audit-salt"
SALT_BYTES = 32

_encode = msgspec.json.encode

# The text members of a line, in the order of `_texts`. Their names are the format of the log, read by `AuditEntry`.
MEMBERS = ("kind", "who", "child", "subtool", "outcome", "took", "origin")


def _texts(record: CallRecord) -> tuple[str, ...]:
    """Return the values of `MEMBERS`. A plain tuple, because it is the cache key and built for every record."""
    duration_s = record.duration_s
    duration_bucket = bucket(duration_s) if duration_s >= 0 else ""
    return (
        record.kind,
        record.principal,
        record.child,
        record.subtool,
        record.outcome,
        duration_bucket,
        record.origin,
    )


class AuditWriter:
    """Formats records and appends them to the files. Raises OSError if that fails."""

    def __init__(
        self,
        settings: Settings,
        workspace: str,
        redactor: Redactor,
        masks: Mapping[str, Sequence[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.redactor = redactor
        self._masks = masks
        self._clock = clock
        self._salt_file = os.path.join(workspace, SALT)
        self._salt = b""
        folder = os.path.join(workspace, settings.path)
        self._workspace, self._folder = os.path.abspath(workspace), os.path.abspath(folder)
        self._files = AuditFiles(folder, settings.max_bytes, settings.keep, lambda: int(clock() * 1000))
        self._known: dict[tuple[str, ...], bytes] = {}
        self._known_at: tuple[Redactor, int] | None = None

    def open(self) -> None:
        """Read the salt and check that the files are writable."""
        self._refuse_links()
        self._salt = self._salt or read_salt(self._salt_file)
        self._files.open()

    def _refuse_links(self) -> None:
        """Raise if a folder of the log within the workspace is a link: a workspace may not choose another folder."""
        folder = self._workspace
        for part in os.path.relpath(self._folder, folder).split(os.sep):
            folder = os.path.join(folder, part)
            if part == os.pardir:
                return
            if os.path.islink(folder):
                raise OSError(errno.ELOOP, f"{folder} is a symbolic link; set audit.path instead")

    def append(self, batch: list[CallRecord], lost: int) -> None:
        """Append one batch, after a marker with the number of records that were lost before it, if any."""
        self._salt = self._salt or read_salt(self._salt_file)
        self._files.append(lambda link: self._format_batch(batch, lost, link))

    def sync(self) -> None:
        """Flush appended lines to the disk."""
        self._files.sync()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _format_batch(self, batch: list[CallRecord], lost: int, link: ChainHead) -> tuple[bytes, ChainHead]:
        lines: list[bytes] = []
        seq, digest = link.seq, link.digest
        masks = self._masks
        seal, fingerprint = hash_chain.seal, hash_chain.fingerprinter(self._salt)
        if lost:
            seq += 1
            body = hash_chain.marker_body("lost", seq, int(self._clock() * 1000), count=lost)
            line, digest = seal(body, digest)
            lines.append(line)
        known_at = (self.redactor, self.redactor.version)
        if self._known_at != known_at or len(self._known) > MAX_KNOWN:
            self._known, self._known_at = {}, known_at
        known = self._known
        for count, record in enumerate(batch, 1):
            key = _texts(record)
            words = known.get(key)
            if words is None:
                words = known[key] = self._encode_texts(key)
            seq += 1
            body = b'{"seq":%d,"at":%d%b' % (seq, record.at * 1000, words)
            args = record.args
            if args:
                if record.child in masks:
                    args = mask_args(masks[record.child], args)
                body += b',"args":"%b"' % fingerprint(args)
            line, digest = seal(body, digest)
            lines.append(line)
            if not count % AT_ONCE:
                time.sleep(0)
        return b"".join(lines), ChainHead(seq, digest)

    def _encode_texts(self, texts: tuple[str, ...]) -> bytes:
        shown = {
            member: hash_chain.clip(self.redactor.redact_text(_encodable(text)))
            for member, text in zip(MEMBERS, texts, strict=True)
            if text
        }
        return b"," + _encode(shown)[1:-1]


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def read_salt(path: str) -> bytes:
    """Return the workspace's salt, created on first use. It is kept apart from the log, which may be shipped."""
    try:
        with open(path, "rb") as file:
            salt = file.read(SALT_BYTES + 1)
    except FileNotFoundError:
        return _make_salt(path)
    if len(salt) != SALT_BYTES:
        raise OSError(None, f"{path} is not a salt of {SALT_BYTES} bytes")
    return salt


def _make_salt(path: str) -> bytes:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_gitignore(folder)
    fresh = f"{path}.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, os.urandom(SALT_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(fresh, path)  # fails if another process was first, so all use the same salt
    except FileExistsError:
        pass
    finally:
        os.unlink(fresh)
    return read_salt(path)
