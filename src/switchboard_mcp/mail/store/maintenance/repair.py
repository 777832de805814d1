"""What a crash may leave, and how it is mended: each of these can be done by anybody at any time.

Owns the mending. Does not touch what it cannot explain; `verify` tells of that.
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
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile, receipt_name
from switchboard_mcp.mail.store.maintenance import cleanup
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding


def repair(visit: Transaction) -> list[StoreFinding]:
    """Mend everything that can be mended; what was done."""
    done = cleanup.clean_temporaries(visit)
    for agent in sorted({agent for place in PLACES for agent in visit.agents(place)}):
        with visit.locked(agent):
            done += cleanup.mend_half_moves(visit, agent)
            done += _lone_reasons(visit, agent)
        done += _expired(visit, agent)
        done += _missing_receipts(visit, agent)
    visit.sync_folders()
    return done


def _lone_reasons(visit: Transaction, agent: str) -> list[StoreFinding]:
    names = visit.names("deadletter", agent)
    stems = {dead_letters.stem_of(name) for name in names if not name.endswith(dead_letter_reasons.SUFFIX)}
    done = []
    for name in names:
        if (
            name.endswith(dead_letter_reasons.SUFFIX)
            and name.removesuffix(dead_letter_reasons.SUFFIX) not in stems
        ):
            visit.remove(visit.folder("deadletter", agent), name)
            path = f"deadletter/{agent}/{name}"
            told = f"{path} told of a move that did not happen."
            done.append(StoreFinding(kind="temporary", path=path, message=told, mended=True))
    return done


def _expired(visit: Transaction, agent: str) -> list[StoreFinding]:
    back, dead = claims.give_back_expired(visit, agent)
    told = [
        ("inbox", id, f"The claim on '{id}' was over; it is back in the inbox of '{agent}'.") for id in back
    ]
    told += [
        ("deadletter", each.id or "", f"'{each.id}' is a dead letter. {each.problem.message}")
        for each in dead
        if each.problem is not None
    ]
    return [
        StoreFinding(kind="expired", path=f"{place}/{agent}", id=id, message=message, mended=True)
        for place, id, message in told
    ]


def _missing_receipts(visit: Transaction, agent: str) -> list[StoreFinding]:
    done = []
    for place in PLACES:
        for entry in message_lookup.entries(visit, place, agent):
            message = message_lookup.read(visit, agent, entry)
            if isinstance(message, file_operations.RejectedFile):
                continue
            if visit.is_elsewhere(message.sender):
                continue  # Its receipts are where it lives.
            for name, receipt in _owed(visit, message, entry):
                draft = visit.write(receipts.encoded(receipt))
                visit.sync_draft(draft)
                outbox = visit.folder("outbox", message.sender, make=True)
                with visit.locked(agent):
                    if not file_operations.exists(visit.folder(place, agent), entry.name):
                        continue  # Moved on, or pruned: a receipt would tell of what is nowhere.
                    visit.put(draft, outbox, name)
                path = f"outbox/{message.sender}/{name}"
                told = f"{path} was missing."
                done.append(
                    StoreFinding(
                        kind="receipt_missing", path=path, id=entry.stem.id, message=told, mended=True
                    )
                )
    return done


def _owed(visit: Transaction, message: MailMessage, entry: MessageFile) -> Iterator[tuple[str, Receipt]]:
    """The receipts that should be there and are not, by the names of their files."""
    at = visit.clocks.iso()
    first = receipts.read(visit, message.sender, message.id)
    if first is None or first.status == "refused":
        yield receipt_name(message.id), receipts.delivered(message.id, message.recipient, at)
    dead = entry.place == "deadletter"
    said = dead_letter_reasons.read(visit, message.recipient, str(entry.stem)).reason if dead else ""
    if entry.outcome is not None and receipts.read(visit, message.sender, message.id, entry.outcome) is None:
        yield receipt_name(message.id, entry.outcome), receipts.ended(message, entry.outcome, said, at)
