"""API endpoint of the audit log: pages of it, newest first.

The log is written without arguments and with secrets redacted, so it can be shown as it is. Files are read backwards
in blocks, in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.entry import AuditEntry, matches
from switchboard_mcp.observability.audit.segments import segment_name, segment_numbers
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.state import DashboardState

MOST_ON_PAGE = 500
# Lines read for one page; then the viewer decides whether to continue.
MOST_READ = 50_000
BLOCK_BYTES = 262_144


class AuditPage(Struct):
    """A page of entries, newest first. `next` continues from here, 0 if there are no more."""

    entries: list[AuditEntry]
    next: int = 0
    read: int = 0


async def audit(state: DashboardState, request: ApiRequest) -> object:
    """Return one page, filtered by `q`, `kind`, `child` and `outcome`."""
    if state.services.audit is None:
        raise HTTPException(404, "The audit log is off. Set audit.enabled to turn it on.")
    folder = os.path.join(state.workspace.folder, state.workspace.config.audit.path)
    before = request.number("before", 0, 1 << 60)
    limit = request.number("limit", 100, MOST_ON_PAGE)
    try:
        return await asyncio.to_thread(read, folder, request.query, before, limit)
    except OSError as problem:
        raise HTTPException(500, f"Cannot read the audit log: {problem.strerror or problem}.") from None


def find(folder: str, record: CallRecord, most: int) -> AuditEntry | None:
    """Return the entry of a recorded call, looking at this many of the newest. Blocks."""
    at = int(record.at * 1000)
    for line in islice(_backwards(folder), most):
        entry = hash_chain.parse_line(line)
        if entry is None:
            continue
        if entry.at < at:
            return None
        if (entry.at, entry.kind, entry.child, entry.subtool) == (
            at,
            record.kind,
            record.child,
            record.subtool,
        ):
            return entry
    return None


def read(folder: str, query: dict[str, str], before: int, limit: int) -> AuditPage:
    """Read one page. Blocks."""
    page = AuditPage([])
    last = 0
    for line in _backwards(folder):
        entry = hash_chain.parse_line(line)
        if entry is None or (before and entry.seq >= before):
            continue
        if len(page.entries) >= limit or page.read >= MOST_READ:
            page.next = last
            break
        page.read += 1
        last = entry.seq
        if _fits(entry, query):
            page.entries.append(entry)
    return page


def _fits(entry: AuditEntry, query: dict[str, str]) -> bool:
    if not matches(entry, query.get("child", ""), query.get("kind", ""), query.get("outcome", "")):
        return False
    needle = query.get("q", "").casefold()
    if not needle:
        return True
    return (
        needle in f"{entry.kind} {entry.principal} {entry.child} {entry.subtool} {entry.outcome}".casefold()
    )


def _backwards(folder: str) -> Iterator[bytes]:
    """Yield every line of every file, newest first."""
    for number in reversed(segment_numbers(folder)):
        with open(os.path.join(folder, segment_name(number)), "rb") as file:
            place, rest = file.seek(0, os.SEEK_END), b""
            while place > 0:
                size = min(BLOCK_BYTES, place)
                place -= size
                file.seek(place)
                lines = (file.read(size) + rest).split(b"\n")
                rest = lines[0]
                yield from (line for line in reversed(lines[1:]) if line)
            if rest:
                yield rest
