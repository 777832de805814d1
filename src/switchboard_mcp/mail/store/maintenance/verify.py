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
WAITS = "was dropped there and is not delivered yet: any look into that inbox delivers it"


def verify(visit: Transaction) -> StoreVerdict:
    """Look at everything."""
    counts: dict[str, int] = dict.fromkeys(PLACES, 0)
    findings: list[StoreFinding] = []
    held: dict[str, set[str]] = {}
    agents = {agent for place in PLACES for agent in visit.agents(place)}
    promised = _promised(visit)
    for agent in sorted(agents):
        with visit.locked(agent):
            names = [(place, name) for place in PLACES for name in visit.names(place, agent)]
        # Reading takes long where there is much; what is moved meanwhile was in one place all the same.
        found, told = _agent(visit, agent, names)
        findings += told
        held[agent] = {entry.stem.id for entry in found}
        for entry in found:
            counts[entry.place] += 1
    everywhere = set().union(*held.values())
    for sender, message_id in promised:
        if message_id not in everywhere:
            path = f"outbox/{sender}/receipt_{message_id}.json"
            told_lost = f"'{message_id}' of '{sender}' was accepted and is nowhere."
            findings.append(StoreFinding(kind="lost", path=path, id=message_id, message=told_lost))
    findings += _strangers(visit)
    sound = not any(finding.kind in BROKEN for finding in findings)
    return StoreVerdict(sound=sound, counts=counts, findings=findings)


def _promised(visit: Transaction) -> list[tuple[str, str]]:
    """Every message that a receipt says was accepted. Taken first: what is sent meanwhile cannot seem lost."""
    found = []
    for sender in visit.agents("outbox"):
        for message_id, outcomes in receipts.listed(visit, sender).items():
            first = receipts.read(visit, sender, message_id)
            if outcomes - {None} or (first is not None and first.status != "refused"):
                found.append((sender, message_id))
    return found


def _agent(
    visit: Transaction, agent: str, names: list[tuple[Place, str]]
) -> tuple[list[MessageFile], list[StoreFinding]]:
    found: list[MessageFile] = []
    told: list[StoreFinding] = []
    now = visit.clocks.now()
    for place, name in names:
        entry = parse(place, name)
        path = f"{place}/{agent}/{name}"
        finding = _look(visit, agent, entry, path) if entry else _other(place, name, path)
        if finding is not None:
            told.append(finding)
        # What was dropped is a message only when it has been delivered.
        if entry is not None and (finding is None or finding.kind != "foreign"):
            found.append(entry)
        if entry is not None and entry.lease is not None and entry.lease.is_over(now):
            late = "The claim is over; the message goes back to the inbox."
            told.append(StoreFinding(kind="expired", path=path, id=entry.stem.id, message=late))
    return found, told + _doubled(agent, found)


def _look(visit: Transaction, agent: str, entry: MessageFile, path: str) -> StoreFinding | None:
    found = file_operations.read(visit.folder(entry.place, agent), entry.name, signing.MOST_FILE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        if found.gone:
            return None
        kind = "half_moved" if found.links == 2 else "unreadable"
        return StoreFinding(kind=kind, path=path, id=entry.stem.id, message=f"{path}: {found.reason}.")
    if signing.unsealed(visit.key(), entry.stem, agent, found.data) is not None:
        return None
    if entry.place == "inbox":
        return StoreFinding(kind="foreign", path=path, message=f"{path} {WAITS}.")
    if signing.decode(found.data) is None:
        return StoreFinding(kind="torn", path=path, id=entry.stem.id, message=f"{path} is not whole.")
    return StoreFinding(
        kind="unsealed", path=path, id=entry.stem.id, message=f"{path} was changed by somebody else."
    )


def _other(place: str, name: str, path: str) -> StoreFinding | None:
    if place == "deadletter" or name.startswith(".") or name.endswith(".tmp"):
        return None
    told = "is no message of this place"
    if place == "inbox":
        dropped = name.startswith("msg_") and name.endswith(".json")
        told = WAITS if dropped else "is no message, and will be set aside among the dead letters"
    return StoreFinding(kind="foreign", path=path, message=f"{path} {told}.")


def _doubled(agent: str, found: list[MessageFile]) -> list[StoreFinding]:
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


def _strangers(visit: Transaction) -> list[StoreFinding]:
    """What stands where folders of agents should."""
    told = []
    for place in AGENT_FOLDERS:
        known = set(visit.agents(place))
        for name in visit.names(place):
            if name not in known:
                path = f"{place}/{name}"
                told.append(
                    StoreFinding(kind="foreign", path=path, message=f"{path} is no folder of an agent.")
                )
    return told
