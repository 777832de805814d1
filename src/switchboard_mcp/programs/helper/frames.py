"""The messages between the gateway and a helper process: MessagePack in frames with their length in front.

Both sides decode with these types, since the helper is not trusted: a message of another shape is an error.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from switchboard_mcp.programs.engine import Diagnostic, Failed, Finished, ProgramCall, Raised

HEADER_BYTES = 4
# Copying a snapshot takes the gateway 2 ms for each MiB, and it must not stop serving for that.
MAX_SNAPSHOT_MB = 32
# Code, a value, printed lines or diagnostics, besides a snapshot.
_OTHER_BYTES = 16 * 1024 * 1024


class ModuleFrame(Struct, array_like=True, frozen=True):
    """A module: its name, its functions, and the stub for the checker."""

    name: str
    functions: list[str]
    stub: str = ""


class LimitsFrame(Struct, array_like=True, frozen=True):
    """The limits that hold inside the helper."""

    seconds: float
    memory_mb: int
    calls: int
    answer_kb: int
    recursion: int


class SettledFrame(Struct, array_like=True, frozen=True):
    """The outcome of a call."""

    id: int
    value: bytes
    text: str | None
    raised: Raised | None
    message: str


class CheckRequest(Struct, tag="check", frozen=True):
    """Check a program. `builtins` declares names that every program has."""

    code: str
    modules: list[ModuleFrame]
    builtins: str = ""


class StartRequest(Struct, tag="start", frozen=True):
    """Run a program to its first step. The answer has a snapshot if `dump`."""

    code: str
    modules: list[ModuleFrame]
    input: bytes
    limits: LimitsFrame
    seed: int
    clock: float
    dump: bool = False


class ResumeRequest(Struct, tag="resume", frozen=True):
    """Run on with outcomes. The snapshot is empty if the helper still holds the program."""

    snapshot: bytes
    modules: list[ModuleFrame]
    settled: list[SettledFrame]
    limits: LimitsFrame
    dump: bool = False


class DumpRequest(Struct, tag="dump", frozen=True):
    """Take the snapshot of the program that the helper holds, and let go of it."""


Request = CheckRequest | StartRequest | ResumeRequest | DumpRequest


class Checked(Struct, tag="checked"):
    """The result of a check; `analysis` is the result of the source analysis."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    analysis: dict[str, Any] = field(default_factory=dict)
    syntax_error: Diagnostic | None = None
    failure: Failed | None = None


class WaitingFrame(Struct, array_like=True, frozen=True):
    """A program that waits for calls. The helper holds it until its next operation, or there is a snapshot."""

    calls: list[ProgramCall]
    pending: list[int]
    printed: str
    snapshot: bytes


class Stepped(Struct, tag="stepped"):
    """The end of a step."""

    waiting: WaitingFrame | None = None
    finished: Finished | None = None
    failed: Failed | None = None


class Dumped(Struct, tag="dumped"):
    """The snapshot of a program that waits."""

    snapshot: bytes = b""
    failed: Failed | None = None


class Ready(Struct, tag="ready"):
    """The helper is confined and waits for requests. `parts` are the mechanisms that hold."""

    parts: list[str]
    worker: int


class Answer(Struct, array_like=True):
    """A response. The helper ends after it if `retires`, since its worker has died."""

    body: Checked | Stepped | Dumped | Ready
    retires: bool = False


def max_snapshot_bytes(memory_mb: int) -> int:
    """Return the largest snapshot of a program with this limit of memory."""
    return min(memory_mb, MAX_SNAPSHOT_MB) * 1024 * 1024


def max_frame_bytes(memory_mb: int) -> int:
    """Return the largest message of a helper."""
    return max_snapshot_bytes(memory_mb) + _OTHER_BYTES


_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(Answer)
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)


def encode(message: object) -> bytes:
    """Return a message as a frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode_answer(body: bytes | memoryview) -> Answer:
    """Return the answer in a frame. Raises `msgspec.MsgspecError`."""
    return _answers.decode(body)


def decode_request(body: bytes) -> Request:
    """Return the request in a frame. Raises `msgspec.MsgspecError`."""
    return _requests.decode(body)
