"""What the doctor finds: one thing to know, and what to do about it."""

from __future__ import annotations

from msgspec import Struct

PROBLEM, NOTE = "problem", "note"


class Finding(Struct, frozen=True, omit_defaults=True):
    """Something to know: a problem is to be mended, a note is not."""

    level: str
    message: str
    remedy: str = ""
    stderr: list[str] = []
