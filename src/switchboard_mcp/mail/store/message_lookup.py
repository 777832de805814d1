"""Finds and reads the messages of an agent, by place or id. Read-only; not aware of how messages are moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from switchboard_mcp.config.agent_names import RESERVED_FOR, agent_name, is_agent_name
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import MailMessage, StoredMessage
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    file_operations,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import (
    MAX_RETURNS,
    ORDER_DIGITS,
    PLACES,
    MessageFile,
    Place,
    Stem,
    is_store_id,
    name_patterns,
    parse,
)
from switchboard_mcp.mail.store.index.inbox_index import InboxView, stamp_of
from switchboard_mcp.suites.fuzzy import nearest


def parse_agent_name(written: str) -> str:
    """Return the normalized agent name. Raises `mail_name_invalid`."""
    name = agent_name(written)
    if name is None:
        shown = written if len(written) < 80 else written[:79] + "…"
        raise refused("mail_name_invalid", f"{shown!r} is not a valid agent name.")
    return name


def require_unreserved(name: str) -> str:
    """Return the name. Raises `mail_identity` if no agent may use it."""
    if name in RESERVED_FOR:
        message = f"'{name}' is reserved for {RESERVED_FOR[name]}."
        raise refused("mail_identity", message, hint="Use another name.")
    return name


def require_agent(tx: Transaction, written: str) -> str:
    """Return the name of an agent that has an inbox. Raises `mail_recipient_unknown` with the nearest names."""
    name = parse_agent_name(written)
    if not tx.has("inbox", name):
        known = tx.agents()
        message = f"There is no agent '{name}' here."
        message += f" Known agents: {', '.join(known[:20])}." if known else " No agent has registered yet."
        raise refused("mail_recipient_unknown", message, nearest=nearest(name, known))
    return name


def require_local(tx: Transaction, agent: str) -> None:
    """Raise `mail_agent_elsewhere` if the agent lives on another machine."""
    if tx.is_remote(agent):
        message = f"Agent '{agent}' lives on another machine. Claim its mail there."
        raise refused("mail_agent_elsewhere", message)


def entries(tx: Transaction, place: Place, agent: str) -> list[MessageFile]:
    """List the messages in one place, in order; skips other files."""
    parsed = (parse(place, name) for name in tx.all_names(place, agent))
    return sorted((entry for entry in parsed if entry), key=lambda entry: entry.stem.order)


def ids(tx: Transaction, agent: str, places: Sequence[Place] = PLACES) -> list[str]:
    """List the ids of all messages in these places, each place in order."""
    return [entry.stem.id for place in places for entry in entries(tx, place, agent)]


def find(
    tx: Transaction, agent: str, message_id: str, places: Sequence[Place] = PLACES
) -> MessageFile | None:
    """Find a message by id: first where this process claimed it, then by its possible names."""
    held = tx.directory.claimed.get((agent, message_id))
    if held is not None and held.place in places and _file_exists(tx, held.place, agent, held.name):
        return held
    if "inbox" in places and (waiting := _find_indexed(tx, agent, message_id)) is not None:
        return waiting
    for text, offset in name_patterns(message_id):
        for place in places:
            # The index of a whole inbox has every id, so a name that is not known needs no listing.
            if place == "inbox" and offset and _has_whole_index(tx, agent):
                continue
            entry = _find_in(tx, place, agent, text, offset)
            if entry is not None:
                return entry
    return _find_packed(tx, agent, message_id) if "archive" in places else None


def _find_indexed(tx: Transaction, agent: str, message_id: str) -> MessageFile | None:
    """Find a waiting message in the index of a large inbox."""
    view = inbox_view(tx, agent)
    names = view.with_ids([message_id]) if view is not None else []
    entry = parse("inbox", names[0]) if names else None
    return entry if entry is not None and _file_exists(tx, "inbox", agent, entry.name) else None


def _has_whole_index(tx: Transaction, agent: str) -> bool:
    view = inbox_view(tx, agent)
    return view is not None and not view.partial


def inbox_view(tx: Transaction, agent: str) -> InboxView | None:
    """Return the index of an inbox if there is one and it is right, or the inbox is too large to be listed."""
    if not tx.has("inbox", agent):
        return None
    index = tx.directory.index
    return index.view(agent, stamp_of(tx.folder("inbox", agent))) or index.latest(agent)


def count_waiting(tx: Transaction, agent: str) -> tuple[int, str]:
    """Return how many files wait in an inbox, and the name of the oldest message."""
    view = inbox_view(tx, agent)
    if view is not None:
        return view.count(), view.oldest() or ""
    names = [name for name in tx.names("inbox", agent) if name.startswith("msg_") and name.endswith(".json")]
    return len(names), min(names, default="")  # names sort by time


def locate(
    tx: Transaction, agent: str, order: int, message_id: str, places: Sequence[Place]
) -> MessageFile | None:
    """Find a message in its inbox or in the segments of the archive, by names that need no listing."""
    own = is_store_id(message_id) and int(message_id[4 : 4 + ORDER_DIGITS]) == order
    stem = message_id if own else str(Stem(order, f"file-{message_id.removeprefix('msg_')}"))
    if "inbox" in places and (waiting := _find_waiting(tx, agent, f"{stem}.")) is not None:
        return waiting
    return _find_packed(tx, agent, message_id) if "archive" in places else None


def _find_packed(tx: Transaction, agent: str, message_id: str) -> MessageFile | None:
    """Find a message in the segments of the archive."""
    found = (parse("archive", packed.name) for packed in day_segments.find(tx, "archive", agent, message_id))
    return next((entry for entry in found if entry is not None), None)


def is_packed(tx: Transaction, agent: str, stem: Stem) -> bool:
    """Return True if the message is in a segment of the archive."""
    found = (parse("archive", packed.name) for packed in day_segments.find(tx, "archive", agent, stem.id))
    return any(entry is not None and entry.stem == stem for entry in found)


def exists(tx: Transaction, agent: str, stem: Stem) -> bool:
    """Return True if the message is in any place. Reliable only while its mailbox is locked."""
    return any(is_in(tx, place, agent, stem) for place in PLACES)


def is_in(tx: Transaction, place: Place, agent: str, stem: Stem) -> bool:
    """Return True if the message is in this place. Lists the place."""
    if _find_in(tx, place, agent, f"{stem}.") is not None:
        return True
    return place == "archive" and is_packed(tx, agent, stem)


def _find_in(tx: Transaction, place: Place, agent: str, text: str, offset: int = 0) -> MessageFile | None:
    """Find the message whose name contains this text at this offset; without listing if the whole name is known."""
    if place == "inbox" and not offset:
        return _find_waiting(tx, agent, text)
    for name in tx.names(place, agent):
        if name.startswith(text, offset):
            entry = parse(place, name)
            if entry is not None:
                return entry
    return None


def _find_waiting(tx: Transaction, agent: str, prefix: str) -> MessageFile | None:
    for returns in range(MAX_RETURNS + 1):
        name = f"{prefix}{returns}.json" if returns else f"{prefix}json"
        if _file_exists(tx, "inbox", agent, name):
            return parse("inbox", name)
    return None


def _file_exists(tx: Transaction, place: Place, agent: str, name: str) -> bool:
    return tx.has(place, agent) and file_operations.exists(tx.folder(place, agent), name)


def read(tx: Transaction, agent: str, entry: MessageFile) -> MailMessage | file_operations.RejectedFile:
    """Read a message without its signature. If the signature is invalid, the sender is not verified."""
    content = tx.read(entry.place, agent, entry.name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return content
    message = signing.verify(tx.signing_key(), entry.stem, agent, content.data)
    if message is not None:
        return message
    if content.links != 1:
        return file_operations.LINKED
    message = signing.decode(content.data)
    # Folders and files are named after these three, so a modified file must not choose them.
    fits = (
        message
        and is_agent_name(message.sender)
        and (message.id, message.recipient) == (entry.stem.id, agent)
    )
    if message is None or not fits:
        return file_operations.RejectedFile("it is not a message")
    message.metadata.pop("seal", None)
    message.metadata["verified"] = False
    return message


def load(tx: Transaction, agent: str, entry: MessageFile) -> StoredMessage | None:
    """Load a message with its place; None if it is gone or invalid."""
    message = read(tx, agent, entry)
    if isinstance(message, file_operations.RejectedFile):
        return None
    reason = (
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
        reason=reason or None,
    )


def load_all(tx: Transaction, agent: str, files: list[MessageFile]) -> Iterator[StoredMessage]:
    """Load the messages that can be read."""
    for entry in files:
        message = load(tx, agent, entry)
        if message is not None:
            yield message
