"""Verifies that every accepted message is in exactly one place, and reports unexpected files.

Lists one agent at a time under its lock, so running processes do not interfere. Read-only; `repair` fixes problems.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from switchboard_mcp.config.agent_names import agent_name
from switchboard_mcp.mail.messages import MailMessage
from switchboard_mcp.mail.store import (
    file_operations,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import AGENT_FOLDERS, Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import (
    PLACES,
    MessageFile,
    Outcome,
    Place,
    parse,
    printable,
    receipt_name,
)
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding


class StoreVerdict(Struct, rename="camel", kw_only=True):
    """Result of `verify`: sound if every accepted id is in exactly one place and intact."""

    sound: bool
    counts: dict[str, int]
    """Number of messages in each place: `inbox`, `claimed`, `shipped`, `archive`, `deadletter`."""
    findings: list[StoreFinding]


# These mean data loss or duplication; the others wait to be repaired, delivered or dead-lettered.
BROKEN = frozenset({"lost", "doubled", "torn"})
NOT_DELIVERED = "is a dropped file that is not delivered yet; the next read of that inbox delivers it"


def verify(tx: Transaction) -> StoreVerdict:
    """Check everything."""
    counts: dict[str, int] = dict.fromkeys(PLACES, 0)
    findings: list[StoreFinding] = []
    ids: dict[str, set[str]] = {}
    agents = {agent for place in PLACES for agent in tx.agents(place)}
    promised = _accepted_messages(tx)
    for agent in sorted(agents):
        with tx.locked_to_read(agent):
            names = [
                (place, name, inode)
                for place in PLACES
                if tx.has(place, agent)
                for name, inode in file_operations.entries(tx.folder(place, agent))
            ]
            # A crash while packing leaves a file and its line, which are one message.
            own = {name for place, name, _ in names if place == "archive"}
            names += [
                ("archive", name, 0)
                for name in set(day_segments.names(tx, "archive", agent))
                if name not in own
            ]
        # Read without the lock: this can take long, and a message moved meanwhile was still in one place.
        entries, agent_findings, senders = _check_agent(tx, agent, names)
        findings += agent_findings + _find_missing_receipts(tx, entries, senders)
        ids[agent] = {entry.stem.id for entry in entries}
        for entry in entries:
            counts[entry.place] += 1
    everywhere = set().union(*ids.values())
    for sender, message_id in promised:
        if message_id not in everywhere:
            path = f"outbox/{sender}/receipt_{message_id}.json"
            text = f"Message '{message_id}' from '{sender}' was accepted but is missing."
            findings.append(StoreFinding(kind="lost", path=path, id=message_id, message=text))
    findings += _find_stray_entries(tx)
    sound = not any(finding.kind in BROKEN for finding in findings)
    return StoreVerdict(sound=sound, counts=counts, findings=findings)


def _accepted_messages(tx: Transaction) -> list[tuple[str, str]]:
    """List the messages with a receipt of acceptance. Taken first, so messages sent meanwhile do not look lost."""
    accepted = []
    for sender in tx.agents("outbox"):
        for message_id, outcomes in receipts.outcomes_by_message(tx, sender).items():
            first = receipts.read(tx, sender, message_id)
            if outcomes - {None} or (first is not None and first.status != "refused"):
                accepted.append((sender, message_id))
    return accepted


def _check_agent(
    tx: Transaction, agent: str, names: list[tuple[Place, str, int]]
) -> tuple[list[MessageFile], list[StoreFinding], dict[str, str]]:
    """Return the messages of an agent, the findings, and the sender of each intact message by its id."""
    entries: list[MessageFile] = []
    senders: dict[str, str] = {}
    findings: list[StoreFinding] = []
    now = tx.clocks.now()
    inodes = {(place, name): inode for place, name, inode in names}
    for place, name, _ in names:
        entry = parse(place, name)
        path = f"{place}/{agent}/{printable(name)}"
        if entry is None:
            finding = _check_other_file(place, name, path)
        else:
            checked = _check_message(tx, agent, entry, path)
            finding = checked if isinstance(checked, StoreFinding) else None
            if isinstance(checked, MailMessage):
                senders[entry.stem.id] = checked.sender
        if finding is not None:
            findings.append(finding)
        # A dropped file counts as a message only once delivered.
        if entry is not None and (finding is None or finding.kind != "foreign"):
            entries.append(entry)
        if entry is not None and entry.lease is not None and entry.lease.has_expired(now):
            late = "The claim has expired; the message will return to the inbox."
            findings.append(StoreFinding(kind="expired", path=path, id=entry.stem.id, message=late))
    return entries, findings + _find_duplicates(agent, entries, inodes), senders


def _find_missing_receipts(
    tx: Transaction, entries: list[MessageFile], senders: dict[str, str]
) -> list[StoreFinding]:
    """Report messages whose sender has no receipt of their delivery or outcome: a crash came before it."""
    findings = []
    for entry in entries:
        sender = senders.get(entry.stem.id)
        if sender is None or entry.place == "shipped" or tx.is_remote(sender):
            continue
        needed: list[Outcome | None] = [None] if entry.outcome is None else [None, entry.outcome]
        for outcome in needed:
            name = receipt_name(entry.stem.id, outcome)
            if not tx.exists("outbox", sender, name):
                path = f"outbox/{sender}/{name}"
                text = f"{path} is missing. Run `switchboard mail repair` to write it again."
                findings.append(
                    StoreFinding(kind="receipt_missing", path=path, id=entry.stem.id, message=text)
                )
    return findings


def _check_message(
    tx: Transaction, agent: str, entry: MessageFile, path: str
) -> StoreFinding | MailMessage | None:
    """Return what is wrong with a message, or the message; None if it has moved on."""
    content = tx.read(entry.place, agent, entry.name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        if content.gone:
            return None
        text = f"{path}: {content.reason}."
        return StoreFinding(kind="unreadable", path=path, id=entry.stem.id, message=text)
    message = signing.verify(tx.signing_key(), entry.stem, agent, content.data)
    if message is not None:
        return message
    if entry.place == "inbox":
        return StoreFinding(kind="foreign", path=path, message=f"{path} {NOT_DELIVERED}.")
    if signing.decode(content.data) is None:
        return StoreFinding(kind="torn", path=path, id=entry.stem.id, message=f"{path} is truncated.")
    return StoreFinding(
        kind="unsealed", path=path, id=entry.stem.id, message=f"{path} was changed by another program."
    )


def _check_other_file(place: str, name: str, path: str) -> StoreFinding | None:
    if place == "deadletter" or name.startswith(".") or name.endswith(".tmp"):
        return None
    if place == "archive" and name == day_segments.DAYS:
        return None
    text = "is not a message that belongs here"
    if place == "inbox":
        dropped = name.startswith("msg_") and name.endswith(".json")
        text = NOT_DELIVERED if dropped else "is not a message and will be dead-lettered"
    return StoreFinding(kind="foreign", path=path, message=f"{path} {text}.")


def _find_duplicates(
    agent: str, entries: list[MessageFile], inodes: dict[tuple[Place, str], int]
) -> list[StoreFinding]:
    by_id: dict[str, list[MessageFile]] = defaultdict(list)
    for entry in entries:
        by_id[entry.stem.id].append(entry)
    findings = []
    for message_id, found in by_id.items():
        if len(found) > 1:
            # Two names of one file: a move that a crash has interrupted, and that the next repair finishes.
            same = len({inodes[entry.place, entry.name] for entry in found}) == 1
            paths = [f"{entry.place}/{agent}/{entry.name}" for entry in found]
            text = f"'{message_id}' is in {', '.join(paths)}."
            kind = "half_moved" if same else "doubled"
            findings.append(StoreFinding(kind=kind, path=paths[0], id=message_id, message=text))
    return findings


def _find_stray_entries(tx: Transaction) -> list[StoreFinding]:
    """Report entries that are neither agent folders nor folders named as people write an agent's name."""
    findings = []
    for place in AGENT_FOLDERS:
        known = set(tx.agents(place))
        for name in tx.names(place):
            # Files in `inbox/Coder 1` are delivered to `coder-1`.
            if name not in known and (place != "inbox" or agent_name(name) in (None, name)):
                path = f"{place}/{printable(name)}"
                findings.append(
                    StoreFinding(kind="foreign", path=path, message=f"{path} is not an agent folder.")
                )
    return findings
