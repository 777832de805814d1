"""`switchboard mail dead`: list dead letters with their reasons, and requeue them."""

from __future__ import annotations

from collections.abc import Sequence

from switchboard_mcp.cli.console import Styled, plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.arguments import AS
from switchboard_mcp.cli.mail.mailbox import Mailbox, with_mailbox
from switchboard_mcp.cli.mail.show import format_since, short_id
from switchboard_mcp.cli.parser import Command, positional
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import DeadLetter

SEE_HELP = "`switchboard mail dead --help` shows how."


def run(invocation: Invocation) -> int:
    """List dead letters, or requeue some."""
    match invocation.args.words:
        case []:
            return with_mailbox(invocation, lambda mailbox: _show(invocation, mailbox))
        case ["requeue", *ids] if ids:
            return with_mailbox(invocation, lambda mailbox: _requeue(invocation, mailbox, ids))
        case words:
            raise usage_error(f"mail dead: '{' '.join(words)}' is not a valid action.", SEE_HELP)


COMMAND = Command(
    "mail dead [requeue ID …] [OPTIONS]",
    "List dead letters: rejected, never settled, or not messages at all; or put one back into its inbox, as\n"
    "new. Those of all agents, unless --as names one.",
    run=run,
    arguments=[
        positional("words", "what to do", metavar="requeue ID …", nargs="*"),
        AS,
    ],
)


async def _dead_letters(mailbox: Mailbox) -> list[DeadLetter]:
    store = mailbox.store
    return await (store.dead_letters(mailbox.agent) if mailbox.agent else store.all_dead_letters())


async def _show(invocation: Invocation, mailbox: Mailbox) -> int:
    dead_letters_found = await _dead_letters(mailbox)
    out = invocation.console.out
    if invocation.as_json:
        out.json({"dead": dead_letters_found})
        return 0
    if not dead_letters_found:
        out.line("No dead letters.", "dim")
        return 0
    rows = [
        (
            Styled(short_id(dead.id) if dead.message else dead.id, "cyan"),
            dead.message.sender if dead.message else "",
            dead.agent,
            format_since(dead.at),
            dead.reason,
        )
        for dead in dead_letters_found
    ]
    out.table(rows, ("ID", "FROM", "TO", "AGE", "WHY"), optional=(3,))
    out.line("`switchboard mail dead requeue ID` puts one back into its inbox.", "dim")
    return 0


async def _requeue(invocation: Invocation, mailbox: Mailbox, ids: Sequence[str]) -> int:
    candidates = await _dead_letters(mailbox)
    chosen = list(
        {(dead.agent, dead.id): dead for dead in (_match(candidates, typed) for typed in ids)}.values()
    )
    for dead in chosen:
        await mailbox.store.requeue(dead.agent, dead.id)
    if invocation.as_json:
        invocation.console.out.json({"requeued": [dead.id for dead in chosen], "refused": []})
    else:
        invocation.console.out.line(f"{plural(len(chosen), 'message')} put back.", "green")
    return 0


def _match(candidates: Sequence[DeadLetter], typed: str) -> DeadLetter:
    fitting = [dead for dead in candidates if dead.id == typed] or [
        dead for dead in candidates if dead.id.endswith(typed)
    ]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        hint = "`switchboard mail dead` lists the dead letters."
        raise refused("mail_not_found", f"There is no dead letter '{typed[:150]}'.", hint=hint)
    shown = ", ".join(f"{dead.id} to {dead.agent}" for dead in fitting[:5])
    message = f"Several dead letters end with '{typed[:150]}': {shown}."
    raise usage_error(message, "Give more of the id, or name its agent with --as NAME.")
