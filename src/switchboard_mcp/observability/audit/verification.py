"""Proving the audit record: every file in turn, to the first line that does not belong.

Owns reading the files back; how lines are bound is `observability.audit.hash_chain`'s.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

from msgspec import Struct

from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.hash_chain import AuditEntry, ChainHead
from switchboard_mcp.observability.audit.segments import LOCK, folder_lock, segment_name, segment_numbers


class AuditVerdict(Struct, rename="camel", omit_defaults=True):
    """What was found. `head` is the hash of the last good line: kept elsewhere, it proves that nothing is gone."""

    ok: bool
    files: int
    records: int
    head: str
    first: int = 0
    """Number of the first record there is; more than 1 where older files were removed."""
    torn_bytes: int = 0
    """What a crash left at the end; the next writer sets it aside."""
    file: str = ""
    line: int = 0
    reason: str = ""


def verify(folder: str, contains: str = "") -> AuditVerdict:
    """Judge the whole record; `contains` is a head from earlier that must be in it. Raises OSError."""
    if os.path.exists(os.path.join(folder, LOCK)):
        with folder_lock(folder, fcntl.LOCK_SH):  # nobody is half-way through a line
            return _verify(folder, contains)
    return _verify(folder, contains)


def _verify(folder: str, contains: str) -> AuditVerdict:
    numbers = segment_numbers(folder)
    verdict = AuditVerdict(ok=True, files=len(numbers), records=0, head="")
    head: ChainHead | None = None
    found = not contains
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
        head, flaw, passed = hash_chain.verify_lines(lines, before)
        verdict.records += len(passed)
        found = found or contains in passed
        verdict.head = passed[-1] if passed else verdict.head
        if flaw is not None:
            _mark_broken(verdict, segment_name(number), flaw.line, flaw.reason)
            return verdict
    if not found:
        _mark_broken(
            verdict, segment_name(numbers[-1]) if numbers else folder, 0, f"holds no record {contains}"
        )
    return verdict


def entries(folder: str) -> Iterator[AuditEntry]:
    """Every record that can be read, oldest first."""
    for number in segment_numbers(folder):
        for line in _lines(_contents(folder, number))[0]:
            entry = hash_chain.parse_line(line)
            if entry is not None:
                yield entry


def _mark_broken(verdict: AuditVerdict, file: str, line: int, reason: str) -> None:
    verdict.ok, verdict.file, verdict.line, verdict.reason = False, file, line, reason


def _contents(folder: str, number: int) -> bytes:
    with open(os.path.join(folder, segment_name(number)), "rb") as file:
        return file.read()


def _lines(data: bytes) -> tuple[list[bytes], bytes]:
    *lines, rest = data.split(b"\n")
    return lines, rest
