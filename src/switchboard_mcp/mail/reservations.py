"""Advisory path reservations: agents announce which files they are working on. They expire.

Kept in the shared state, one row per path or pattern. A reservation succeeds or fails as a whole. Nothing prevents
writing; an agent that tries to reserve a path learns who holds it, and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.database.machine_clocks import stamp
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail.path_patterns import normal_path, overlap
from switchboard_mcp.mail.store.store import State

SECTION = "reservations"
MAX_PER_AGENT = 200


class Reservation(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A reserved path or pattern and its holder."""

    path: str
    holder: str
    until: str
    since: str
    reason: str = ""


def parse_paths(written: Sequence[str]) -> list[str]:
    """Return the normalized paths and patterns, without duplicates."""
    normalized: dict[str, None] = {}
    for path in written:
        normal = normal_path(path)
        if normal is None:
            message = (
                f"'{path[:200]}' cannot be reserved. Use a path inside the workspace, relative to it, with /."
            )
            raise refused("arguments_invalid", message)
        normalized[normal] = None
    return list(normalized)


def current(state: State, at: str) -> list[Reservation]:
    """Return the reservations that apply at this time."""
    rows = state.get(SECTION)
    return [row for row in map(_convert, rows if isinstance(rows, list) else ()) if row and row.until > at]


def reserve(
    holder: str, paths: Sequence[str], minutes: int, reason: str = "", *, now: datetime | None = None
) -> Callable[[State], list[Reservation]]:
    """Reserve paths, or extend reservations. Fails as a whole if another agent holds one."""
    requested = parse_paths(paths)

    def change(state: State) -> list[Reservation]:
        at = now or datetime.now(UTC)
        active = current(state, stamp(at))
        clashes = [
            row
            for row in active
            if row.holder != holder and any(overlap(row.path, path) for path in requested)
        ]
        if clashes:
            raise SwitchboardError(_clash(clashes, at))
        until = stamp(at + timedelta(minutes=minutes))
        added = [
            Reservation(path=path, holder=holder, until=until, since=stamp(at), reason=reason)
            for path in requested
        ]
        kept = [row for row in active if row.holder != holder or row.path not in requested]
        own = [row for row in (*kept, *added) if row.holder == holder]
        if len(own) > MAX_PER_AGENT:
            message = f"'{holder}' would have {len(own)} reservations. At most {MAX_PER_AGENT} are allowed."
            raise refused("arguments_invalid", message, hint="Release some, or reserve folders.")
        state[SECTION] = msgspec.to_builtins([*kept, *added])
        return own

    return change


def release(
    holder: str, paths: Sequence[str] | None = None, *, now: datetime | None = None
) -> Callable[[State], list[str]]:
    """Release paths, or all of the holder's; returns those released."""
    requested = None if paths is None else parse_paths(paths)

    def change(state: State) -> list[str]:
        active = current(state, stamp(now or datetime.now(UTC)))
        gone = [
            row for row in active if row.holder == holder and (requested is None or row.path in requested)
        ]
        state[SECTION] = msgspec.to_builtins([row for row in active if row not in gone])
        return [row.path for row in gone]

    return change


def _clash(clashes: list[Reservation], at: datetime) -> Failure:
    rows = "; ".join(
        f"{row.path} is reserved by '{row.holder}' until {row.until}"
        + (f" ({row.reason})" if row.reason else "")
        for row in clashes[:10]
    )
    last = max(datetime.fromisoformat(row.until) for row in clashes)
    return failure(
        "mail_paths_reserved",
        f"Nothing was reserved: {rows}.",
        retry_after_ms=max(0, round((last - at).total_seconds() * 1000)),
        data=Raw(msgspec.json.encode({"conflicts": clashes})),
    )


def _convert(row: object) -> Reservation | None:
    try:
        reservation = msgspec.convert(row, Reservation)
        datetime.fromisoformat(reservation.until)
    except ValueError:  # includes ValidationError
        return None
    return reservation
