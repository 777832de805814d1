"""The findings of the doctor."""

from __future__ import annotations

from msgspec import Struct

PROBLEM, NOTE, GOOD = "problem", "note", "good"


class Finding(Struct, frozen=True, omit_defaults=True):
    """One finding and its remedy: a problem needs fixing, a note may, what is good does not."""

    level: str
    message: str
    remedy: str = ""
    stderr: list[str] = []
