"""Verifies the audit log: every file in turn, up to the first line that breaks the chain.

Owns reading the files; the chain is in `hash_chain`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.entry import AuditEntry
from switchboard_mcp.observability.audit.hash_chain import ChainHead
from switchboard_mcp.observability.audit.segments import LOCK, folder_lock, segment_name, segment_numbers


class AuditVerdict(Struct, rename="camel", omit_defaults=True):
    """Result of a verification. `head` is the hash of the last good line: stored elsewhere, it proves completeness."""

    ok: bool
    files: int
    records: int
    head: str
    first: int = 0
    """Number of the first record; more than 1 if older files were removed."""
    torn_bytes: int = 0
    """Size of a torn line at the end; the next writer moves it aside."""
    file: str = ""
    line: int = 0
    reason: str = ""
    intact: Literal["", "before", "after", "all"] = ""
    """Position of the intact records if the log is not whole: before or after the flaw, or `all` if only the hash that
    the log must contain is missing."""


def verify(folder: str, contains: str = "", keep: int = 0) -> AuditVerdict:
    """Verify the whole audit log. `contains` is an earlier head that must be in it. Raises OSError.

    Older files may be gone only as far as `audit.keep` explains it. Each file says how many were kept when it was
    begun; `keep` is the number for files of versions that did not.
    """
    if os.path.exists(os.path.join(folder, LOCK)):
        with folder_lock(folder, fcntl.LOCK_SH):  # so no writer is in the middle of a line
            return _verify(folder, contains, keep)
    return _verify(folder, contains, keep)


def _verify(folder: str, contains: str, keep: int) -> AuditVerdict:
    numbers = segment_numbers(folder)
    verdict = AuditVerdict(ok=True, files=len(numbers), records=0, head="")
    head: ChainHead | None = None
    is_found = not contains
    oldest = 1  # the number that the first file may have
    for index, number in enumerate(numbers):
        if index and number != numbers[index - 1] + 1:
            _mark_broken(verdict, segment_name(numbers[index - 1] + 1), 0, "is missing")
            return verdict
        data = _contents(folder, number)
        lines, rest = _lines(data)
        if rest and index == len(numbers) - 1:
            verdict.torn_bytes = len(rest)
        elif rest:
            lines.append(rest)
        if index == 0 and lines and (first := hash_chain.parse_line(lines[0])) is not None:
            verdict.first = first.seq
        before = head or (ChainHead() if number == 1 else None)
        oldest = max(oldest, _oldest_kept(number, lines, keep))
        head, flaw, passed = hash_chain.verify_lines(lines, before)
        verdict.records += len(passed)
        is_found = is_found or contains in passed
        verdict.head = passed[-1] if passed else verdict.head
        if flaw is not None:
            _mark_broken(verdict, segment_name(number), flaw.line, flaw.reason)
            return verdict
    if not verdict.records:
        _mark_broken(verdict, "", 0, "has no record; if it ever had one, its files were removed")
    elif numbers[0] > oldest:
        reason = "is missing, and audit.keep does not explain it"
        _mark_broken(verdict, segment_name(numbers[0] - 1), 0, reason, "after")
    elif not is_found:
        _mark_broken(verdict, segment_name(numbers[-1]), 0, f"has no record {contains}", "all")
    return verdict


def _oldest_kept(number: int, lines: list[bytes], keep: int) -> int:
    """Return the number of the oldest file that was kept when this one was begun."""
    begin = hash_chain.parse_line(lines[0]) if lines else None
    if begin is None:
        return 1
    kept = keep if begin.keep is None else begin.keep
    return number - kept + 1 if kept > 0 else 1


def entries(folder: str) -> Iterator[AuditEntry]:
    """Yield every readable record, oldest first."""
    for number in segment_numbers(folder):
        for line in _lines(_contents(folder, number))[0]:
            entry = hash_chain.parse_line(line)
            if entry is not None:
                yield entry


def _mark_broken(
    verdict: AuditVerdict,
    file: str,
    line: int,
    reason: str,
    intact: Literal["before", "after", "all"] = "before",
) -> None:
    verdict.ok, verdict.file, verdict.line, verdict.reason = False, file, line, reason
    verdict.intact = intact if verdict.records else ""


def _contents(folder: str, number: int) -> bytes:
    with open(os.path.join(folder, segment_name(number)), "rb") as file:
        return file.read()


def _lines(data: bytes) -> tuple[list[bytes], bytes]:
    *lines, rest = data.split(b"\n")
    return lines, rest
