"""Whether every accepted message is in exactly one place, and nothing is there that should not be.

Takes the names of one agent at a time, under its lock, so that processes at work do not disturb. Reads only; `repair`
mends.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from switchboard_mcp.mail.store import file_operations, receipts, signing
from switchboard_mcp.mail.store.directory import AGENT_FOLDERS, Transaction
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile, Place, parse
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding


class StoreVerdict(Struct, rename="camel", kw_only=True):
    """What `verify` says: sound when every accepted id is in exactly one place, whole."""

    sound: bool
    counts: dict[str, int]
    """How many messages are in each place: `inbox`, `claimed`, `shipped`, `archive`, `deadletter`."""
    findings: list[StoreFinding]


# These say that a promise was broken; the others that something waits to be mended, delivered or set aside.
BROKEN = frozenset({"lost", "doubled", "torn"})
NOT_DELIVERED = "was dropped there and is not delivered yet: any look into that inbox delivers it"


def verify(tx: Transaction) -> StoreVerdict:
    """Look at everything."""
    counts: dict[str, int] = dict.fromkeys(PLACES, 0)
    findings: list[StoreFinding] = []
    held: dict[str, set[str]] = {}
    agents = {agent for place in PLACES for agent in tx.agents(place)}
    promised = _accepted_messages(tx)
    for agent in sorted(agents):
        with tx.locked(agent):
            names = [(place, name) for place in PLACES for name in tx.names(place, agent)]
        # Reading takes long where there is much; what is moved meanwhile was in one place all the same.
        found, agent_findings = _check_agent(tx, agent, names)
        findings += agent_findings
        held[agent] = {entry.stem.id for entry in found}
        for entry in found:
            counts[entry.place] += 1
    everywhere = set().union(*held.values())
    for sender, message_id in promised:
        if message_id not in everywhere:
            path = f"outbox/{sender}/receipt_{message_id}.json"
            text = f"'{message_id}' of '{sender}' was accepted and is nowhere."
            findings.append(StoreFinding(kind="lost", path=path, id=message_id, message=text))
    findings += _find_stray_entries(tx)
    sound = not any(finding.kind in BROKEN for finding in findings)
    return StoreVerdict(sound=sound, counts=counts, findings=findings)


def _accepted_messages(tx: Transaction) -> list[tuple[str, str]]:
    """Every message that a receipt says was accepted. Taken first: what is sent meanwhile cannot seem lost."""
    found = []
    for sender in tx.agents("outbox"):
        for message_id, outcomes in receipts.outcomes_by_message(tx, sender).items():
            first = receipts.read(tx, sender, message_id)
            if outcomes - {None} or (first is not None and first.status != "refused"):
                found.append((sender, message_id))
    return found


def _check_agent(
    tx: Transaction, agent: str, names: list[tuple[Place, str]]
) -> tuple[list[MessageFile], list[StoreFinding]]:
    found: list[MessageFile] = []
    findings: list[StoreFinding] = []
    now = tx.clocks.now()
    for place, name in names:
        entry = parse(place, name)
        path = f"{place}/{agent}/{name}"
        finding = _check_message(tx, agent, entry, path) if entry else _check_other_file(place, name, path)
        if finding is not None:
            findings.append(finding)
        # What was dropped is a message only when it has been delivered.
        if entry is not None and (finding is None or finding.kind != "foreign"):
            found.append(entry)
        if entry is not None and entry.lease is not None and entry.lease.has_expired(now):
            late = "The claim is over; the message goes back to the inbox."
            findings.append(StoreFinding(kind="expired", path=path, id=entry.stem.id, message=late))
    return found, findings + _find_duplicates(agent, found)


def _check_message(tx: Transaction, agent: str, entry: MessageFile, path: str) -> StoreFinding | None:
    found = file_operations.read(tx.folder(entry.place, agent), entry.name, signing.MAX_FILE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        if found.gone:
            return None
        kind = "half_moved" if found.links == 2 else "unreadable"
        return StoreFinding(kind=kind, path=path, id=entry.stem.id, message=f"{path}: {found.reason}.")
    if signing.verify(tx.signing_key(), entry.stem, agent, found.data) is not None:
        return None
    if entry.place == "inbox":
        return StoreFinding(kind="foreign", path=path, message=f"{path} {NOT_DELIVERED}.")
    if signing.decode(found.data) is None:
        return StoreFinding(kind="torn", path=path, id=entry.stem.id, message=f"{path} is not whole.")
    return StoreFinding(
        kind="unsealed", path=path, id=entry.stem.id, message=f"{path} was changed by somebody else."
    )


def _check_other_file(place: str, name: str, path: str) -> StoreFinding | None:
    if place == "deadletter" or name.startswith(".") or name.endswith(".tmp"):
        return None
    text = "is no message of this place"
    if place == "inbox":
        dropped = name.startswith("msg_") and name.endswith(".json")
        text = NOT_DELIVERED if dropped else "is no message, and will be set aside among the dead letters"
    return StoreFinding(kind="foreign", path=path, message=f"{path} {text}.")


def _find_duplicates(agent: str, found: list[MessageFile]) -> list[StoreFinding]:
    places = defaultdict(list)
    for entry in found:
        places[entry.stem.id].append(f"{entry.place}/{agent}/{entry.name}")
    return [
        StoreFinding(
            kind="doubled", path=paths[0], id=message_id, message=f"'{message_id}' is in {', '.join(paths)}."
        )
        for message_id, paths in places.items()
        if len(paths) > 1
    ]


def _find_stray_entries(tx: Transaction) -> list[StoreFinding]:
    """What stands where folders of agents should."""
    findings = []
    for place in AGENT_FOLDERS:
        known = set(tx.agents(place))
        for name in tx.names(place):
            if name not in known:
                path = f"{place}/{name}"
                findings.append(
                    StoreFinding(kind="foreign", path=path, message=f"{path} is no folder of an agent.")
                )
    return findings
