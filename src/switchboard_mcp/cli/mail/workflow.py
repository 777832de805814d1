"""`switchboard mail workflow`: run workflows from a shell. The logic is in `mail/workflows/engine.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from switchboard_mcp.cli.console import Console, Styled
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.arguments import AS
from switchboard_mcp.cli.mail.mailbox import Mailbox, acting_as, with_mailbox
from switchboard_mcp.cli.mail.show import format_since
from switchboard_mcp.cli.parser import Command, option, positional, repeatable
from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.mail.workflows.notices import definitions_view, history, run_view

STATUS_STYLES = {"running": "cyan", "finished": "green", "stopped": "yellow"}
Step = Callable[..., Coroutine[Any, Any, engine.StepOutcome]]
SEE_HELP = "`switchboard mail workflow --help` shows how."


def run(invocation: Invocation) -> int:
    """List workflows, or advance one."""
    args = invocation.args
    match args.words:
        case []:
            return with_mailbox(invocation, lambda mailbox: _show(invocation, mailbox))
        case ["start", name]:
            parts = _parts(args.parts)
            return _advance(invocation, engine.start, name, agents=parts, subject=args.subject)
        case ["complete", *phase] if len(phase) < 2:
            options = {"next": args.next, "artifacts": args.artifacts, "note": args.note}
            return _advance(invocation, engine.complete, *(phase or [""]), workflow=args.workflow, **options)
        case ["skip", *phase] if len(phase) < 2:
            options = {"workflow": args.workflow, "next": args.next}
            return _advance(invocation, engine.skip, *(phase or [""]), _reason(invocation), **options)
        case ["stop"]:
            return _advance(invocation, engine.stop, _reason(invocation), workflow=args.workflow)
        case words:
            raise usage_error(f"mail workflow: '{' '.join(words)}' is not a valid action.", SEE_HELP)


COMMAND = Command(
    "mail workflow [start NAME | complete [PHASE] | skip [PHASE] | stop] [OPTIONS]",
    "List the workflows that can be started and those running, or advance one.",
    run=run,
    arguments=[
        positional(
            "words",
            "what to do (default: show)",
            metavar="start NAME | complete [PHASE] | skip [PHASE] | stop",
            nargs="*",
        ),
        AS,
        option("--workflow", "ID", "which one (default: the one you are in)"),
        repeatable("--part", "PART=AGENT", "start: the agent for a part", dest="parts"),
        option("--subject", "LINE", "start: the subject"),
        repeatable("--artifact", "FILE", "complete: a file produced", dest="artifacts"),
        option("--next", "PHASE", "complete, skip: the next phase, if there is a choice"),
        option("--reason", "LINE", "skip, stop: the reason, which is recorded"),
        option("--note", "LINE", "complete: a sentence for the record"),
    ],
    epilog="examples:\n"
    "  switchboard mail workflow start review --part author=coder --part reviewer=bob --as lead\n"
    "  switchboard mail workflow complete submit --artifact src/parser.py --as coder\n"
    '  switchboard mail workflow stop --reason "not needed any more" --as lead',
)


def _parts(pairs: Sequence[str]) -> dict[str, str]:
    parts: dict[str, str] = {}
    for word in pairs:
        part, equals, agent = word.partition("=")
        if not part or not equals or not agent:
            raise usage_error(f"--part {word}: not PART=AGENT.", SEE_HELP)
        parts[part] = agent
    return parts


def _reason(invocation: Invocation) -> str:
    reason: str = invocation.args.reason
    if not reason.strip():
        raise usage_error("mail workflow: give a --reason; it is recorded.", SEE_HELP)
    return reason


def _advance(invocation: Invocation, step: Step, *words: str, **how: Any) -> int:
    async def work(mailbox: Mailbox) -> int:
        me = mailbox.acting_agent()
        async with acting_as(mailbox, me) as verified:
            moved = await step(mailbox.store, me, *words, verified=verified, **how)
        if invocation.as_json:
            invocation.console.out.json({**run_view(moved.run, me), "warnings": moved.warnings})
            return 0
        _show_run(moved.run, invocation.console, me)
        for warning in moved.warnings:
            invocation.console.warn(warning)
        return 0

    return with_mailbox(invocation, work)


async def _show(invocation: Invocation, mailbox: Mailbox) -> int:
    state = await engine.send_pending_notices(mailbox.store)
    runs = list(engine.runs(state).values())
    definitions = await engine.definitions(mailbox.store)
    if invocation.args.workflow:
        runs = [engine.find(state, mailbox.agent, invocation.args.workflow)]
    if invocation.as_json:
        shown_runs = [run_view(run, mailbox.agent) for run in runs]
        invocation.console.out.json({"workflows": shown_runs, "available": definitions_view(definitions)})
        return 0
    out = invocation.console.out
    if invocation.args.workflow:
        _show_run(runs[0], invocation.console, mailbox.agent)
        return 0
    if runs:
        out.table(
            [
                (
                    Styled(run.id, "bold cyan"),
                    Styled(run.status, STATUS_STYLES.get(run.status, "")),
                    run.phase if run.status == "running" else "",
                    run.actor if run.status == "running" else "",
                    format_since(run.started_at),
                    run.subject,
                )
                for run in runs
            ],
            ("WORKFLOW", "STATUS", "PHASE", "TURN", "AGE", ""),
            optional=(4, 3),
        )
    else:
        out.line("No workflow is running. Available:", "dim")
    out.table(
        [
            (
                Styled(name, "bold"),
                definition.message if isinstance(definition, Failure) else definition.description,
            )
            for name, definition in sorted(definitions.items())
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
