"""`switchboard mail thread|progress`: conversations, as the tools of hosts show them."""

from __future__ import annotations

from collections.abc import Sequence

from switchboard_mcp.cli.console import one_line, plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.arguments import AS, LIMIT
from switchboard_mcp.cli.mail.mailbox import Mailbox, acting_as, match_id, with_mailbox
from switchboard_mcp.cli.mail.read import STATUS_STYLES
from switchboard_mcp.cli.mail.show import format_since, short_id
from switchboard_mcp.cli.parser import Command, flag, option, positional
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.conversations import progress, threads
from switchboard_mcp.mail.conversations.thread_view import run_summary, thread_view
from switchboard_mcp.mail.conversations.threads import Thread
from switchboard_mcp.mail.messages import StoredMessage

TASK_STATES: Sequence[progress.TaskState] = ("working", "input-required")


def run_thread(invocation: Invocation) -> int:
    """Show a conversation."""

    async def work(mailbox: Mailbox) -> int:
        agent = mailbox.agent_or_error()
        args = invocation.args
        thread = await threads.read_thread(mailbox.store, agent, await _any_id(mailbox, agent, args.id))
        if invocation.as_json:
            invocation.console.out.json(thread_view(thread, args.limit, full=True))
        else:
            _show_thread(invocation, thread, args.limit)
        return 0

    return with_mailbox(invocation, work)


THREAD = Command(
    "mail thread ID [OPTIONS]",
    "Show a conversation: its members, what is open, the files of its workflow, and its messages.",
    run=run_thread,
    arguments=[
        positional("id", "a message of it that you received or sent, or a workflow"),
        AS,
        LIMIT,
    ],
    epilog="example:\n  switchboard mail thread 3f2a --as lead",
)


async def _any_id(mailbox: Mailbox, agent: str, typed: str) -> str:
    """Return the id of a message that the agent received or sent; any other text as it is."""
    try:
        return await mailbox.find_id(agent, typed)
    except SwitchboardError:
        sent = await mailbox.store.sent_ids(agent)
        try:
            return match_id(typed, sent, f"'{agent}'")
        except SwitchboardError:
            return typed


async def sent_id(mailbox: Mailbox, agent: str, typed: str) -> str:
    """Return the id of a message that the agent sent."""
    sent = await mailbox.store.sent_ids(agent)
    return match_id(typed, sent, f"'{agent}'")


def _show_thread(invocation: Invocation, thread: Thread, limit: int) -> None:
    out = invocation.console.out
    shown = thread.messages[-limit:]
    waiting = sum(threads.is_open(reply) for reply in thread.messages)
    out.line(one_line(thread.subject or thread.id), "bold")
    out.line(f"{', '.join(thread.members)}; {plural(len(thread.messages), 'message')}, {waiting} open", "dim")
    if thread.run is not None:
        summary = run_summary(thread.run)
        out.line(f"Workflow {thread.run.id}: {thread.run.status}")
        history = summary["history"]
        for line in history if isinstance(history, list) else []:
            out.line(f"  {one_line(str(line))}")
    for stored in shown:
        out.line()
        message = stored.message
        who = f"{message.sender} to {message.recipient}"
        out.line(
            f"{out.paint(short_id(message.id), 'cyan')} {out.paint(who, 'bold')} {message.action} "
            f"{format_since(message.created_at)} {_painted_state(invocation, stored)}"
        )
        for line in message.payload.splitlines() or [""]:
            out.line(f"  {one_line(line)}")


def _painted_state(invocation: Invocation, stored: StoredMessage) -> str:
    state = stored.outcome or stored.place
    return invocation.console.out.paint(state, STATUS_STYLES.get(state, "yellow"))


def run_progress(invocation: Invocation) -> int:
    """Renew a claim, with news for the sender."""
    args = invocation.args
    if args.ask and not args.note:
        raise usage_error("mail progress --ask: there is no question.", "Give the question as TEXT.")

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        mailbox.acting_agent()
        id = await (mailbox.find_id(agent, args.id) if args.id else mailbox.claimed_id(agent))
        async with acting_as(mailbox, agent) as verified:
            done = await progress.report(
                mailbox.store,
                agent,
                id,
                fence=args.fence,
                state=TASK_STATES[bool(args.ask)],
                note=args.note or "",
                lease_s=args.lease,
                verified=verified,
            )
        text = f"{id} is yours until {done.claimed.expires_at}."
        text += f" {done.claimed.message.sender} was notified." if done.note else ""
        invocation.report(
            {"id": id, "expiresAt": done.claimed.expires_at, "note": done.note and done.note.id}, text
        )
        return 0

    return with_mailbox(invocation, work)


PROGRESS = Command(
    "mail progress [ID] [TEXT] [OPTIONS]",
    "Keep a message that you have claimed, and send news or a question about it to its sender.",
    run=run_progress,
    arguments=[
        positional(
            "id", "id of a claimed message (default: the one you have claimed)", nargs="?", default=""
        ),
        positional("note", "news for its sender", metavar="TEXT", nargs="?", default=""),
        AS,
        flag("--ask", "TEXT is a question: the task waits for the answer, for a day unless --lease says so"),
        option("--lease", "SECONDS", "how long you keep it (default: 300)", 0.0),
        option("--fence", "N", "from `claim`: keep only that claim", 0),
    ],
)
