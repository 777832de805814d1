"""Why a dead letter is one: a file beside each, with the same stem.

Owns that file. What makes a message a dead letter is decided elsewhere.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction

SUFFIX = ".reason.json"
_MAX_BYTES = 65_536


class Reason(Struct):
    """What is read of it."""

    reason: str = ""
    at: str = ""


def encode_reason(tx: Transaction, name: str, problem: Failure) -> bytes:
    """The content of the file, for a dead letter that had this name."""
    content = {"file": name, "code": problem.code, "reason": problem.message, "at": tx.clocks.iso()}
    return msgspec.json.encode(content) + b"\n"


def read_reason(tx: Transaction, agent: str, stem: str) -> Reason:
    """Why a dead letter is one; empty where nothing says so."""
    found = file_operations.read(tx.folder("deadletter", agent), f"{stem}{SUFFIX}", _MAX_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return Reason()
    try:
        return msgspec.json.decode(found.data, type=Reason)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Reason()
