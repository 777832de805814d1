"""`switchboard mail verify|repair|prune`: whether everything accepted is where it belongs, mending what a crash left,
and taking away what ended long ago.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import to_builtins

from switchboard_mcp.cli.console import Console, Styled, plural
from switchboard_mcp.cli.invocation import Invocation, misuse
from switchboard_mcp.cli.mail.mailbox import Mailbox, with_mailbox
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding
from switchboard_mcp.mail.store.maintenance.retention import prune, would_prune
from switchboard_mcp.mail.store.maintenance.verify import BROKEN


def run_verify(asked: Invocation) -> int:
    """Look, and judge."""

    async def work(mailbox: Mailbox) -> int:
        verdict = await mailbox.post.verify()
        out = asked.console.out
        if asked.as_json:
            out.json(verdict)
        else:
            counts = ", ".join(f"{count:,} in {place}" for place, count in verdict.counts.items() if count)
            whole = "Every accepted message is in exactly one place."
            broken = "Something accepted is not where it belongs; `switchboard mail repair` mends what can be mended."
            out.line(whole if verdict.sound else broken, "green" if verdict.sound else "red")
            out.line(counts or "There are none.", "dim")
            show_findings(verdict.findings, asked.console)
        return 0 if verdict.sound else 1

    return with_mailbox(asked, work)


def run_repair(asked: Invocation) -> int:
    """Mend, and tell."""

    async def work(mailbox: Mailbox) -> int:
        await mailbox.post.deliver()
        done = await mailbox.post.repair()
        if asked.as_json:
            asked.console.out.json({"mended": done})
        else:
            show_findings(done, asked.console)
            told = plural(len(done), "thing") + " mended." if done else "Nothing to mend."
            asked.console.out.line(told, "green")
        return 0

    return with_mailbox(asked, work)


def run_prune(asked: Invocation) -> int:
    """Take away, and tell."""
    seconds = read_age(asked.given.older)
    dry = asked.given.dry_run

    async def work(mailbox: Mailbox) -> int:
        done = await (would_prune if dry else prune)(mailbox.post, seconds)
        receipts = "their receipts" if dry else plural(done.receipts, "receipt")
        told = f"{plural(done.messages, 'settled message')} and {receipts}"
        told += f", {plural(done.attachments, 'attachment')}" if done.attachments else ""
        told = f"{'Would remove' if dry else 'Removed'} {told} ({done.bytes:,} bytes)."
        asked.tell({"dryRun": dry, **to_builtins(done)}, told, "" if dry else "green")
        return 0

    return with_mailbox(asked, work)


def read_age(written: str) -> float:
    """How long ago is meant, in seconds.

    >>> read_age("30d"), read_age("12h"), read_age("0.5d")
    (2592000.0, 43200.0, 43200.0)
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([dh])", written)
    if found is None:
        raise misuse(
            f"--older '{written[:80]}': that is no age.",
            "Such as --older 30d for 30 days, or 12h for 12 hours.",
        )
    return float(found[1]) * {"d": 86_400, "h": 3_600}[found[2]]


def show_findings(findings: Sequence[StoreFinding], console: Console) -> None:
    """A table of what was found."""
    console.out.table(
        [
            (Styled(finding.kind, "red" if finding.kind in BROKEN else "yellow"), finding.message)
            for finding in findings
        ]
    )
