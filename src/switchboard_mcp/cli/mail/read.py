"""`switchboard mail inbox|read|receipts|search`: read mail without consuming it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from switchboard_mcp.cli.console import Console, Styled, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.mail.arguments import ACTIONS, AS, ID, LIMIT
from switchboard_mcp.cli.mail.mailbox import Mailbox, match_id, with_mailbox
from switchboard_mcp.cli.mail.show import format_since, short_id, show_list, show_message
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.conversations import threads
from switchboard_mcp.mail.messages import OUTCOMES, Receipt
from switchboard_mcp.mail.store import rows

STATUS_STYLES = {"delivered": "cyan", "done": "green", "failed": "red", "rejected": "red", "refused": "red"}
STATUS_STYLES |= {"recalled": "yellow", "reassigned": "yellow"}
FINAL_STATUSES = frozenset({"refused", *OUTCOMES})
POLL_S = 0.2
PLACES = ("inbox", "claimed", "archive", "deadletter")


def run_inbox(invocation: Invocation) -> int:
    """List unread messages."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        args = invocation.args
        messages = await mailbox.store.peek(agent, limit=args.limit, after=args.after)
        await asyncio.to_thread(mailbox.record_visit, agent)
        waiting = (await mailbox.store.waiting_for(agent)).count
        claimed = len(await mailbox.store.ids(agent, ("claimed",)))
        if invocation.as_json:
            answer = {"agent": agent, "unread": waiting, "claimed": claimed, "messages": messages}
            invocation.console.out.json(answer)
        else:
            also = f", {claimed} claimed (`switchboard mail search --place claimed`)" if claimed else ""
            show_list(messages, invocation.console, f"{agent}: {plural(waiting, 'unread message')}{also}")
        return 0

    return with_mailbox(invocation, work)


INBOX = Command(
    "mail inbox [OPTIONS]",
    "List your unread messages. Consumes nothing.",
    run=run_inbox,
    arguments=[
        AS,
        LIMIT,
        option("--after", "ORDER", "only messages after this `order`, for paging", 0),
    ],
)


def run_read(invocation: Invocation) -> int:
    """Show one message."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        if invocation.args.id:
            message = await mailbox.store.read(agent, await mailbox.find_id(agent, invocation.args.id))
        elif not (waiting := await mailbox.store.peek(agent, limit=1)):
            raise refused("mail_not_found", f"There is no unread message for '{agent}'.")
        else:
            message = waiting[0]
        if invocation.as_json:
            invocation.console.out.json(message)
        else:
            show_message(message, invocation.console.out)
        if invocation.args.save:
            data = await mailbox.store.attachment(message.message)
            await asyncio.to_thread(_save, invocation.args.save, data)
        return 0

    return with_mailbox(invocation, work)


def _save(path: str, data: bytes) -> None:
    """Write the attachment of a message to a new file."""
    try:
        with open(path, "xb") as file:
            file.write(data)
    except OSError as problem:
        text = f"{path} cannot be written: {problem.strerror}."
        raise refused("mail_not_stored", text, hint="Name a file that does not exist yet.") from None


READ = Command(
    "mail read [ID] [OPTIONS]",
    "Show one of your messages in full, wherever it is now. Consumes nothing.",
    run=run_read,
    arguments=[
        positional("id", f"{ID} (default: the next unread)", nargs="?", default=""),
        AS,
        option("--save", "FILE", "write its attachment, or its text, to this new file"),
    ],
)


def run_search(invocation: Invocation) -> int:
    """Search received messages."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        args = invocation.args
        places = (args.place,) if args.place else ("inbox", "claimed", "archive")
        words, other, action = " ".join(args.words), args.sender or None, args.action or None
        if args.sent:
            recipient = rows.parse_name(other) if other else None
            messages = await threads.search_sent(
                mailbox.store, agent, words, recipient=recipient, action=action, limit=args.limit
            )
        else:
            messages = await mailbox.store.search(
                agent, words, sender=other, action=action, places=places, limit=args.limit
            )
        if invocation.as_json:
            invocation.console.out.json({"agent": agent, "messages": messages})
        else:
            title = plural(len(messages), "message")
            show_list(messages, invocation.console, title, places=True, sent=args.sent)
        return 0

    return with_mailbox(invocation, work)


SEARCH = Command(
    "mail search [WORDS …] [OPTIONS]",
    "Find messages that you received, or sent.",
    run=run_search,
    arguments=[
        positional("words", "what it is about", nargs="*"),
        AS,
        flag("--sent", "messages that you sent instead"),
        option("--from", "NAME", "only from this agent; with --sent: only to this agent", dest="sender"),
        choice("--action", ACTIONS, "only of this kind"),
        choice("--place", PLACES, "only there (default: all but dead letters)"),
        LIMIT,
    ],
)


def run_receipts(invocation: Invocation) -> int:
    """Show the receipts of sent messages."""

    async def work(mailbox: Mailbox) -> int:
        sender = mailbox.agent_or_error()
        args = invocation.args
        ids = await _sent_ids(mailbox, sender, args.ids)
        found_receipts = await mailbox.store.receipts(sender, ids=ids, limit=args.limit)
        if args.wait and ids:
            found_receipts = await _wait_until_final(mailbox, sender, ids, args.wait)
        missing = sorted(set(ids or ()) - {receipt.in_reply_to for receipt in found_receipts})
        message = f"'{sender}' has no receipt for {', '.join(missing)}."
        if missing and not found_receipts:
            hint = "`switchboard mail receipts` lists the receipts."
            raise refused("mail_not_found", message, hint=hint)
        if invocation.as_json:
            invocation.console.out.json({"sender": sender, "receipts": found_receipts})
        else:
            show_receipts(found_receipts, invocation.console)
        if missing:
            invocation.console.warn(message)
        return 1 if missing else 0

    return with_mailbox(invocation, work)


RECEIPTS = Command(
    "mail receipts [ID …] [OPTIONS]",
    "Show what became of messages you sent.",
    run=run_receipts,
    arguments=[
        positional("ids", "only these messages; enough of their last characters", metavar="ID", nargs="*"),
        AS,
        LIMIT,
        option("--wait", "SECONDS", "wait until the named ones are settled", 0.0),
    ],
)


async def _sent_ids(mailbox: Mailbox, sender: str, typed: Sequence[str]) -> list[str] | None:
    if not typed:
        return None
    sent = await mailbox.store.sent_ids(sender)
    return [match_id(text, sent, f"'{sender}'") for text in typed]


async def _wait_until_final(mailbox: Mailbox, sender: str, ids: list[str], seconds: float) -> list[Receipt]:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        found_receipts = await mailbox.store.receipts(sender, ids=ids, limit=len(ids))
        ended = {receipt.in_reply_to for receipt in found_receipts if receipt.status in FINAL_STATUSES}
        if ended >= set(ids) or loop.time() >= until:
            return found_receipts
        await asyncio.sleep(POLL_S)


def show_receipts(found_receipts: Sequence[Receipt], console: Console) -> None:
    """Print a table of receipts."""
    if not found_receipts:
        console.out.line("No receipts.", "dim")
        return
    rows = [
        (
            Styled(short_id(receipt.in_reply_to), "cyan"),
            Styled(receipt.status, STATUS_STYLES.get(receipt.status, "")),
            format_since(receipt.processed_at),
            receipt.error or receipt.summary,
        )
        for receipt in found_receipts
    ]
    console.out.table(rows, ("ID", "STATUS", "AGE", ""), optional=(2,))
