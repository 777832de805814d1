"""`switchboard mail workflow`: workflows from a shell. What happens is `mail.workflows.engine`' matter."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from switchboard_mcp.cli.console import Console, Styled
from switchboard_mcp.cli.invocation import Invocation, misuse
from switchboard_mcp.cli.mail.mailbox import Mailbox, being, with_mailbox
from switchboard_mcp.cli.mail.show import ago
from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.mail.workflows.notices import definitions_view, history, run_view

STATUS_STYLES = {"running": "cyan", "finished": "green", "stopped": "yellow"}
Step = Callable[..., Coroutine[Any, Any, engine.StepOutcome]]
SEE = "`switchboard mail workflow --help` shows how."


def run(asked: Invocation) -> int:
    """Show, or move one on."""
    given = asked.given
    match given.words:
        case []:
            return with_mailbox(asked, lambda mailbox: _show(asked, mailbox))
        case ["start", name]:
            parts = _parts(given.parts)
            return _moved(asked, engine.start, name, agents=parts, subject=given.subject)
        case ["complete", *phase] if len(phase) < 2:
            how = {"next": given.next, "artifacts": given.artifacts, "note": given.note}
            return _moved(asked, engine.complete, *(phase or [""]), workflow=given.workflow, **how)
        case ["skip", *phase] if len(phase) < 2:
            how = {"workflow": given.workflow, "next": given.next}
            return _moved(asked, engine.skip, *(phase or [""]), _reason(asked), **how)
        case ["stop"]:
            return _moved(asked, engine.stop, _reason(asked), workflow=given.workflow)
        case words:
            raise misuse(f"mail workflow: '{' '.join(words)}' is not understood.", SEE)


def _parts(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in given:
        part, equals, agent = word.partition("=")
        if not part or not equals or not agent:
            raise misuse(f"--part {word}: that is no PART=AGENT.", SEE)
        found[part] = agent
    return found


def _reason(asked: Invocation) -> str:
    reason: str = asked.given.reason
    if not reason.strip():
        raise misuse("mail workflow: say why with --reason; it is recorded.", SEE)
    return reason


def _moved(asked: Invocation, step: Step, *words: str, **how: Any) -> int:
    async def work(mailbox: Mailbox) -> int:
        me = mailbox.may_act()
        async with being(mailbox, me) as verified:
            moved = await step(mailbox.post, me, *words, verified=verified, **how)
        if asked.as_json:
            asked.console.out.json({**run_view(moved.run, me), "warnings": moved.warnings})
            return 0
        _show_run(moved.run, asked.console, me)
        for warning in moved.warnings:
            asked.console.warn(warning)
        return 0

    return with_mailbox(asked, work)


async def _show(asked: Invocation, mailbox: Mailbox) -> int:
    state = await engine.send_pending_notices(mailbox.post)
    runs = list(engine.runs(state).values())
    known = await engine.definitions(mailbox.post)
    if asked.given.workflow:
        runs = [engine.find(state, mailbox.agent, asked.given.workflow)]
    if asked.as_json:
        told = [run_view(each, mailbox.agent) for each in runs]
        asked.console.out.json({"workflows": told, "available": definitions_view(known)})
        return 0
    out = asked.console.out
    if asked.given.workflow:
        _show_run(runs[0], asked.console, mailbox.agent)
        return 0
    if runs:
        out.table(
            [
                (
                    Styled(each.id, "bold cyan"),
                    Styled(each.status, STATUS_STYLES.get(each.status, "")),
                    each.phase if each.status == "running" else "",
                    each.actor if each.status == "running" else "",
                    ago(each.started_at),
                    each.subject,
                )
                for each in runs
            ],
            ("WORKFLOW", "STATUS", "PHASE", "TURN", "AGE", ""),
        )
    else:
        out.line("No workflow is under way. There are:", "dim")
    out.table(
        [
            (Styled(name, "bold"), found.message if isinstance(found, Failure) else found.description)
            for name, found in sorted(known.items())
        ],
        ("TO START", ""),
    )
    return 0


def _show_run(run: WorkflowRun, console: Console, me: str) -> None:
    out = console.out
    out.line(f"{out.paint(run.id, 'bold cyan')} {out.paint(run.status, STATUS_STYLES.get(run.status, ''))}")
    phase = run.current_phase
    if phase is not None:
        out.prose(f"Phase '{phase.name}', by {run.actor} ({phase.by}): {phase.does}", indent="  ")
        if run.needs():
            out.prose(f"Needed at its end: {', '.join(run.needs())}", indent="  ")
    if run.steps:
        out.prose(f"So far:\n{history(run)}", indent="  ")
    if phase is None:
        return
    if run.actor != me:
        out.line(f"  It is {run.actor}'s turn.", "dim")
        return
    out.line("  It is your turn. When it is done:", "green")
    arrows = run.definition.transitions(phase)
    for onward in [f" --next {arrow}" for arrow in arrows] if len(arrows) > 1 else [""]:
        out.line(f"  switchboard mail workflow complete {phase.name}{onward} --as {me}")
