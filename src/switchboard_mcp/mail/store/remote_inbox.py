"""Letters and receipts that come from other machines: stored like our own, under the id they have.

A letter keeps its id and gets a place in the order of this workspace. Owns how they are stored; where they come from,
and whether they came before, is mostly the caller's to know.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.agent_names import is_agent_name
from switchboard_mcp.mail.messages import MOST_ATTACHMENT_BYTES, Gate, MailMessage
from switchboard_mcp.mail.store import message_lookup, message_validation, receipts, sending, signing
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.filenames import Stem, is_message_id, receipt_for, waiting_name
from switchboard_mcp.mail.store.group_commit import Job


def read(data: bytes) -> MailMessage:
    """A letter as it came; raises `mail_message_invalid`."""
    message = signing.decode(data)
    if message is None:
        raise _invalid("it cannot be read")
    message.metadata.pop("seal", None)
    if not is_message_id(message.id):
        raise _invalid("its id is none")
    if not (is_agent_name(message.sender) and is_agent_name(message.recipient)):
        raise _invalid("sender or recipient is no name of an agent")
    wrong = message_validation.wrong(message)
    if wrong is not None:
        raise SwitchboardError(wrong)
    return message


def _there_already(visit: Transaction, wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Which of these (agent, id) are anywhere here."""
    agents = {agent for agent, _ in wanted}
    return wanted & {(agent, id) for agent in agents for id in message_lookup.ids(visit, agent)}


class RemoteMessage(msgspec.Struct):
    """A letter that came; `doubtful` where it may be here already."""

    message: MailMessage
    attachment: bytes = b""
    doubtful: bool = False


def receive(
    visit: Transaction, letters: Sequence[RemoteMessage], gates: Sequence[Gate]
) -> Job[list[Failure | None]]:
    """Store letters with their attachments, in this order: all of them or none; one that is here already is kept once.

    Why one may not be stored at all is returned in its place, and the others are. What the disk refuses is raised.
    """
    told: list[Failure | None] = []
    written: list[tuple[MailMessage, str, TempFile, sending.Attached | None]] = []
    drafts: list[TempFile] = []
    for each in letters:
        message = each.message
        stem = Stem(visit.number(), "file-" + message.id.removeprefix("msg_"))
        try:
            passed = sending.gated(message, gates)
            attached = _attached(visit, passed, each.attachment)
        except SwitchboardError as problem:
            told.append(problem.failure)
            continue
        draft = visit.write(signing.sealed(visit.key(), stem, passed))
        written.append((passed, waiting_name(stem), draft, attached))
        drafts += [draft, attached.draft] if attached is not None else [draft]
        told.append(None)
    yield drafts
    recipients = {message.recipient for message, *_ in written}
    for recipient in recipients:
        visit.folder("inbox", recipient, make=True)
    doubtful = {(each.message.recipient, each.message.id) for each in letters if each.doubtful}
    with visit.locked(*recipients):
        # Not earlier: the same letter may have been on its way to the disk while this one was.
        there = _there_already(visit, doubtful)
        for message, name, draft, attached in written:
            if (message.recipient, message.id) in there:
                visit.drop(draft)
                continue
            if attached is not None:
                attached.publish(visit)
            visit.publish(draft, visit.folder("inbox", message.recipient), name)
    yield None
    return told


def _attached(visit: Transaction, message: MailMessage, attachment: bytes) -> sending.Attached | None:
    record = message.metadata.get("attachment")
    if not attachment or not isinstance(record, dict):
        return None
    from hashlib import sha256

    digest = sha256(attachment).hexdigest()
    if digest != record.get("sha256") or len(attachment) > MOST_ATTACHMENT_BYTES:
        raise _invalid("its attachment is not the one it names")
    return sending.Attached(visit.write(attachment), record, f"{digest}.txt")


def file_receipt(visit: Transaction, agent: str, name: str, data: bytes) -> Job[None]:
    """Store one receipt for its reader; the same one twice is one."""
    told = receipt_for(name)
    receipt = receipts.decode(data)
    if receipt is None:
        raise _invalid("a receipt cannot be read")
    if told is None or not is_agent_name(agent) or told[0] != receipt.in_reply_to:
        raise _invalid("a receipt has no right name")
    draft = visit.write(receipts.encoded(receipt))
    yield [draft]
    try:
        visit.publish(draft, visit.folder("outbox", agent, make=True), name)
    except FileExistsError:
        visit.drop(draft)
    yield None


def _invalid(reason: str) -> SwitchboardError:
    return refused("mail_message_invalid", f"What came over the bus is not valid: {reason}.")
