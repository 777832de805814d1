"""`switchboard mail verify|repair|prune`: check the message store, repair it after a crash, delete old messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import to_builtins

from switchboard_mcp.cli.console import Console, Styled, plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.mailbox import Mailbox, with_mailbox
from switchboard_mcp.cli.parser import Command, flag, option
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding
from switchboard_mcp.mail.store.maintenance.retention import prune, would_prune
from switchboard_mcp.mail.store.maintenance.verify import BROKEN


def run_verify(invocation: Invocation) -> int:
    """Verify the store; exit code 1 if something is lost or misplaced."""

    async def work(mailbox: Mailbox) -> int:
        verdict = await mailbox.store.verify()
        out = invocation.console.out
        if invocation.as_json:
            out.json(verdict)
        else:
            counts = ", ".join(f"{count:,} in {place}" for place, count in verdict.counts.items() if count)
            whole = "Every accepted message is in exactly one place."
            broken = (
                "An accepted message is missing or misplaced; `switchboard mail repair` repairs what it can."
            )
            out.line(whole if verdict.sound else broken, "green" if verdict.sound else "red")
            out.line(counts or "No messages.", "dim")
            show_findings(verdict.findings, invocation.console)
        return 0 if verdict.sound else 1

    return with_mailbox(invocation, work)


VERIFY = Command(
    "mail verify [OPTIONS]",
    "Check every file, and that each accepted message is in exactly one place, intact. Exit code 1 if one is\n"
    "not.",
    run=run_verify,
)


def run_repair(invocation: Invocation) -> int:
    """Repair the store and show what was done."""

    async def work(mailbox: Mailbox) -> int:
        await mailbox.store.deliver()
        done = await mailbox.store.repair()
        if invocation.as_json:
            # `mended` is the former name of `repaired`, removed in the next release.
            invocation.console.out.json({"repaired": done, "mended": done})
        else:
            show_findings(done, invocation.console)
            message = plural(len(done), "problem") + " repaired." if done else "There is nothing to repair."
            invocation.console.out.line(message, "green")
        return 0

    return with_mailbox(invocation, work)


REPAIR = Command(
    "mail repair [OPTIONS]",
    "Repair what a crash left behind, and show what was done.",
    run=run_repair,
)


def run_prune(invocation: Invocation) -> int:
    """Delete old settled messages, or count them."""
    seconds = read_age(invocation.args.older)
    dry = invocation.args.dry_run

    async def work(mailbox: Mailbox) -> int:
        done = await (would_prune if dry else prune)(mailbox.store, seconds)
        receipts = "their receipts" if dry else plural(done.receipts, "receipt")
        message = f"{plural(done.messages, 'settled message')} and {receipts}"
        message += f", {plural(done.attachments, 'attachment')}" if done.attachments else ""
        message = f"{'Would remove' if dry else 'Removed'} {message} ({done.bytes:,} bytes)."
        invocation.report({"dryRun": dry, **to_builtins(done)}, message, "" if dry else "green")
        return 0

    return with_mailbox(invocation, work)


PRUNE = Command(
    "mail prune --older AGE [--dry-run] [OPTIONS]",
    "Delete messages settled that long ago, with their receipts, keys and attachments, of all agents.\n"
    "Unread, claimed and dead messages stay.",
    run=run_prune,
    arguments=[
        option("--older", "AGE", "minimum age: 30d, 12h", required=True),
        flag("--dry-run", "only show how much would be deleted"),
    ],
)


def read_age(text: str, flag: str = "--older") -> float:
    """Parse a duration, in seconds.

    >>> read_age("30d"), read_age("12h"), read_age("0.5d"), read_age("30m")
    (2592000.0, 43200.0, 43200.0, 1800.0)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([dhm])", text)
    if match is None:
        raise usage_error(
            f"{flag} '{text[:80]}': not a duration.",
            f"For example: {flag} 30d for 30 days, 12h for 12 hours, or 30m for 30 minutes.",
        )
    return float(match[1]) * {"d": 86_400, "h": 3_600, "m": 60}[match[2]]


def show_findings(findings: Sequence[StoreFinding], console: Console) -> None:
    """Print a table of findings."""
    console.out.table(
        [
            (Styled(finding.kind, "red" if finding.kind in BROKEN else "yellow"), finding.message)
            for finding in findings
        ]
    )
