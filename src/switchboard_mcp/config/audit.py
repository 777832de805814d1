"""The settings of the audit record. The text under a field is its description in the published JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Fsync = Literal["never", "second", "always"]


class AuditSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The record of every decision and call: append-only, each line bound to the one before by a hash."""

    enabled: bool | None = None
    """Keep the record. When not set: in governed mode yes, in open mode no."""
    path: str = ".switchboard/audit"
    """Folder of the record, relative to the workspace."""
    fsync: Fsync = "second"
    """When lines are forced to the disk: `never` leaves it to the system, `second` at most once a second, `always`
    after every batch. Only a machine that fails can lose what is not there yet."""
    max_bytes: Annotated[int, Meta(ge=4096)] = 16_777_216
    """A file that has grown to this size is followed by a new one, which continues its chain."""
    keep: Annotated[int, Meta(ge=0)] = 0
    """How many files to keep, the oldest go first; 0 keeps all."""
    when_impossible: Literal["deny", "warn"] | None = None
    """What happens while nothing can be recorded, as on a full disk: `deny` refuses calls, `warn` logs it. When not
    set: in governed mode `deny`, in open mode `warn`."""
