"""The findings of the doctor."""

from __future__ import annotations

from msgspec import Struct

PROBLEM, NOTE = "problem", "note"


class Finding(Struct, frozen=True, omit_defaults=True):
    """One finding and its remedy: a problem needs fixing, a note does not."""

    level: str
    message: str
    remedy: str = ""
    stderr: list[str] = []
