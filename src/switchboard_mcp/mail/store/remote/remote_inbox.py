"""Stores messages and receipts from other machines.

A message keeps its id and gets an order number of this workspace. The caller handles transport and most deduplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from switchboard_mcp.config.agent_names import RESERVED_FOR, is_agent_name
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import MAX_ATTACHMENT_BYTES, DeliveryRule, MailMessage
from switchboard_mcp.mail.store import message_lookup, message_validation, quotas, receipts, sending, signing
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.filenames import Stem, is_message_id, parse_receipt_name, waiting_name
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.index.inbox_index import IndexRow


def read(data: bytes) -> MailMessage:
    """Decode a shipped message. Raises `mail_message_invalid`."""
    message = signing.decode(data)
    if message is None:
        raise _invalid("it cannot be decoded")
    message.metadata.pop("seal", None)
    if not is_message_id(message.id):
        raise _invalid("its id is not valid")
    if not (is_agent_name(message.sender) and is_agent_name(message.recipient)):
        raise _invalid("sender or recipient is not a valid agent name")
    if message.sender in RESERVED_FOR:
        # Every machine has its own dashboard, and any client of Redis can use the name.
        message.metadata["verified"] = False
    problem = message_validation.validate(message)
    if problem is not None:
        raise SwitchboardError(problem)
    return message


def _find_existing(tx: Transaction, candidates: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of these (agent, id) pairs that exist in any place."""
    agents = {agent for agent, _ in candidates}
    return candidates & {(agent, id) for agent in agents for id in message_lookup.ids(tx, agent)}


class RemoteMessage(msgspec.Struct):
    """A received message; `doubtful` if it may have been stored before."""

    message: MailMessage
    attachment: bytes = b""
    doubtful: bool = False


class RemoteDelivery(msgspec.Struct):
    """A received message that is written and not yet published; `index` is its place in the results."""

    index: int
    message: MailMessage
    name: str
    file: TempFile
    bytes: int
    attached: sending.AttachmentFile | None


def receive(
    tx: Transaction, messages: Sequence[RemoteMessage], rules: Sequence[DeliveryRule]
) -> Job[list[Failure | None]]:
    """Store messages with their attachments in one commit, each only once.

    Returns a failure in place of each message that must not be stored. Raises if the disk fails; then none are stored.
    """
    results: list[Failure | None] = []
    written: list[RemoteDelivery] = []
    files: list[TempFile] = []
    for each in messages:
        message = each.message
        stem = Stem(tx.next_number(), "file-" + message.id.removeprefix("msg_"))
        try:
            # Contact rules were applied where it was sent; an answer cannot be told from other messages here.
            passed = sending.apply_rules(message, sending.answer_rules(rules))
            attached = _attached(tx, passed, each.attachment)
        except SwitchboardError as problem:
            results.append(problem.failure)
            continue
        content = signing.sign(tx.signing_key(), stem, passed)
        file = tx.write(content)
        size = quotas.size_of(len(content), passed)
        written.append(RemoteDelivery(len(results), passed, waiting_name(stem), file, size, attached))
        files += [file, attached.file] if attached is not None else [file]
        results.append(None)
    yield files
    recipients = {each.message.recipient for each in written}
    for recipient in recipients:
        tx.folder("inbox", recipient, make=True)
    doubtful = {(each.message.recipient, each.message.id) for each in messages if each.doubtful}
    with tx.locked(*recipients):
        # Checked last, because the same message may have been committed meanwhile.
        existing = _find_existing(tx, doubtful)
        for delivery in written:
            message = delivery.message
            if (message.recipient, message.id) in existing:
                tx.discard(delivery.file)
                continue
            try:
                quotas.admit(tx, message.recipient, delivery.bytes)
            except SwitchboardError as full:
                results[delivery.index] = full.failure
                tx.discard(delivery.file)
                continue
            if delivery.attached is not None:
                delivery.attached.publish(tx)
            row = IndexRow(delivery.name, 0, message.sender, message.priority)
            tx.publish(delivery.file, tx.folder("inbox", message.recipient), delivery.name, row)
    yield None
    return results


def _attached(tx: Transaction, message: MailMessage, attachment: bytes) -> sending.AttachmentFile | None:
    record = message.metadata.get("attachment")
    if not attachment or not isinstance(record, dict):
        return None
    digest = sha256(attachment).hexdigest()
    if digest != record.get("sha256") or len(attachment) > MAX_ATTACHMENT_BYTES:
        raise _invalid("its attachment does not match its hash")
    return sending.AttachmentFile(tx.write(attachment), record, sending.attachment_name(record))


def store_receipt(tx: Transaction, agent: str, name: str, data: bytes) -> Job[None]:
    """Store a receipt for its reader; idempotent."""
    parsed = parse_receipt_name(name)
    receipt = receipts.decode(data)
    if receipt is None:
        raise _invalid("a receipt cannot be decoded")
    if parsed is None or not is_agent_name(agent) or parsed[0] != receipt.in_reply_to:
        raise _invalid("a receipt has an invalid name")
    file = tx.write(receipts.encode(receipt))
    yield [file]
    try:
        tx.publish(file, tx.folder("outbox", agent, make=True), name)
    except FileExistsError:
        tx.discard(file)
    yield None


def _invalid(reason: str) -> SwitchboardError:
    return refused("mail_message_invalid", f"Invalid data from the bus: {reason}.")
