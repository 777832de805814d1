"""Where the messages of an agent are: by name, by id, by what is written in them.

Reads only. Owns finding; does not know how messages come and go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from switchboard_mcp.errors import refused
from switchboard_mcp.mail.agent_names import agent_name, is_agent_name
from switchboard_mcp.mail.messages import MailMessage, StoredMessage
from switchboard_mcp.mail.store import dead_letter_reasons, file_operations, signing
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import (
    MAX_RETURNS,
    PLACES,
    MessageFile,
    Place,
    Stem,
    name_patterns,
    parse,
)
from switchboard_mcp.suites.fuzzy import nearest


def parse_agent_name(written: str) -> str:
    """The agent's name, or `mail_name_invalid`."""
    name = agent_name(written)
    if name is None:
        shown = written if len(written) < 80 else written[:79] + "…"
        raise refused("mail_name_invalid", f"{shown!r} can be no name of an agent.")
    return name


def require_agent(tx: Transaction, written: str) -> str:
    """The name of somebody who has an inbox, or `mail_recipient_unknown` with the nearest names."""
    name = parse_agent_name(written)
    if not tx.has("inbox", name):
        there = tx.agents()
        message = f"There is no agent '{name}' here."
        message += f" There are: {', '.join(there[:20])}." if there else " Nobody has registered yet."
        raise refused("mail_recipient_unknown", message, nearest=nearest(name, there))
    return name


def require_local(tx: Transaction, agent: str) -> None:
    """Refuse to hand out the mail of somebody who lives on another machine."""
    if tx.is_remote(agent):
        message = f"'{agent}' lives on another machine, where its mail is handed out."
        raise refused("mail_agent_elsewhere", message)


def entries(tx: Transaction, place: Place, agent: str) -> list[MessageFile]:
    """The messages in one place, in their order; whatever else is there is left out."""
    found = (parse(place, name) for name in tx.names(place, agent))
    return sorted((entry for entry in found if entry), key=lambda entry: entry.stem.order)


def ids(tx: Transaction, agent: str, places: Sequence[Place] = PLACES) -> list[str]:
    """The ids of all messages there, each place in its order."""
    return [entry.stem.id for place in places for entry in entries(tx, place, agent)]


def find(
    tx: Transaction, agent: str, message_id: str, places: Sequence[Place] = PLACES
) -> MessageFile | None:
    """Where the message with this id is: where this process claimed it, else by what its name must be."""
    held = tx.directory.claimed.get((agent, message_id))
    if held is not None and held.place in places and _file_exists(tx, held.place, agent, held.name):
        return held
    for begins, at in name_patterns(message_id):
        for place in places:
            entry = _find_in(tx, place, agent, begins, at)
            if entry is not None:
                return entry
    return None


def exists(tx: Transaction, agent: str, stem: Stem) -> bool:
    """Whether the message is anywhere. Only certain while its mailbox is locked."""
    return any(_find_in(tx, place, agent, f"{stem}.") is not None for place in PLACES)


def _find_in(tx: Transaction, place: Place, agent: str, begins: str, at: int = 0) -> MessageFile | None:
    """The message whose name has these letters at this place in it; no listing where the whole name is known."""
    if place == "inbox" and not at:
        return _find_waiting(tx, agent, begins)
    for name in tx.names(place, agent):
        if name.startswith(begins, at):
            entry = parse(place, name)
            if entry is not None:
                return entry
    return None


def _find_waiting(tx: Transaction, agent: str, begins: str) -> MessageFile | None:
    for returns in range(MAX_RETURNS + 1):
        name = f"{begins}{returns}.json" if returns else f"{begins}json"
        if _file_exists(tx, "inbox", agent, name):
            return parse("inbox", name)
    return None


def _file_exists(tx: Transaction, place: Place, agent: str, name: str) -> bool:
    return tx.has(place, agent) and file_operations.exists(tx.folder(place, agent), name)


def read(tx: Transaction, agent: str, entry: MessageFile) -> MailMessage | file_operations.RejectedFile:
    """A message, without its seal. One without a right one is read, but its sender is not verified."""
    found = file_operations.read(tx.folder(entry.place, agent), entry.name, signing.MAX_FILE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return found
    message = signing.verify(tx.signing_key(), entry.stem, agent, found.data)
    if message is not None:
        return message
    message = signing.decode(found.data)
    # Folders and files are named by these three; whoever changed it must not choose which.
    fits = (
        message
        and is_agent_name(message.sender)
        and (message.id, message.recipient) == (entry.stem.id, agent)
    )
    if message is None or not fits:
        return file_operations.RejectedFile("it is no message")
    message.metadata.pop("seal", None)
    message.metadata["verified"] = False
    return message


def load(tx: Transaction, agent: str, entry: MessageFile) -> StoredMessage | None:
    """A message where it was found; None where it is gone or none."""
    message = read(tx, agent, entry)
    if isinstance(message, file_operations.RejectedFile):
        return None
    why = (
        dead_letter_reasons.read_reason(tx, agent, str(entry.stem)).reason
        if entry.place == "deadletter"
        else ""
    )
    return StoredMessage(
        message=message,
        place=entry.place,
        order=entry.stem.order,
        verified=message.verified,
        outcome=entry.outcome,
        reason=why or None,
    )


def load_all(tx: Transaction, agent: str, found: list[MessageFile]) -> Iterator[StoredMessage]:
    """Those that can be read."""
    for entry in found:
        one = load(tx, agent, entry)
        if one is not None:
            yield one
