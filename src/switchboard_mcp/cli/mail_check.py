"""`switchboard mail verify|repair`: whether everything accepted is where it belongs, and mending what a crash left."""

from __future__ import annotations

from collections.abc import Sequence

from switchboard_mcp.cli.console import Console, Styled, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.mailbox import Mailbox, with_mailbox
from switchboard_mcp.mail.tidy import Finding
from switchboard_mcp.mail.verify import BROKEN


def run_verify(asked: Invocation) -> int:
    """Look, and judge."""

    async def work(mailbox: Mailbox) -> int:
        verdict = await mailbox.post.verify()
        out = asked.console.out
        if asked.as_json:
            out.json(verdict)
        else:
            counts = ", ".join(f"{count:,} in {place}" for place, count in verdict.counts.items())
            whole = "Every accepted message is in exactly one place."
            broken = "Something accepted is not where it belongs; `switchboard mail repair` mends what can be mended."
            out.line(whole if verdict.sound else broken, "green" if verdict.sound else "red")
            out.line(counts, "dim")
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


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """A table of what was found."""
    console.out.table(
        [
            (Styled(finding.kind, "red" if finding.kind in BROKEN else "yellow"), finding.message)
            for finding in findings
        ]
    )
