"""Dead letters: messages nobody will settle, set aside with the reason; and the way back into the inbox.

A message that was claimed and came back too often becomes one, so that it does not come for ever; so does one that
another machine will not have. Owns these moves; what never was a message is set aside in `delivering`.
"""

from __future__ import annotations

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import DeadLetter
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    file_operations,
    message_lookup,
    message_validation,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import (
    MessageFile,
    Outcome,
    foreign_parts,
    parse,
    receipt_name,
    settled_name,
    waiting_name,
)


def bury(visit: Transaction, agent: str, entry: MessageFile, outcome: Outcome, problem: Failure) -> bool:
    """Make a message a dead letter, and tell its sender; False where somebody else has moved it meanwhile."""
    message = message_lookup.read(visit, agent, entry)
    reason = visit.write(dead_letter_reasons.encoded(visit, entry.name, problem))
    visit.sync_draft(reason)
    receipt = None
    if not isinstance(message, file_operations.RejectedFile):
        told = receipts.ended(message, outcome, problem.message, visit.clocks.iso())
        receipt = visit.write(receipts.encoded(told))
        visit.sync_draft(receipt)
    source, dead = visit.folder(entry.place, agent), visit.folder("deadletter", agent, make=True)
    with visit.locked(agent):
        if not file_operations.exists(source, entry.name):
            return False
        visit.put(reason, dead, f"{entry.stem}{dead_letter_reasons.SUFFIX}")
        name = settled_name(entry.stem, entry.fence or visit.number(), outcome)
        visit.move(source, entry.name, dead, name)
    visit.sync_folders()
    if receipt is not None and not isinstance(message, file_operations.RejectedFile):
        outbox = visit.folder("outbox", message.sender, make=True)
        visit.put(receipt, outbox, receipt_name(message.id, outcome))
        visit.sync_folders()
    return True


def stem_of(name: str) -> str:
    """The part of a dead letter's name that its reason has, too."""
    entry, foreign = parse("deadletter", name), foreign_parts(name)
    return str(entry.stem) if entry else foreign[0] if foreign else name


def listed(visit: Transaction, agent: str) -> list[DeadLetter]:
    """The dead letters of an agent, oldest first."""
    found = []
    for name in sorted(visit.names("deadletter", agent)):
        if name.endswith(dead_letter_reasons.SUFFIX):
            continue
        entry = parse("deadletter", name)
        why = dead_letter_reasons.read(visit, agent, stem_of(name))
        letter = message_lookup.letter(visit, agent, entry) if entry else None
        found.append(
            DeadLetter(
                agent=agent,
                id=entry.stem.id if entry else name,
                file=f"deadletter/{agent}/{name}",
                reason=why.reason,
                at=why.at,
                message=letter.message if letter else None,
            )
        )
    return found


def requeue(visit: Transaction, agent: str, dead_id: str) -> None:
    """Put a dead letter back into the inbox, as if it had never been claimed. Raises `mail_not_found`."""
    entry = message_lookup.find(visit, agent, dead_id, ("deadletter",))
    if entry is None:
        _drop_again(visit, agent, dead_id)
        return
    message = message_lookup.read(visit, agent, entry)
    if not isinstance(message, file_operations.RejectedFile) and message.action == "execute":
        told = f"'{dead_id}' was to be typed into a terminal, and is not typed later than it was sent."
        raise refused("mail_forbidden", told, hint="Send it again.")
    if not isinstance(message, file_operations.RejectedFile) and entry.outcome is not None:
        # First of all: where only this has happened, `repair` writes it anew.
        name = receipt_name(dead_id, entry.outcome)
        if visit.has("outbox", message.sender):
            _remove(visit, visit.folder("outbox", message.sender), name)
            visit.sync_folders()
    _back(visit, agent, entry.name, waiting_name(entry.stem), str(entry.stem))


def _drop_again(visit: Transaction, agent: str, name: str) -> None:
    """What was no message and has been mended is looked at again, as if it had just been dropped there."""
    foreign = foreign_parts(name)
    if foreign is None or not visit.has("deadletter", agent):
        raise _no_letter(agent, name)
    stem, wanted = foreign
    found = file_operations.read(visit.folder("deadletter", agent), name, signing.MOST_FILE_BYTES)
    if isinstance(found, file_operations.FileContent):
        # Told here: in the inbox it would for a moment pass for a file that is still being written.
        message = message_validation.from_file(found.data, agent, wanted, visit.clocks.iso())
        if isinstance(message, Failure) or not message_validation.is_named_so(wanted):
            told = message.message if isinstance(message, Failure) else f"'{wanted}' is not msg_….json."
            hint = f"Mend {visit.tree.path}/deadletter/{agent}/{name}, then put it back."
            raise refused("mail_message_invalid", told, hint=hint)
    _back(visit, agent, name, wanted, stem)


def _back(visit: Transaction, agent: str, name: str, wanted: str, stem: str) -> None:
    dead, inbox = visit.folder("deadletter", agent), visit.folder("inbox", agent, make=True)
    with visit.locked(agent):
        try:
            visit.move(dead, name, inbox, wanted)
        except FileNotFoundError:
            raise _no_letter(agent, name) from None
    visit.sync_folders()
    _remove(visit, dead, f"{stem}{dead_letter_reasons.SUFFIX}")


def _no_letter(agent: str, name: str) -> SwitchboardError:
    return refused("mail_not_found", f"'{agent}' has no dead letter '{name[:150]}'.")


def _remove(visit: Transaction, folder: int, name: str) -> None:
    try:
        visit.remove(folder, name)
    except FileNotFoundError:
        pass  # It never came to be, or a crash came after it went.
