"""One line of the audit log as it is read: its fields, and filters on them.

`MEMBERS` in `writer` names the members that hold the texts of a call record.
"""

from __future__ import annotations

from msgspec import Struct, field

from switchboard_mcp.errors import KINDS


class AuditEntry(Struct, omit_defaults=True):
    """One decoded line. `torn` and `lost` are markers of the writer.

    A `begin` line opens each file and has `prev` and `keep`, the number of files that were kept from then on.
    """

    seq: int
    at: int
    kind: str
    principal: str = field(default="", name="who")
    child: str = ""
    subtool: str = ""
    outcome: str = ""
    duration_bucket: str = field(default="", name="took")
    origin: str = ""
    args: str = ""
    pid: int = 0
    schema: int = 0
    prev: str = ""
    keep: int | None = None
    count: int = 0
    hash: str = ""


# Matches every outcome that is a failure.
FAILED = "failed"
_FAILURES = frozenset({"error", "blocked", "unhealthy", "quarantined", "rejected", *KINDS})


def matches(entry: AuditEntry, child: str = "", kind: str = "", outcome: str = "") -> bool:
    """Return whether a line matches the filters; empty ones match everything."""
    return (
        (not child or entry.child == child)
        and (not kind or entry.kind == kind)
        and (not outcome or entry.outcome == outcome or (outcome == FAILED and entry.outcome in _FAILURES))
    )
