"""Dead letters: messages that will not be settled, kept with the reason, and how to requeue them.

A message becomes one if its claims expired too often, its recipient rejected it, or another machine refuses it.
Dropped files that are not valid messages are dead-lettered by `dropped_files`.
"""

from __future__ import annotations

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import DeadLetter
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    file_operations,
    message_lookup,
    message_validation,
    quotas,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import (
    MessageFile,
    Outcome,
    parse,
    parse_foreign_name,
    printable,
    receipt_name,
    settled_name,
    waiting_name,
)


def dead_letter(tx: Transaction, agent: str, entry: MessageFile, outcome: Outcome, problem: Failure) -> bool:
    """Dead-letter a message and notify its sender; returns False if another process has moved it meanwhile."""
    message = message_lookup.read(tx, agent, entry)
    reason = tx.write(dead_letter_reasons.encode_reason(tx, entry.name, problem))
    tx.sync_file(reason)
    receipt = None
    if not isinstance(message, file_operations.RejectedFile):
        final = receipts.final_receipt(message, outcome, problem.message, tx.clocks.iso())
        receipt = tx.write(receipts.encode(final))
        tx.sync_file(receipt)
    source, dead = tx.folder(entry.place, agent), tx.folder("deadletter", agent, make=True)
    with tx.locked(agent):
        if not file_operations.exists(source, entry.name):
            return False
        tx.put(reason, dead, f"{entry.stem}{dead_letter_reasons.SUFFIX}")
        name = settled_name(entry.stem, entry.fence or tx.next_number(), outcome)
        size = file_operations.size(source, entry.name)
        if not isinstance(message, file_operations.RejectedFile):
            size = quotas.size_of(size, message)
        tx.move(source, entry.name, dead, name)
        quotas.settle(tx, agent, size)
    tx.sync_folders()
    if receipt is not None and not isinstance(message, file_operations.RejectedFile):
        outbox = tx.folder("outbox", message.sender, make=True)
        tx.put(receipt, outbox, receipt_name(message.id, outcome))
        tx.sync_folders()
    return True


def stem_of(name: str) -> str:
    """Return the stem that a dead letter shares with its reason file."""
    entry, foreign = parse("deadletter", name), parse_foreign_name(name)
    return str(entry.stem) if entry else foreign[0] if foreign else name


def list_dead_letters(tx: Transaction, agent: str) -> list[DeadLetter]:
    """List the dead letters of an agent, oldest first."""
    dead_letters = []
    for name in sorted(tx.names("deadletter", agent)):
        if name.endswith(dead_letter_reasons.SUFFIX):
            continue
        entry = parse("deadletter", name)
        reason = dead_letter_reasons.read_reason(tx, agent, stem_of(name))
        stored = message_lookup.load(tx, agent, entry) if entry else None
        dead_letters.append(
            DeadLetter(
                agent=agent,
                id=entry.stem.id if entry else printable(name),
                file=f"deadletter/{agent}/{printable(name)}",
                reason=reason.reason,
                at=reason.at,
                message=stored.message if stored else None,
            )
        )
    return dead_letters


def requeue(tx: Transaction, agent: str, dead_id: str) -> None:
    """Return a dead letter to the inbox, as if never claimed. Raises `mail_not_found`."""
    entry = message_lookup.find(tx, agent, dead_id, ("deadletter",))
    if entry is None:
        _requeue_foreign(tx, agent, dead_id)
        return
    message = message_lookup.read(tx, agent, entry)
    if not isinstance(message, file_operations.RejectedFile) and message.action == "execute":
        text = f"Message '{dead_id}' was to be typed into a terminal, so it cannot be requeued."
        raise refused("mail_forbidden", text, hint="Send it again.")
    if not isinstance(message, file_operations.RejectedFile) and entry.outcome is not None:
        # Remove the receipt first: if a crash follows, `repair` restores it.
        name = receipt_name(dead_id, entry.outcome)
        if tx.has("outbox", message.sender):
            _remove(tx, tx.folder("outbox", message.sender), name)
            tx.sync_folders()
    with tx.locked(agent):
        quotas.requeue(tx, agent, file_operations.size(tx.folder("deadletter", agent), entry.name))
    _move_to_inbox(tx, agent, entry.name, waiting_name(entry.stem), str(entry.stem))


def _requeue_foreign(tx: Transaction, agent: str, name: str) -> None:
    """Drop a corrected file into the inbox again."""
    foreign = parse_foreign_name(name)
    if foreign is None or not tx.has("deadletter", agent):
        raise _not_found(agent, name)
    stem, original = foreign
    content = file_operations.read_unshared(tx.folder("deadletter", agent), name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.FileContent):
        # Checked here, because in the inbox it would briefly pass for a file that is still being written.
        message = message_validation.from_file(content.data, agent, original, tx.clocks.iso())
        if isinstance(message, Failure) or not message_validation.has_message_name(original):
            text = message.message if isinstance(message, Failure) else f"'{original}' is not msg_….json."
            hint = f"Correct {tx.directory.path}/deadletter/{agent}/{name}, then requeue it."
            raise refused("mail_message_invalid", text, hint=hint)
    _move_to_inbox(tx, agent, name, original, stem)


def _move_to_inbox(tx: Transaction, agent: str, name: str, target: str, stem: str) -> None:
    dead, inbox = tx.folder("deadletter", agent), tx.folder("inbox", agent, make=True)
    with tx.locked(agent):
        try:
            tx.move(dead, name, inbox, target)
        except FileNotFoundError:
            raise _not_found(agent, name) from None
    tx.sync_folders()
    _remove(tx, dead, f"{stem}{dead_letter_reasons.SUFFIX}")


def _not_found(agent: str, name: str) -> SwitchboardError:
    return refused("mail_not_found", f"Agent '{agent}' has no dead letter '{name[:150]}'.")


def _remove(tx: Transaction, folder: int, name: str) -> None:
    try:
        tx.remove(folder, name)
    except FileNotFoundError:
        pass  # Never created, or removed before a crash.
