"""Repairs what a crash may leave. Safe at any time from any process.

Does not touch what it cannot explain; `verify` reports that.
"""

from __future__ import annotations

from collections.abc import Iterator

from switchboard_mcp.mail.messages import MailMessage, Receipt
from switchboard_mcp.mail.store import (
    claims,
    dead_letter_reasons,
    dead_letters,
    file_operations,
    message_lookup,
    receipts,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile, printable, receipt_name
from switchboard_mcp.mail.store.maintenance import cleanup
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding


def repair(tx: Transaction) -> list[StoreFinding]:
    """Repair everything that can be repaired; returns what was done."""
    done = cleanup.remove_stale_temp_files(tx)
    for agent in sorted({agent for place in PLACES for agent in tx.agents(place)}):
        try:
            done += _repair_agent(tx, agent)
        except Exception as problem:  # noqa: BLE001 - one agent's files must not stop the repair of the others
            text = f"The files of '{agent}' cannot be repaired: {problem}."
            done.append(StoreFinding(kind="unreadable", path=f"inbox/{agent}", message=text))
    tx.sync_folders()
    return done


def _repair_agent(tx: Transaction, agent: str) -> list[StoreFinding]:
    with tx.locked(agent):
        done = cleanup.finish_interrupted_moves(tx, agent) + _remove_orphaned_reasons(tx, agent)
    return done + _return_expired(tx, agent) + _restore_receipts(tx, agent)


def _remove_orphaned_reasons(tx: Transaction, agent: str) -> list[StoreFinding]:
    names = tx.names("deadletter", agent)
    stems = {dead_letters.stem_of(name) for name in names if not name.endswith(dead_letter_reasons.SUFFIX)}
    done = []
    for name in names:
        if (
            name.endswith(dead_letter_reasons.SUFFIX)
            and name.removesuffix(dead_letter_reasons.SUFFIX) not in stems
        ):
            tx.remove(tx.folder("deadletter", agent), name)
            path = f"deadletter/{agent}/{printable(name)}"
            message = f"{path} recorded a move that did not happen."
            done.append(StoreFinding(kind="temporary", path=path, message=message, repaired=True))
    return done


def _return_expired(tx: Transaction, agent: str) -> list[StoreFinding]:
    back, dead = claims.return_expired(tx, agent)
    findings = [
        ("inbox", id, f"The claim on '{id}' had expired; it is back in the inbox of '{agent}'.")
        for id in back
    ]
    findings += [
        ("deadletter", each.id or "", f"'{each.id}' is a dead letter. {each.problem.message}")
        for each in dead
        if each.problem is not None
    ]
    return [
        StoreFinding(kind="expired", path=f"{place}/{agent}", id=id, message=message, repaired=True)
        for place, id, message in findings
    ]


def _restore_receipts(tx: Transaction, agent: str) -> list[StoreFinding]:
    done = []
    for place in PLACES:
        for entry in message_lookup.entries(tx, place, agent):
            message = message_lookup.read(tx, agent, entry)
            if isinstance(message, file_operations.RejectedFile):
                continue
            if tx.is_remote(message.sender):
                continue  # Its receipts are on its own machine.
            for name, receipt in _rebuild_receipt(tx, message, entry):
                file = tx.write(receipts.encode(receipt))
                tx.sync_file(file)
                outbox = tx.folder("outbox", message.sender, make=True)
                with tx.locked(agent):
                    if not file_operations.exists(tx.folder(place, agent), entry.name):
                        continue  # Moved on or pruned: the receipt would refer to a missing message.
                    tx.put(file, outbox, name)
                path = f"outbox/{message.sender}/{name}"
                text = f"{path} was missing."
                done.append(
                    StoreFinding(
                        kind="receipt_missing", path=path, id=entry.stem.id, message=text, repaired=True
                    )
                )
    return done


def _rebuild_receipt(
    tx: Transaction, message: MailMessage, entry: MessageFile
) -> Iterator[tuple[str, Receipt]]:
    """Return the missing receipts of a message, by file name."""
    at = tx.clocks.iso()
    first = receipts.read(tx, message.sender, message.id)
    if first is None or first.status == "refused":
        yield receipt_name(message.id), receipts.delivered_receipt(message.id, message.recipient, at)
    dead = entry.place == "deadletter"
    reason = dead_letter_reasons.read_reason(tx, message.recipient, str(entry.stem)).reason if dead else ""
    if entry.outcome is not None and receipts.read(tx, message.sender, message.id, entry.outcome) is None:
        yield (
            receipt_name(message.id, entry.outcome),
            receipts.final_receipt(message, entry.outcome, reason, at),
        )
