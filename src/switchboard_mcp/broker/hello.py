"""Reads the first message of a connection to the broker. Pure."""

from __future__ import annotations

import os
from typing import Literal

from msgspec import Struct

from switchboard_mcp.broker.shim import PROTOCOL

MAX_HELLO_BYTES = 4 * 1024 * 1024  # more than the system lets arguments and environment have together
KINDS: tuple[Kind, ...] = ("join", "status", "restart", "stop", "dashboard", "ping")
Kind = Literal["join", "status", "restart", "stop", "dashboard", "ping"]


class Hello(Struct, frozen=True):
    """The purpose of a connection and, for a session, how its process was started."""

    kind: Kind
    version: str
    folder: str
    arguments: list[str]
    environ: dict[str, str]


def decode_hello(data: bytes) -> Hello | None:
    """Return the message, or None if it is not one of this protocol."""
    fields = [os.fsdecode(field) for field in data.split(b"\0")]
    if len(fields) < 6 or fields.pop() or fields[0] != PROTOCOL or not fields[4].isdecimal():
        return None
    kind = next((kind for kind in KINDS if kind == fields[1]), None)
    count = int(fields[4][:6])
    if kind is None or len(fields) < 5 + count:
        return None
    variables = (field.partition("=") for field in fields[5 + count :])
    return Hello(
        kind, fields[2], fields[3], fields[5 : 5 + count], {name: value for name, _, value in variables}
    )
