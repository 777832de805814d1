"""Reason files: one next to each dead letter, with the same stem.

A separate module because `message_lookup` reads reasons and `dead_letters` builds on `message_lookup`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import printable

SUFFIX = ".reason.json"
_MAX_BYTES = 65_536


class Reason(Struct):
    """Reason and time of a dead letter."""

    reason: str = ""
    at: str = ""


def encode_reason(tx: Transaction, name: str, problem: Failure) -> bytes:
    """Encode the reason file for a dead letter with this original name."""
    content = {
        "file": printable(name),
        "code": problem.code,
        "reason": problem.message,
        "at": tx.clocks.iso(),
    }
    return msgspec.json.encode(content) + b"\n"


def read_reason(tx: Transaction, agent: str, stem: str) -> Reason:
    """Read the reason of a dead letter; empty if there is none."""
    content = file_operations.read(tx.folder("deadletter", agent), f"{stem}{SUFFIX}", _MAX_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return Reason()
    try:
        return msgspec.json.decode(content.data, type=Reason)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Reason()
