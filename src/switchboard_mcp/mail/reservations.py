"""Paths that agents have reserved while they work on them: advice for the others, which ends by itself.

Kept in the state that all processes share, a row for each path or pattern. A reservation is taken as a whole or not at
all. Nothing stops anybody from writing; agents that ask learn who is at it, and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail.path_patterns import normal_path, overlap
from switchboard_mcp.mail.store.clocks import stamp
from switchboard_mcp.mail.store.store import State

SECTION = "reservations"
MAX_PER_AGENT = 200


class Reservation(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One path or pattern, and who has it."""

    path: str
    holder: str
    until: str
    since: str
    reason: str = ""


def parse_paths(written: Sequence[str]) -> list[str]:
    """The paths and patterns that are meant, each once."""
    found: dict[str, None] = {}
    for path in written:
        normal = normal_path(path)
        if normal is None:
            message = f"'{path[:200]}' cannot be reserved: it must be relative to the workspace and inside it, with /."
            raise refused("arguments_invalid", message)
        found[normal] = None
    return list(found)


def current(state: State, at: str) -> list[Reservation]:
    """Those that hold at this time."""
    rows = state.get(SECTION)
    return [row for row in map(_convert, rows if isinstance(rows, list) else ()) if row and row.until > at]


def reserve(
    holder: str, paths: Sequence[str], minutes: int, reason: str = "", *, now: datetime | None = None
) -> Callable[[State], list[Reservation]]:
    """Take paths for a time, or hold what one has longer. Refused as a whole where one is another's."""
    wanted = parse_paths(paths)

    def change(state: State) -> list[Reservation]:
        at = now or datetime.now(UTC)
        held = current(state, stamp(at))
        clashes = [
            row for row in held if row.holder != holder and any(overlap(row.path, path) for path in wanted)
        ]
        if clashes:
            raise SwitchboardError(_clash(clashes, at))
        until = stamp(at + timedelta(minutes=minutes))
        made = [
            Reservation(path=path, holder=holder, until=until, since=stamp(at), reason=reason)
            for path in wanted
        ]
        kept = [row for row in held if row.holder != holder or row.path not in wanted]
        own = [row for row in (*kept, *made) if row.holder == holder]
        if len(own) > MAX_PER_AGENT:
            message = f"'{holder}' would have {len(own)} reservations; {MAX_PER_AGENT} are the most."
            raise refused("arguments_invalid", message, hint="Release some, or reserve folders.")
        state[SECTION] = msgspec.to_builtins([*kept, *made])
        return own

    return change


def release(
    holder: str, paths: Sequence[str] | None = None, *, now: datetime | None = None
) -> Callable[[State], list[str]]:
    """Give paths back, or all of one's own; answers with those that were given back."""
    wanted = None if paths is None else parse_paths(paths)

    def change(state: State) -> list[str]:
        held = current(state, stamp(now or datetime.now(UTC)))
        gone = [row for row in held if row.holder == holder and (wanted is None or row.path in wanted)]
        state[SECTION] = msgspec.to_builtins([row for row in held if row not in gone])
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
        found = msgspec.convert(row, Reservation)
        datetime.fromisoformat(found.until)
    except ValueError:  # which a ValidationError is, too
        return None
    return found
