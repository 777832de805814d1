"""`switchboard mail inbox|read|receipts|search`: looking, which consumes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from switchboard_mcp.cli.console import Console, Styled, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.mail.mailbox import Mailbox, chosen, with_mailbox
from switchboard_mcp.cli.mail.show import ago, short_id, show_letter, show_list
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import Receipt
from switchboard_mcp.mail.store import message_lookup, receipts

STATUS_STYLES = {"delivered": "cyan", "done": "green", "failed": "red", "rejected": "red", "refused": "red"}
ENDED = frozenset({"done", "failed", "rejected", "refused"})
BETWEEN_LOOKS_S = 0.2


def run_inbox(asked: Invocation) -> int:
    """What waits."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.myself()
        given = asked.given
        letters = await mailbox.post.peek(agent, limit=given.limit, after=given.after)
        waiting = await asyncio.to_thread(_looked, mailbox, agent)
        held = len(await mailbox.post.run(lambda tx: message_lookup.ids(tx, agent, ("claimed",))))
        if asked.as_json:
            told = {"agent": agent, "unread": waiting, "claimed": held, "messages": letters}
            asked.console.out.json(told)
        else:
            also = f", {held} claimed (`switchboard mail search --place claimed`)" if held else ""
            show_list(letters, asked.console, f"{agent}: {plural(waiting, 'unread message')}{also}")
        return 0

    return with_mailbox(asked, work)


def _looked(mailbox: Mailbox, agent: str) -> int:
    mailbox.note_look(agent)
    return mailbox.presence.unclaimed(agent, mailbox.starving_s).unread


def run_read(asked: Invocation) -> int:
    """One message."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.myself()
        if asked.given.id:
            letter = await mailbox.post.read(agent, await mailbox.find_id(agent, asked.given.id))
        elif not (waiting := await mailbox.post.peek(agent, limit=1)):
            raise refused("mail_not_found", f"Nothing waits for '{agent}'.")
        else:
            letter = waiting[0]
        if asked.as_json:
            asked.console.out.json(letter)
        else:
            show_letter(letter, asked.console.out)
        return 0

    return with_mailbox(asked, work)


def run_search(asked: Invocation) -> int:
    """Messages by their words."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.myself()
        given = asked.given
        places = (given.place,) if given.place else ("inbox", "claimed", "archive")
        found = await mailbox.post.search(
            agent,
            " ".join(given.words),
            sender=given.sender or None,
            action=given.action or None,
            places=places,
            limit=given.limit,
        )
        if asked.as_json:
            asked.console.out.json({"agent": agent, "messages": found})
        else:
            show_list(found, asked.console, plural(len(found), "message"), places=True)
        return 0

    return with_mailbox(asked, work)


def run_receipts(asked: Invocation) -> int:
    """What became of what was sent."""

    async def work(mailbox: Mailbox) -> int:
        sender = mailbox.me()
        given = asked.given
        ids = await _sent_ids(mailbox, sender, given.ids)
        found = await mailbox.post.receipts(sender, ids=ids, limit=given.limit)
        if given.wait and ids:
            found = await _ended(mailbox, sender, ids, given.wait)
        missing = sorted(set(ids or ()) - {receipt.in_reply_to for receipt in found})
        told = f"'{sender}' has no receipt of {', '.join(missing)}."
        if missing and not found:
            hint = "`switchboard mail receipts` shows those there are."
            raise refused("mail_not_found", told, hint=hint)
        if asked.as_json:
            asked.console.out.json({"sender": sender, "receipts": found})
        else:
            show_receipts(found, asked.console)
        if missing:
            asked.console.warn(told)
        return 1 if missing else 0

    return with_mailbox(asked, work)


async def _sent_ids(mailbox: Mailbox, sender: str, given: Sequence[str]) -> list[str] | None:
    if not given:
        return None
    known = await mailbox.post.run(lambda tx: receipts.outcomes_by_message(tx, sender))
    return [chosen(each, known, f"'{sender}'") for each in given]


async def _ended(mailbox: Mailbox, sender: str, ids: list[str], seconds: float) -> list[Receipt]:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        found = await mailbox.post.receipts(sender, ids=ids, limit=len(ids))
        ended = {receipt.in_reply_to for receipt in found if receipt.status in ENDED}
        if ended >= set(ids) or loop.time() >= until:
            return found
        await asyncio.sleep(BETWEEN_LOOKS_S)


def show_receipts(found: Sequence[Receipt], console: Console) -> None:
    """A table of receipts."""
    if not found:
        console.out.line("No receipts.", "dim")
        return
    rows = [
        (
            Styled(short_id(receipt.in_reply_to), "cyan"),
            Styled(receipt.status, STATUS_STYLES.get(receipt.status, "")),
            ago(receipt.processed_at),
            receipt.error or receipt.summary,
        )
        for receipt in found
    ]
    console.out.table(rows, ("ID", "STATUS", "AGE", ""))
