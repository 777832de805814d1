"""Dead letters: messages nobody will settle, set aside with the reason; and the way back into the inbox.

A message that was claimed and came back too often becomes one, so that it does not come for ever; so does one that
another machine will not have. Owns these moves; what never was a message is set aside in `delivering`.
"""

from __future__ import annotations

import re

import msgspec

from switchboard_mcp.core.letterfile import (
    MOST_RETURNS,
    Entry,
    Outcome,
    parse,
    receipt_name,
    settled_name,
    waiting_name,
)
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail import delivering, files, lookup, receipts
from switchboard_mcp.mail.letters import Dead
from switchboard_mcp.mail.tree import Draftfile, Visit

# What never was a message: its stem here, and the name it had.
_FOREIGN = re.compile(r"(foreign_\d{16})_([^/]+)")


def never_settled() -> Failure:
    """Why a message is not handed out once more."""
    return failure("mail_lease_lost", f"It was claimed {MOST_RETURNS + 1} times and never settled.")


def bury(visit: Visit, agent: str, entry: Entry, outcome: Outcome, problem: Failure) -> bool:
    """Make a message a dead letter, and tell its sender; False where somebody else has moved it meanwhile."""
    found = lookup.read(visit, agent, entry)
    reason = visit.write(delivering.why(visit, entry.name, problem))
    drafts, receipt = [reason], None
    if not isinstance(found, files.Unfit):
        told = receipts.ended(found[0], outcome, problem.message, visit.clocks.iso())
        receipt = visit.write(msgspec.json.encode(told) + b"\n")
        drafts.append(receipt)
    _sync(visit, drafts)
    source, dead = visit.folder(entry.place, agent), visit.folder("deadletter", agent, make=True)
    with visit.locked(agent):
        if not files.exists(source, entry.name):
            return False
        visit.put(reason, dead, f"{entry.stem}{lookup.REASON}")
        name = settled_name(entry.stem, entry.fence or visit.number(), outcome)
        visit.move(source, entry.name, dead, name)
    visit.sync_folders()
    if receipt is not None and not isinstance(found, files.Unfit):
        outbox = visit.folder("outbox", found[0].sender, make=True)
        visit.put(receipt, outbox, receipt_name(found[0].id, outcome))
        visit.sync_folders()
    return True


def _sync(visit: Visit, drafts: list[Draftfile]) -> None:
    for problem in visit.sync_drafts(drafts):
        if problem is not None:
            raise problem


def listed(visit: Visit, agent: str) -> list[Dead]:
    """The dead letters of an agent, oldest first."""
    if not visit.has("deadletter", agent):
        return []
    folder = visit.folder("deadletter", agent)
    found = []
    for name in sorted(files.names(folder)):
        if name.endswith(lookup.REASON):
            continue
        entry = parse("deadletter", name)
        foreign = _FOREIGN.fullmatch(name)
        why = lookup.reason(visit, agent, str(entry.stem) if entry else foreign[1] if foreign else name)
        letter = lookup.letter(visit, agent, entry) if entry else None
        found.append(
            Dead(
                agent=agent,
                id=entry.stem.id if entry else name,
                file=f"deadletter/{agent}/{name}",
                reason=why.reason,
                at=why.at,
                message=letter.message if letter else None,
            )
        )
    return found


def requeue(visit: Visit, agent: str, dead_id: str) -> None:
    """Put a dead letter back into the inbox, as if it had never been claimed. Raises `mail_not_found`."""
    entry = lookup.find(visit, agent, dead_id, ("deadletter",))
    if entry is None:
        _drop_again(visit, agent, dead_id)
        return
    found = lookup.read(visit, agent, entry)
    if not isinstance(found, files.Unfit) and found[0].action == "execute":
        told = f"'{dead_id}' was to be typed into a terminal, and is not typed later than it was sent."
        raise refused("mail_forbidden", told, hint="Send it again.")
    if not isinstance(found, files.Unfit) and entry.outcome is not None:
        # First of all: where only this has happened, `repair` writes it anew.
        name = receipt_name(dead_id, entry.outcome)
        if visit.has("outbox", found[0].sender):
            _remove(visit, visit.folder("outbox", found[0].sender), name)
            visit.sync_folders()
    _back(visit, agent, entry.name, waiting_name(entry.stem), str(entry.stem))


def _drop_again(visit: Visit, agent: str, name: str) -> None:
    """What was no message is looked at again, as if it had just been dropped there."""
    foreign = _FOREIGN.fullmatch(name)
    if foreign is None or not visit.has("deadletter", agent):
        raise _no_letter(agent, name)
    _back(visit, agent, name, foreign[2], foreign[1])


def _back(visit: Visit, agent: str, name: str, wanted: str, stem: str) -> None:
    dead, inbox = visit.folder("deadletter", agent), visit.folder("inbox", agent, make=True)
    with visit.locked(agent):
        try:
            visit.move(dead, name, inbox, wanted)
        except FileNotFoundError:
            raise _no_letter(agent, name) from None
    visit.sync_folders()
    _remove(visit, dead, f"{stem}{lookup.REASON}")


def _no_letter(agent: str, name: str) -> SwitchboardError:
    return refused("mail_not_found", f"'{agent}' has no dead letter '{name[:150]}'.")


def _remove(visit: Visit, folder: int, name: str) -> None:
    try:
        visit.remove(folder, name)
    except FileNotFoundError:
        pass  # It never came to be, or a crash came after it went.
