"""`switchboard audit`: prove the record, or read it. Starts nothing."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable

from switchboard_mcp.app import load
from switchboard_mcp.cli.console import Styled, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.core.chain import Entry
from switchboard_mcp.errors import SwitchboardError, failure
from switchboard_mcp.observe.audit_verify import Verdict, entries, verify

TAIL = 20
# Of a hash of arguments so much is shown to people as tells equal ones apart.
SHOWN_HASH = 12
GOOD = frozenset({"ok", "allowed", "approved"})


def run(asked: Invocation) -> int:
    """Find the record, then prove or show it."""
    workspace = load(asked.options)
    folder = os.path.join(workspace.folder, workspace.config.audit.path)
    try:
        if asked.given.action == "verify":
            return show_verdict(verify(folder, asked.given.contains), folder, asked)
        return show_entries(chosen(folder, asked), asked)
    except OSError as problem:
        told = f"The audit record in {folder} cannot be read: {problem.strerror or problem}."
        hint = "Turn it on with audit.enabled, or name the workspace it belongs to with --workspace."
        raise SwitchboardError(failure("audit_failed", told, hint=hint)) from None


def show_verdict(verdict: Verdict, folder: str, asked: Invocation) -> int:
    """Tell whether the chain holds, or where it is broken."""
    console = asked.console
    if asked.as_json:
        console.out.json(verdict)
        return 0 if verdict.ok else 1
    if not verdict.ok:
        where = os.path.join(folder, verdict.file) + (f", line {verdict.line}" if verdict.line else "")
        console.err.line(f"{console.err.paint('✗', 'red')} {where} {verdict.reason}.")
        console.err.line(f"  Proven up to there: {plural(verdict.records, 'record')}.", "dim")
        return 1
    told = f"{plural(verdict.records, 'record')} in {plural(verdict.files, 'file')}: one unbroken chain."
    console.out.line(f"{console.out.paint('✓', 'green')} {told}")
    if verdict.first > 1:
        console.out.line(f"  It starts at record {verdict.first:,}: older files were removed.", "dim")
    if verdict.torn_bytes:
        left = plural(verdict.torn_bytes, "byte")
        console.out.line(f"  A crash left {left} at the end; the next start sets them aside.", "dim")
    console.out.line(f"  last hash: {verdict.head}", "dim")
    return 0


def chosen(folder: str, asked: Invocation) -> Iterable[Entry]:
    """The records asked for."""
    given = asked.given
    found = (
        entry
        for entry in entries(folder)
        if (not given.child or entry.child == given.child) and (not given.kind or entry.kind == given.kind)
    )
    last = given.last or (TAIL if given.action == "tail" else 0)
    return deque(found, maxlen=last) if last else found


def show_entries(found: Iterable[Entry], asked: Invocation) -> int:
    """One line a record; as JSON one object a line."""
    out = asked.console.out
    if asked.as_json:
        for entry in found:
            out.json(entry)
        return 0
    rows = [row(entry) for entry in found]
    if rows:
        out.table(rows, header=("TIME", "", "KIND", "WHO", "WHAT", "TOOK", "ARGS", "OUTCOME"))
    else:
        asked.console.err.line("Nothing is recorded.", "dim")
    return 0


def row(entry: Entry) -> tuple[str | Styled, ...]:
    """One record for people."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at / 1000))
    outcome = entry.outcome or (f"{entry.count:,}" if entry.count else "")
    style = "" if not entry.outcome else "green" if entry.outcome in GOOD else "red"
    return (
        Styled(stamp, "dim"),
        str(entry.seq),
        entry.kind,
        entry.who,
        " ".join(filter(None, (entry.child, entry.subtool))),
        f"≤ {entry.took}" if entry.took and entry.took != "more" else entry.took,
        Styled(entry.args[:SHOWN_HASH], "dim"),
        Styled(outcome, style),
    )
