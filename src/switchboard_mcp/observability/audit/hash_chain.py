"""The lines of an audit record, each bound to the one before by a hash.

A line is one JSON object whose last member is `hash`: the SHA-256 of the hash before (32 bytes) and of the line up to
that member, byte for byte. So a line can be neither changed, left out, put elsewhere nor put in without a break that
is found. Whoever can write all lines anew can also make a new chain: hence `verify` tells the last hash, to be kept
elsewhere. Owns the form of a line and how a run of lines is judged; does not know files, time or who writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import KINDS
from switchboard_mcp.protocol import jsonrpc

SCHEMA_VERSION = 1
START = bytes(32)
HASH_HEX = 64
_TAIL = len(b',"hash":""}') + HASH_HEX
# Names come from hosts and may be of any length.
MAX_NAME = 200


class AuditEntry(Struct, omit_defaults=True):
    """One line, read. A `begin` line opens each file and has `prev`; `torn` and `lost` are marks of the writer."""

    seq: int
    at: int
    kind: str
    who: str = ""
    child: str = ""
    subtool: str = ""
    outcome: str = ""
    took: str = ""
    args: str = ""
    pid: int = 0
    schema: int = 0
    prev: str = ""
    count: int = 0
    hash: str = ""


# Stands for every outcome that is a failure.
FAILED = "failed"
_FAILURES = frozenset({"error", "blocked", "unhealthy", "quarantined", "rejected", *KINDS})


def matches(entry: AuditEntry, child: str = "", kind: str = "", outcome: str = "") -> bool:
    """Whether a line is one of those asked for; what is empty does not matter."""
    return (
        (not child or entry.child == child)
        and (not kind or entry.kind == kind)
        and (not outcome or entry.outcome == outcome or (outcome == FAILED and entry.outcome in _FAILURES))
    )


class ChainHead(Struct, frozen=True):
    """Where a chain stands: the number and hash of its last line."""

    seq: int = 0
    digest: bytes = START


class Flaw(Struct, frozen=True):
    """The first line that does not belong where it stands, and why. Lines are counted from 1."""

    line: int
    reason: str


_decode = msgspec.json.Decoder(AuditEntry).decode
_encode = msgspec.json.encode


def seal(body: bytes, previous: bytes) -> tuple[bytes, bytes]:
    """A line from an object that lacks its closing brace, and the line's digest."""
    digest = sha256(previous + body).digest()
    return b'%b,"hash":"%b"}\n' % (body, digest.hex().encode()), digest


def marker_body(kind: str, seq: int, at: int, **members: object) -> bytes:
    """The body of a writer's own line, to be sealed."""
    return _encode({"seq": seq, "at": at, "kind": kind, **members})[:-1]


def fingerprinter(salt: bytes) -> Callable[[bytes], bytes]:
    """HMAC-SHA-256 of arguments in their canonical form: the same for the same arguments, and not to be guessed
    without the salt. The key is taken in once, which halves the cost of each.
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
    """A name that is no longer than names are."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def parse_line(line: bytes) -> AuditEntry | None:
    """One line, or None where it is none."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def digest_of(line: bytes, previous: bytes) -> bytes | None:
    """The digest of a sealed line where it is right, else None."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    digest = sha256(previous + body).digest()
    return digest if tail == b',"hash":"%b"}' % digest.hex().encode() else None


def head_of(line: bytes) -> ChainHead | None:
    """Where a chain stands whose last line this is, taken at its word."""
    entry = parse_line(line)
    if entry is None or len(entry.hash) != HASH_HEX:
        return None
    try:
        return ChainHead(entry.seq, bytes.fromhex(entry.hash))
    except ValueError:
        return None


def verify_lines(
    lines: Iterable[bytes], previous: ChainHead | None
) -> tuple[ChainHead, Flaw | None, Sequence[str]]:
    """Walk the lines of one file. `previous` is None where older files are gone: then the file's own word is taken.

    Gives where the chain stands then, the first flaw, and the hashes that were passed.
    """
    head = previous or ChainHead()
    passed: list[str] = []
    for number, line in enumerate(lines, 1):
        entry = parse_line(line)
        if entry is None:
            return head, Flaw(number, "is no record"), passed
        if number == 1:
            if entry.kind != "begin":
                return head, Flaw(number, "is no beginning of a file"), passed
            if previous is None and len(entry.prev) == HASH_HEX:
                head = ChainHead(entry.seq - 1, bytes.fromhex(entry.prev))
            if entry.prev != head.digest.hex():
                return head, Flaw(number, "does not continue the file previous"), passed
        if entry.seq != head.seq + 1:
            return head, Flaw(number, f"has number {entry.seq} where {head.seq + 1} was due"), passed
        digest = digest_of(line, head.digest)
        if digest is None:
            return head, Flaw(number, "or the one previous was changed: its hash is wrong"), passed
        head = ChainHead(entry.seq, digest)
        passed.append(entry.hash)
    return head, None, passed
