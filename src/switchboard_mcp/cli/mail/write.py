"""`switchboard mail send|claim|ack`: commands that change the mail, as the named agent.

A sender is verified if no other process acts as that agent at the moment, as with a host over stdio: its presence lock
is held while the message is stored. If a live host acts as that agent, the message is marked as unverified, like a
dropped file.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.arguments import ACTIONS, AS, ID
from switchboard_mcp.cli.mail.mailbox import Mailbox, acting_as, folder_of, with_mailbox
from switchboard_mcp.cli.mail.maintenance import read_age
from switchboard_mcp.cli.mail.show import short_id, show_message
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional, repeatable
from switchboard_mcp.config.agent_names import agent_name
from switchboard_mcp.database.machine_clocks import stamp
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations import attached_files, fan_out, threads
from switchboard_mcp.mail.messages import (
    ACK_OUTCOMES,
    MAX_ATTACHMENT_BYTES,
    Claimed,
    Draft,
    FileAttachment,
    Sent,
    StoredMessage,
)
from switchboard_mcp.mail.roles import read_role
from switchboard_mcp.mail.store.store import State
from switchboard_mcp.mail.workflows.engine import send_pending_notices
from switchboard_mcp.mail.workspace_files import read_workspace_file

PRIORITIES = ("low", "normal", "high", "urgent")


def run_send(invocation: Invocation) -> int:
    """Send a message."""
    payload = _payload(invocation)
    metadata = _metadata(invocation.args.meta)
    if invocation.args.subject:
        metadata["subject"] = invocation.args.subject
    draft = Draft(
        action=invocation.args.action,
        payload=payload,
        reply_to=invocation.args.reply_to or None,
        priority=invocation.args.priority,
        ack_by=_ack_by(invocation.args.ack_by),
        idempotency_key=invocation.args.key or None,
        metadata=metadata,
    )

    async def work(mailbox: Mailbox) -> int:
        sender = mailbox.acting_agent()
        chosen, recipients = await _addressed(invocation, mailbox, sender, draft)
        copies: list[str] = []
        if invocation.args.cc:
            if len(recipients) > 1:
                raise usage_error("--cc needs one recipient.", "Omit it, or send to one agent.")
            limit = mailbox.config.mail.max_recipients
            copies = fan_out.parse_copies(invocation.args.cc, recipients[0], sender, limit)
            chosen = msgspec.structs.replace(chosen, metadata={**chosen.metadata, "cc": copies})
        chosen = await threads.join(
            mailbox.store, sender, chosen, recipients[0] if len(recipients) == 1 else ""
        )
        async with acting_as(mailbox, sender) as verified:
            outcomes = await mailbox.store.send_to_many(
                chosen, sender=sender, recipients=recipients, verified=verified
            )
            if isinstance(outcomes[0], Sent):
                outcomes += await fan_out.send_copies(
                    mailbox.store, chosen, outcomes[0], sender=sender, copies=copies, verified=verified
                )
                recipients = [*recipients, *copies]
        if "completes" in metadata:
            await send_pending_notices(mailbox.store)
        code = _show_sent(invocation, outcomes, recipients, sender, verified)
        if sender not in await mailbox.store.agents():
            text = f"'{sender}' is not an agent here, so it has no inbox until someone answers."
            invocation.console.warn(f"{text} Add it with `switchboard mail agents add {sender}`.")
        return code

    return with_mailbox(invocation, work)


def _ack_by(typed: str) -> str | None:
    """Return the time of a deadline: `typed` is a time, or how long from now."""
    if not typed[:-1].isdecimal():
        return typed or None
    return stamp(datetime.now(UTC) + timedelta(seconds=read_age(typed, "--ack-by")))


async def _addressed(
    invocation: Invocation, mailbox: Mailbox, sender: str, draft: Draft
) -> tuple[Draft, list[str]]:
    """Return the draft with its attachment, team and the message it answers, and its recipients."""
    args, state = invocation.args, await mailbox.store.state()
    if draft.reply_to:
        draft = msgspec.structs.replace(draft, reply_to=await mailbox.find_id(sender, draft.reply_to))
    if args.attach:
        draft = msgspec.structs.replace(draft, attachment=await asyncio.to_thread(_attachment, invocation))
    if args.team or await _is_team(mailbox, state, args.to):
        team = agent_registry.parse_name(args.to)
        chosen = agent_registry.addressees(state, team, args.role or None, sender)
        role = {"role": chosen[0].role} if chosen[0].role else {}
        draft = msgspec.structs.replace(draft, team=team, metadata={**draft.metadata, **role})
        return draft, [addressee.agent for addressee in chosen]
    if args.role:
        raise usage_error("--role needs a team.", "Or send to the role: `send ROLE …`.")
    if read_role(args.to) is not None:
        return draft, [agent_registry.resolve_recipient(state, args.to)]
    if await fan_out.is_everyone(mailbox.store, args.to):
        return draft, await fan_out.everyone(mailbox.store, sender, mailbox.config.mail.max_recipients)
    return draft, [agent_registry.parse_name(args.to)]


SEND = Command(
    "mail send TO [TEXT | - | --file FILE] [OPTIONS]",
    "Send a message. Returns when it is stored durably.",
    run=run_send,
    arguments=[
        positional("to", "an agent, a role that one agent has, a team, or everyone"),
        positional("text", "the text; - reads stdin", nargs="?"),
        AS,
        option("--file", "FILE", "send the content of this file of the workspace"),
        option("--attach", "FILE", "send this file of the workspace along, of any kind"),
        flag("--outside", "the file may be outside the workspace, or in .switchboard"),
        repeatable("--cc", "NAME", "an agent that gets a copy, for information"),
        choice("--action", ACTIONS, "kind of message (default: status_update)", "status_update"),
        option("--subject", "LINE", "a line that may be shown before the message is read"),
        option("--reply-to", "ID", "the message that this answers"),
        choice("--priority", PRIORITIES, "how urgent it is", "normal"),
        option("--ack-by", "TIME", "when you expect it to be settled: 30m, 2h, 1d, or an ISO 8601 time"),
        option("--key", "KEY", "idempotency key: the same key to the same recipient is sent once"),
        repeatable("--meta", "KEY=VALUE", "a metadata entry; JSON or text"),
        flag("--team", "TO is a team, even if an agent has the same name"),
        option("--role", "ROLE", "to a team: only members in this role"),
    ],
    epilog="examples:\n"
    '  switchboard mail send coder "Please write the parser" --action delegate_task --as lead\n'
    "  git diff | switchboard mail send reviewer - --action request_review\n"
    '  switchboard mail send builders "We freeze at noon"',
)


async def _is_team(mailbox: Mailbox, state: State, recipient: str) -> bool:
    name = agent_name(recipient)
    return name in agent_registry.teams(state) and name not in await mailbox.store.agents()


def _payload(invocation: Invocation) -> str:
    args = invocation.args
    if args.file and args.text is not None:
        raise usage_error("TEXT and --file cannot be combined.", "Use one of them.")
    if args.file:
        hint = "Only files of the workspace are sent. To send this one: --outside."
        data = read_workspace_file(
            folder_of(invocation), args.file, MAX_ATTACHMENT_BYTES, hint, anywhere=args.outside
        )
        return _text(data, args.file)
    if args.text == "-":
        return _text(sys.stdin.buffer.read(MAX_ATTACHMENT_BYTES + 1), "stdin")
    if args.text is None:
        hint = "Give TEXT, - for stdin, or --file FILE."
        raise usage_error("mail send: there is no text to send.", hint)
    return _text(os.fsencode(args.text), "TEXT")


def _attachment(invocation: Invocation) -> FileAttachment:
    path = invocation.args.attach
    hint = "Only files of the workspace are sent. To send this one: --outside."
    folder, anywhere = folder_of(invocation), invocation.args.outside
    data = read_workspace_file(folder, path, MAX_ATTACHMENT_BYTES, hint, anywhere=anywhere)
    name = os.path.basename(path)
    return FileAttachment(name=name, media_type=attached_files.media_type(name), data=data)


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        message = f"{source} is not UTF-8 text."
        raise usage_error(message, "Put the file into the workspace, and send its path.") from None


def _metadata(pairs: Sequence[str]) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for word in pairs:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise usage_error(f"--meta {word}: not KEY=VALUE.", "For example: --meta branch=main")
        try:
            metadata[key] = msgspec.json.decode(value.encode("utf-8", "replace"))
        except (msgspec.DecodeError, RecursionError):
            metadata[key] = value
    return metadata


def _show_sent(
    invocation: Invocation,
    outcomes: Sequence[Sent | Failure],
    recipients: Sequence[str],
    sender: str,
    verified: bool,
) -> int:
    sent = [outcome for outcome in outcomes if isinstance(outcome, Sent)]
    refused = [
        (name, outcome)
        for name, outcome in zip(recipients, outcomes, strict=True)
        if isinstance(outcome, Failure)
    ]
    if not sent:
        raise SwitchboardError(refused[0][1])
    console = invocation.console
    if invocation.as_json:
        answer = [
            {
                "id": message.id,
                "recipient": message.recipient,
                "status": message.receipt.status,
                "duplicate": message.duplicate,
            }
            for message in sent
        ]
        wrong = [{"recipient": name, "error": problem} for name, problem in refused]
        console.out.json({"sender": sender, "verified": verified, "sent": answer, "refused": wrong})
    else:
        for message in sent:
            again = " (already stored)" if message.duplicate else ""
            console.out.line(
                f"{console.out.paint('sent', 'green')} {message.id} to {message.recipient}{again}"
            )
    if not verified:
        console.warn(f"'{sender}' is connected elsewhere, so this message is marked as unverified.")
    for name, problem in refused:
        console.warn(f"{name}: {problem.message}")
    return 1 if refused else 0


def run_claim(invocation: Invocation) -> int:
    """Claim messages to work on."""

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        mailbox.acting_agent()
        args = invocation.args
        ids = [await mailbox.find_id(agent, text) for text in args.ids] or None
        claimed = await mailbox.store.claim(
            agent, limit=len(ids or ()) or args.max, lease_s=args.lease, ids=ids
        )
        await asyncio.to_thread(mailbox.record_visit, agent)
        if invocation.as_json:
            invocation.console.out.json({"agent": agent, "messages": claimed})
        else:
            _show_claimed(invocation, claimed)
        return 0 if claimed or ids is None else 1

    return with_mailbox(invocation, work)


CLAIM = Command(
    "mail claim [ID …] [OPTIONS]",
    "Claim the next messages: they are yours until you `ack` them or the lease expires.",
    run=run_claim,
    arguments=[
        positional("ids", "only these messages (default: the next)", metavar="ID", nargs="*"),
        AS,
        option("--max", "N", "how many to take (default: 1)", 1),
        option("--lease", "SECONDS", "duration of the lease (default: 300)", 300.0),
    ],
)


def _show_claimed(invocation: Invocation, claimed: Sequence[Claimed]) -> None:
    out = invocation.console.out
    if not claimed:
        out.line("No unread messages.", "dim")
    for number, claim in enumerate(claimed):
        if number:
            out.line("\n" + "-" * 40, "dim")
        stored = StoredMessage(
            message=claim.message, place="claimed", order=claim.order, verified=claim.verified
        )
        show_message(stored, out, claim.fence, claim.expires_at)
    if claimed:
        out.line()
        out.line(
            f"{plural(len(claimed), 'message')} to settle: switchboard mail ack {short_id(claimed[0].message.id)}",
            "dim",
        )


def run_ack(invocation: Invocation) -> int:
    """Settle a message."""
    result = invocation.args.result
    if result == "-":
        result = _text(sys.stdin.buffer.read(MAX_ATTACHMENT_BYTES + 1), "stdin")

    args = invocation.args
    id, outcome = ("", args.id) if args.id in ACK_OUTCOMES and not args.outcome else (args.id, args.outcome)
    outcome = outcome or "done"
    if outcome not in ACK_OUTCOMES:
        raise usage_error(
            f"mail ack: '{outcome}' is not an outcome.", f"Use one of {', '.join(ACK_OUTCOMES)}."
        )

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        mailbox.acting_agent()
        acked = await mailbox.store.ack(
            agent,
            await (mailbox.find_id(agent, id) if id else mailbox.claimed_id(agent)),
            fence=args.fence,
            outcome=outcome,
            summary=args.summary,
            result=result,
        )
        await asyncio.to_thread(mailbox.presence.record_activity, agent)
        out = invocation.console.out
        if invocation.as_json:
            out.json(acked)
        else:
            style = "green" if acked.outcome == "done" else "red"
            out.line(f"{out.paint(acked.outcome, style)} {acked.id}")
            if acked.result is not None:
                out.line(f"{out.paint('sent', 'green')} {acked.result.id} to {acked.result.recipient}")
        return 0

    return with_mailbox(invocation, work)


ACK = Command(
    "mail ack [ID] [done|failed|rejected] [OPTIONS]",
    "Settle a message: done and failed move it to the archive, rejected to the dead letters. The sender gets a\n"
    "receipt.",
    run=run_ack,
    arguments=[
        positional("id", f"{ID} (default: the one you have claimed)", nargs="?", default=""),
        positional("outcome", "done, failed, rejected (default: done)", nargs="?", default=""),
        AS,
        option("--result", "TEXT", "sent back as submit_result; - reads stdin", None),
        option("--summary", "LINE", "a sentence for the receipt"),
        option("--fence", "N", "from `claim`: settle only that claim", 0),
    ],
    epilog='example:\n  switchboard mail ack 3f2a --result "The parser is in src/parser.py"',
)
