"""The lines of the audit log, each bound to the one before by a hash.

A line is one JSON object whose last member is `hash`: the SHA-256 of the previous hash (32 bytes) and of the line up to
that member, byte for byte. So no line can be changed, removed, moved or inserted without a break that verification
finds. Someone who can rewrite all lines can build a new chain; hence `verify` reports the last hash, to be stored
elsewhere. Owns the format of a line and the check of a run of lines. It is not aware of files, time or writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.observability.audit.entry import AuditEntry
from switchboard_mcp.protocol import jsonrpc

SCHEMA_VERSION = 1
START = bytes(32)
HASH_HEX = 64
_TAIL = len(b',"hash":""}') + HASH_HEX
# Names come from hosts and may have any length.
MAX_NAME = 200


class ChainHead(Struct, frozen=True):
    """The number and hash of the last line of a chain."""

    seq: int = 0
    digest: bytes = START


class Flaw(Struct, frozen=True):
    """The first line that breaks the chain, and the reason. Lines are counted from 1."""

    line: int
    reason: str


_decode = msgspec.json.Decoder(AuditEntry).decode
_encode = msgspec.json.encode


def seal(body: bytes, previous: bytes) -> tuple[bytes, bytes]:
    """Return the sealed line for an object without its closing brace, and the line's digest."""
    digest = sha256(previous + body).digest()
    return b'%b,"hash":"%b"}\n' % (body, digest.hex().encode()), digest


def marker_body(kind: str, seq: int, at: int, **members: object) -> bytes:
    """Return the body of a marker line, to be sealed."""
    return _encode({"seq": seq, "at": at, "kind": kind, **members})[:-1]


def fingerprinter(salt: bytes) -> Callable[[bytes], bytes]:
    """Return a function for the HMAC-SHA-256 of arguments in canonical form.

    Equal arguments have equal fingerprints, which cannot be guessed without the salt. The key is hashed once, which
    halves the cost of each.
    """
    inner = sha256(bytes(byte ^ 0x36 for byte in salt.ljust(64, b"\0")))
    outer = sha256(bytes(byte ^ 0x5C for byte in salt.ljust(64, b"\0")))

    def fingerprint(args: bytes) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(jsonrpc.canonicalize(args))
        second.update(first.digest())
        return second.hexdigest().encode()

    return fingerprint


def clip(name: str) -> str:
    """Return the name, shortened to the maximum length."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def parse_line(line: bytes) -> AuditEntry | None:
    """Decode one line, or return None if it is not a record."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def digest_of(line: bytes, previous: bytes) -> bytes | None:
    """Return the digest of a sealed line, or None if its hash is wrong."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    digest = sha256(previous + body).digest()
    return digest if tail == b',"hash":"%b"}' % digest.hex().encode() else None


def head_of(line: bytes) -> ChainHead | None:
    """Return the chain head that a last line claims, unverified."""
    entry = parse_line(line)
    if entry is None or len(entry.hash) != HASH_HEX:
        return None
    try:
        return ChainHead(entry.seq, bytes.fromhex(entry.hash))
    except ValueError:
        return None


def _is_digest(text: str) -> bool:
    return len(text) == HASH_HEX and set(text) <= set("0123456789abcdef")


def verify_lines(
    lines: Iterable[bytes], previous: ChainHead | None
) -> tuple[ChainHead, Flaw | None, Sequence[str]]:
    """Verify the lines of one file. If older files are gone, `previous` is None and the file's `prev` is trusted.

    Returns the head of the chain, the first flaw, and the hashes of the lines before it.
    """
    head = previous or ChainHead()
    passed: list[str] = []
    for number, line in enumerate(lines, 1):
        entry = parse_line(line)
        if entry is None:
            return head, Flaw(number, "is not a record"), passed
        if number == 1:
            if entry.kind != "begin":
                return head, Flaw(number, "does not begin a file"), passed
            if previous is None and _is_digest(entry.prev):
                head = ChainHead(entry.seq - 1, bytes.fromhex(entry.prev))
            if entry.prev != head.digest.hex():
                return head, Flaw(number, "does not continue the previous file"), passed
        if entry.seq != head.seq + 1:
            return head, Flaw(number, f"has number {entry.seq} instead of {head.seq + 1}"), passed
        digest = digest_of(line, head.digest)
        if digest is None:
            return head, Flaw(number, "or the one before was changed: the hash does not match"), passed
        head = ChainHead(entry.seq, digest)
        passed.append(entry.hash)
    return head, None, passed
