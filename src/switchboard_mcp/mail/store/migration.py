"""Reads the tree of the file store into the database, once. Every step may be repeated after a crash.

    rows of messages → refused files, agents, state, counts: `counted` → folders move to `old-mail/`
    → files there that are no rows go to the new `inbox/`, for the ordinary import → `done`

A file without a valid signature of the old store is no message of it. This module leaves two versions after the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.mail.messages import MailMessage, Receipt
from switchboard_mcp.mail.store import integrity, reading, rows, signing, state_documents
from switchboard_mcp.mail.store.accepting import attached_bytes, dedup_key, insert_body
from switchboard_mcp.mail.store.filenames import MessageFile, Place, parse, parse_receipt_name
from switchboard_mcp.mail.store.mail_tables import RANKS
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.surface.folders import TAKEN, put_back

OLD = "old-mail"
KEY = "seal.key"
BATCH = 500
# Later places win where a crash left a message in two.
PLACES: tuple[Place, ...] = ("deadletter", "archive", "claimed", "shipped", "inbox")
MOVED = (
    "inbox",
    "claimed",
    "shipped",
    "archive",
    "deadletter",
    "outbox",
    "keys",
    "deadlines",
    "index",
    "tmp",
)
_INSERT = (
    "INSERT INTO message (ord, id, sender, recipient, rank, place, fence, lease_ends, lease_until, returns, outcome,"
    " summary, sent_at, settled_at, dedup, thread, ack_by, verified, by_file, size, sum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


class SegmentLine(Struct):
    """One line of a packed day: a file as it was, by name; `at` is when it was last changed, in seconds."""

    name: str
    at: int
    content: msgspec.Raw


_line = msgspec.json.Decoder(SegmentLine).decode
_receipt = msgspec.json.Decoder(Receipt).decode


class Migrated(Struct, kw_only=True):
    """What a migration has read."""

    messages: int
    dropped: int
    """Files without a valid signature, which are imported like any that is dropped."""


class _OldMessage(Struct):
    """A message of the tree with what its name and its receipts say."""

    entry: MessageFile
    message: MailMessage
    changed_ms: int


class OldTree:
    """The folders of the file store, before or after they were moved."""

    def __init__(self, path: str, *, is_moved: bool = False) -> None:
        self._root = os.path.join(path, OLD) if is_moved else path
        # A key that came with a checkout can be read by others, and signs nothing.
        self._key = _read(os.path.join(path, KEY)).strip()[:64] if _is_own(os.path.join(path, KEY)) else b""

    def agents(self, place: str) -> list[str]:
        """List the agents with a folder in a place."""
        return sorted(name for name in _list(os.path.join(self._root, place)) if is_agent_name(name))

    def messages(self) -> Iterator[_OldMessage]:
        """Yield all signed messages, those of each place and agent in order."""
        for place in PLACES:
            for agent in self.agents(place):
                for name, data, changed in self._files(place, agent):
                    entry = parse(place, name)
                    message = (
                        signing.verify(self._key, entry.stem, agent, data) if entry and self._key else None
                    )
                    if entry is not None and message is not None:
                        yield _OldMessage(entry, message, int(changed * 1_000))

    def receipts(self, sender: str) -> dict[str, Receipt]:
        """Return the receipts of a sender by file name."""
        receipts: dict[str, Receipt] = {}
        for name, data, _ in self._files("outbox", sender):
            if parse_receipt_name(name) is not None:
                try:
                    receipts[name] = _receipt(data)
                except msgspec.DecodeError:
                    continue  # Torn by a power cut, and written again by nobody.
        return receipts

    def unsigned(self, agent: str) -> list[str]:
        """List the files of an inbox that are no messages of the old store."""
        names = []
        for name, data, _ in self._files("inbox", agent):
            entry = parse("inbox", name)
            if entry is None or not self._key or signing.verify(self._key, entry.stem, agent, data) is None:
                names.append(name)
        return names

    def folder(self, place: str, agent: str) -> str:
        """Return the path of a folder."""
        return os.path.join(self._root, place, agent)

    def _files(self, place: str, agent: str) -> Iterator[tuple[str, bytes, float]]:
        """Yield names, contents and times of files; a packed one only if it has none of its own."""
        folder = self.folder(place, agent)
        names = {name for name in _list(folder) if name.endswith(".json")}
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                changed = os.lstat(path).st_mtime
            except OSError:
                continue
            yield name, _read(path), changed
        for segment in sorted(_list(os.path.join(folder, "days"))):
            for line in _read(os.path.join(folder, "days", segment)).splitlines():
                try:
                    packed = _line(line)
                except msgspec.DecodeError:
                    continue  # A torn line: its file still exists.
                if packed.name not in names:
                    yield packed.name, bytes(packed.content), packed.at


def has_old_tree(path: str) -> bool:
    """Return True if a workspace has mail of the file store that was not read yet."""
    return os.path.exists(os.path.join(path, KEY))


async def migrate(store: MessageStore) -> Migrated | None:
    """Read the old tree, if there is one; returns None if there is nothing to do.

    No process of the old version may run. One that does writes signed files of unknown ids into the new `inbox/`, which
    are imported as unverified files.
    """
    path = store.path
    stage = await store.read_rows(lambda tx: tx.row("SELECT value FROM meta WHERE name = 'migrated'"))
    if not has_old_tree(path) or (stage is not None and stage[0] == "done"):
        return None
    if stage is None:
        await _read_tree(store, OldTree(path))
    _move_aside(path, MOVED)
    dropped = _return_dropped(path)

    def finish(tx: Transaction) -> int:
        reading.set_meta(tx, "migrated", "done")
        return int(tx.rows("SELECT count(*) FROM message")[0][0])

    messages = await store.write(finish)
    _move_aside(path, (KEY,))
    return Migrated(messages=messages, dropped=dropped)


def _move_aside(path: str, names: Sequence[str]) -> None:
    os.makedirs(os.path.join(path, OLD), 0o700, exist_ok=True)
    for name in names:
        source, target = os.path.join(path, name), os.path.join(path, OLD, name)
        if os.path.exists(source) and not os.path.exists(target):
            os.rename(source, target)


async def _read_tree(store: MessageStore, tree: OldTree) -> None:
    receipts = {sender: tree.receipts(sender) for sender in tree.agents("outbox")}
    messages = tree.messages()
    while batch := list(islice(messages, BATCH)):

        def insert(tx: Transaction, batch: list[_OldMessage] = batch) -> None:
            for old in batch:
                _insert_message(tx, old, receipts.get(old.message.sender, {}))

        await store.write(insert)

    def finish(tx: Transaction) -> None:
        for sender, own in receipts.items():
            _insert_refusals(tx, sender, own)
        for place in ("inbox", "outbox"):
            for agent in tree.agents(place):
                rows.add_agent(tx, agent)
        document = _read(os.path.join(store.path, "state.json"))
        if document:
            state_documents.update(tx, lambda item: item.update(_state_of(document)))
        integrity.recount(tx)
        reading.set_meta(tx, "migrated", "counted")

    await store.write(finish)


def _insert_message(tx: Transaction, old: _OldMessage, receipts: dict[str, Receipt]) -> None:
    entry, message = old.entry, old.message
    is_known = tx.row("SELECT 1 FROM message WHERE recipient = ? AND id = ?", message.recipient, message.id)
    if is_known or tx.row("SELECT 1 FROM message WHERE ord = ?", entry.stem.order):
        return
    key = dedup_key(message)
    if key and tx.row(
        "SELECT 1 FROM message WHERE recipient = ? AND sender = ? AND dedup = ?",
        message.recipient,
        message.sender,
        key,
    ):
        key = None
    place = "inbox" if entry.place == "shipped" else entry.place
    first = receipts.get(f"receipt_{message.id}.json")
    final = receipts.get(f"receipt_{message.id}.{entry.outcome}.json") if entry.outcome else None
    is_settled = place in ("archive", "deadletter")
    ends, until = _lease(tx, entry)
    body = rows.encode(message)
    tx.run(
        _INSERT,
        entry.stem.order,
        message.id,
        message.sender,
        message.recipient,
        RANKS[message.priority],
        place,
        entry.fence,
        ends,
        until,
        entry.returns,
        entry.outcome,
        rows.clean(final.summary) if final is not None else None,
        rows.time_ms(first.processed_at if first is not None else message.created_at),
        (rows.time_ms(final.processed_at) if final is not None else old.changed_ms) if is_settled else None,
        key,
        message.thread,
        rows.time_ms(message.ack_by) if message.ack_by and not is_settled else None,
        int(message.verified),
        int(entry.stem.tail.startswith("file-")),
        len(body) + attached_bytes(message),
        rows.checksum(body),
    )
    insert_body(tx, entry.stem.order, message, body)


def _lease(tx: Transaction, entry: MessageFile) -> tuple[int | None, int | None]:
    """Return when a lease ends; its uptime is not taken over, for the wall clock says the same."""
    if entry.lease is None:
        return None, None
    return tx.clock.lease_ms() + max(0, entry.lease.clock - rows.now_ms(tx)), entry.lease.clock


def _insert_refusals(tx: Transaction, sender: str, receipts: dict[str, Receipt]) -> None:
    """Keep the receipts of files that were refused."""
    for receipt in receipts.values():
        agent = receipt.recipient if isinstance(receipt.recipient, str) else ""
        if receipt.status != "refused" or not agent:
            continue
        dedup = f"receipt {receipt.in_reply_to}"
        if tx.row(
            "SELECT 1 FROM message WHERE recipient = ? AND sender = ? AND dedup = ?", agent, sender, dedup
        ):
            continue
        order, at = rows.next_order(tx), rows.time_ms(receipt.processed_at)
        tx.run(
            _INSERT,
            order,
            f"{rows.FOREIGN}{order:016d}_{receipt.in_reply_to}.json",
            sender,
            agent,
            *(0, "deadletter", 0, None, None, 0, "refused", rows.clean(receipt.error or "")),
            *(at, at, dedup, receipt.in_reply_to, None, 0, 1, 0, b""),
        )


def _state_of(document: bytes) -> state_documents.State:
    try:
        value = msgspec.json.decode(document)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _return_dropped(path: str) -> int:
    """Give files that are no messages to the ordinary import."""
    tree, count = OldTree(path, is_moved=True), 0
    for agent in tree.agents("inbox"):
        new = os.path.join(path, "inbox", agent)
        for name in tree.unsigned(agent):
            os.makedirs(new, 0o700, exist_ok=True)
            lease = f"{TAKEN}old.{name[-200:]}"
            os.rename(os.path.join(tree.folder("inbox", agent), name), os.path.join(new, lease))
            put_back(new, lease, name)
            count += 1
    return count


def _is_own(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return info.st_uid == os.geteuid() and not info.st_mode & 0o077


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path) if not os.path.islink(path) else []
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read()
    except OSError:
        return b""
