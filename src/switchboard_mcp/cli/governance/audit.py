"""`switchboard audit`: verify, read or follow the audit record. Starts nothing."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import NoReturn

from switchboard_mcp.app import load
from switchboard_mcp.cli.console import Screen, Styled, one_line, plural, truncate, visible_width
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, flag, option, positional
from switchboard_mcp.errors import refused
from switchboard_mcp.features import audit_folder
from switchboard_mcp.observability.audit.entry import FAILED, AuditEntry, matches
from switchboard_mcp.observability.audit.reader import Reader
from switchboard_mcp.observability.audit.verification import AuditVerdict, verify

TAIL = 20
# Poll interval of `--follow`.
FOLLOW_S = 0.25
# Enough of an argument hash to distinguish two.
SHOWN_HASH = 12
HEADER = ("TIME", "", "KIND", "WHO", "WHAT", "TOOK", "ARGS", "OUTCOME")
# With --follow the widths of later rows are unknown: fixed widths that fit most, by column, and fewer when narrow.
WIDTHS = {0: 19, 1: 6, 2: 10, 3: 10, 4: 32, 5: 7, 6: SHOWN_HASH, 7: 0}
NARROW, NARROW_WIDTHS = 120, {0: 8, 2: 10, 3: 8, 4: 20, 5: 7, 7: 0}
TIME_CHARS = 8
GOOD = frozenset({"ok", "allowed", "approved"})


def run(invocation: Invocation) -> int:
    """Verify or show the record."""
    if invocation.args.last < 0:
        raise usage_error(
            f"--last {invocation.args.last}: not a number of records.", "For example: --last 50."
        )
    workspace = load(invocation.options)
    folder = os.path.join(workspace.folder, workspace.config.audit.path)
    try:
        if invocation.args.action == "verify":
            verdict = verify(folder, invocation.args.contains, workspace.config.audit.keep)
            return show_verdict(verdict, folder, invocation)
        with closing(Reader(folder)) as reader:
            if invocation.args.follow:
                follow(reader, invocation)
            return show_entries(select_entries(reader, invocation), invocation)
    except OSError as problem:
        message = f"The audit record in {folder} cannot be read: {problem.strerror or problem}."
        hint = "Turn it on with audit.enabled, or name the workspace it belongs to with --workspace."
        if audit_folder(workspace):
            hint = "Nothing has been recorded. `switchboard doctor` says if the folder can be written."
        raise refused("audit_failed", message, hint=hint) from None


COMMAND = Command(
    "audit verify|show|tail [OPTIONS]",
    "Read the audit record of the workspace: every decision and call, each line chained to the one before.\n"
    "`verify` proves that no line was changed, removed, moved or inserted, and that older files are gone only as far\n"
    "as audit.keep explains it; exit code 1 otherwise. It prints the last hash: store it elsewhere, and --contains\n"
    "HASH proves later that no line up to it is gone.",
    run=run,
    arguments=[
        positional("action", "verify, show or tail", choices=("verify", "show", "tail")),
        option("--contains", "HASH", "verify: the record must contain this earlier last hash"),
        option("--last", "N", "only the last N records (tail: 20)", 0),
        flag("--follow -f", "tail: follow new records, also across files"),
        option("--child", "NAME", "only records of this child"),
        option("--kind", "KIND", "only records of this kind, such as call"),
        option("--outcome", "WORD", "only records with this outcome, such as ok; `failed` is every failure"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard audit verify\n"
        "  switchboard audit show --child github --last 50\n"
        "  switchboard audit tail --follow --outcome failed"
    ),
)


def intact_records(verdict: AuditVerdict) -> str:
    """Return the sentence about the records that are proven although the log is not whole."""
    count = plural(verdict.records, "record")
    if verdict.intact == "after":
        after = f"The {count} after it, from record {verdict.first:,} on, are one chain."
        return f"{after} Nothing is proven about those before."
    if verdict.intact == "all":
        return (
            f"Its {count} are one chain, but another one than the chain with that hash, or cut off before it."
        )
    if verdict.intact == "before":
        start = f"from record {verdict.first:,} " if verdict.first > 1 else ""
        return f"Proven {start}up to there: {count}."
    return "No record is proven."


def show_verdict(verdict: AuditVerdict, folder: str, invocation: Invocation) -> int:
    """Show whether the hash chain holds, or where it is broken."""
    console = invocation.console
    if invocation.as_json:
        console.out.json(verdict)
        return 0 if verdict.ok else 1
    if not verdict.ok:
        where = os.path.join(folder, verdict.file).rstrip("/") + (
            f", line {verdict.line}" if verdict.line else ""
        )
        console.err.line(f"{console.err.paint('✗', 'red')} {where} {verdict.reason}.")
        console.err.line(f"  {intact_records(verdict)}", "dim")
        return 1
    message = f"{plural(verdict.records, 'record')} in {plural(verdict.files, 'file')}: one unbroken chain."
    console.out.line(f"{console.out.paint('✓', 'green')} {message}")
    if verdict.first > 1:
        console.out.line(
            f"  It starts at record {verdict.first:,}: older files were removed (audit.keep).", "dim"
        )
    if verdict.torn_bytes:
        left = plural(verdict.torn_bytes, "byte")
        console.out.line(f"  A crash left {left} at the end; the next start moves them aside.", "dim")
    console.out.line(f"  last hash: {verdict.head}", "dim")
    return 0


def new_entries(reader: Reader, invocation: Invocation) -> Iterator[AuditEntry]:
    """Yield the new entries that match the filters."""
    args = invocation.args
    return (entry for entry in reader.read_new() if matches(entry, args.child, args.kind, args.outcome))


def select_entries(reader: Reader, invocation: Invocation) -> Iterable[AuditEntry]:
    """Return the entries to show first: all of them, or the last few."""
    args = invocation.args
    last = args.last or (TAIL if args.action == "tail" else 0)
    return deque(new_entries(reader, invocation), maxlen=last) if last else new_entries(reader, invocation)


def follow(reader: Reader, invocation: Invocation) -> NoReturn:
    """Print the existing entries, then new ones until interrupted."""
    out = invocation.console.out
    if not invocation.as_json:
        out.line(_in_columns([Styled(name, "dim") for name in HEADER], out))
    fresh = select_entries(reader, invocation)
    while True:
        for entry in fresh:
            if invocation.as_json:
                out.json_line(entry)
            else:
                out.line(_in_columns(row(entry), out))
        invocation.console.flush()
        time.sleep(FOLLOW_S)
        fresh = new_entries(reader, invocation)


def show_entries(entries: Iterable[AuditEntry], invocation: Invocation) -> int:
    """Print one line per record; with `--json`, one object per line."""
    out = invocation.console.out
    if invocation.as_json:
        for entry in entries:
            out.json(entry)
        return 0
    rows = [row(entry) for entry in entries]
    if rows:
        out.table(rows, header=HEADER)
    else:
        invocation.console.err.line("Nothing is recorded.", "dim")
    return 0


def row(entry: AuditEntry) -> tuple[str | Styled, ...]:
    """Return the cells of one record."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at / 1000))
    outcome = entry.outcome or (f"{entry.count:,}" if entry.count else "")
    style = "green" if entry.outcome in GOOD else "red" if matches(entry, outcome=FAILED) else ""
    return (
        Styled(stamp, "dim"),
        str(entry.seq),
        entry.kind,
        entry.principal,
        " ".join(filter(None, (entry.child, entry.subtool, entry.origin and f"({entry.origin})"))),
        f"≤ {entry.duration_bucket}"
        if entry.duration_bucket and entry.duration_bucket != "more"
        else entry.duration_bucket,
        Styled(entry.args[:SHOWN_HASH], "dim"),
        Styled(outcome, style),
    )


def _in_columns(cells: Sequence[str | Styled], out: Screen) -> str:
    """Format one record as a line with fixed columns."""
    size = out.size()
    narrow = size is not None and size.columns < NARROW
    parts, room = [], size.columns if size is not None and narrow else 0
    for place, width in (NARROW_WIDTHS if narrow else WIDTHS).items():
        cell = cells[place]
        text, style = (one_line(cell.text), cell.style) if isinstance(cell, Styled) else (one_line(cell), "")
        if narrow:
            text = text[-TIME_CHARS:] if place == 0 else truncate(text, max(width or room, 1))
            room -= width + 2
        parts.append(out.paint(text, style) + " " * (width - visible_width(text)))
    return "  ".join(parts).rstrip()
