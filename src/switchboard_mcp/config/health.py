"""The settings of the health gate. The text under a field is its description in the published JSON Schema."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Milliseconds = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]


class HealthSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """When a child is well enough to be called. `switchboard status` shows how the children are."""

    spawn_warn_ms: Milliseconds = 2_000
    """A start that takes longer than this is told in the log."""
    spawn_fail_ms: Milliseconds | None = None
    """A start that takes longer than this has failed, whatever `timeouts` allow. When not set: in governed mode
    5,000; in open mode only `timeouts` count, since a package runner may have to download first."""
    failures: Count = 5
    """So many failures in a row (starts, crashes, probes without an answer) put a child into quarantine."""
    quarantine_ms: Milliseconds = 60_000
    """How long a child stays in quarantine before it is started again, on probation."""
    probe_ms: Milliseconds = 5_000
    """A running child that left a call unanswered is asked whether it is there: so long the answer may take, and so
    long is the pause between two probes. Without an answer it is unhealthy, and calls to it are refused."""
    successes: Count | None = None
    """So many answers make a child on probation healthy again. When not set: in governed mode 3, in open mode 1."""
