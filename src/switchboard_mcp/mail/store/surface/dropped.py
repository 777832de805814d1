"""Dropped files: read once, accepted as messages or refused, then taken away."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from hashlib import blake2b

import msgspec
from msgspec import Struct

from switchboard_mcp.config.agent_names import agent_name
from switchboard_mcp.database.machine_clocks import iso_time
from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import Delivery, MailMessage
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.accepting import DeliveryPolicy, OutgoingMessage
from switchboard_mcp.mail.store.filenames import ORDER_DIGITS, is_message_id, printable
from switchboard_mcp.mail.store.message_validation import from_file, has_message_name
from switchboard_mcp.mail.store.signing import MAX_FILE_BYTES
from switchboard_mcp.mail.store.surface.folders import TAKEN, MailFolders, put_back
from switchboard_mcp.mail.store.usage import count_refused

# A file that cannot be parsed may still be being written.
SETTLE_S = 1.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LONGEST_KEPT_NAME = 120


class DroppedFile(Struct, kw_only=True):
    """A file as it was when it was read, and what it is."""

    agent: str
    name: str
    inode: int
    mtime_ns: int
    message: MailMessage | None = None
    problem: Failure | None = None
    sender: str = ""
    claimed_id: str = ""
    """Sender and id that a refused file names, as far as they can be read."""

    @property
    def digest(self) -> str:
        """Return what is the same when the same file is read again, under any name."""
        text = f"{self.agent} {self.inode} {self.mtime_ns}"
        return blake2b(text.encode(), digest_size=8).hexdigest()


def read_dropped(folders: MailFolders, agent: str, name: str) -> DroppedFile | None:
    """Read a file of an inbox; None if it is gone, or may not be complete yet."""
    path = os.path.join(folders.folder("inbox", agent), name)
    try:
        info = os.lstat(path)
    except OSError:
        return None
    try:
        data = _read_regular(path, info)
    except FileNotFoundError:
        return None
    except OSError as problem:
        data = problem.strerror or "it cannot be read"
    file = DroppedFile(agent=agent, name=name, inode=info.st_ino, mtime_ns=info.st_mtime_ns)
    if isinstance(data, str):
        file.problem = _not_a_message(file, data)
        return file
    result = _parse(file, data)
    if isinstance(result, Failure):
        if -SETTLE_S < time.time() - info.st_mtime < SETTLE_S:
            return None
        file.problem = result
        file.sender, file.claimed_id = _claimed_identity(data, name)
    else:
        file.message = result
        file.sender, file.claimed_id = result.sender, result.id
    return file


def _read_regular(path: str, info: os.stat_result) -> bytes | str:
    """Return the content, or why it is not read: opening a pipe or a device may have effects."""
    if not stat.S_ISREG(info.st_mode):
        return "it is not a regular file"
    if info.st_uid != os.geteuid():
        return "it belongs to another user"
    if info.st_nlink != 1:
        return "it is a hard link to a file with other names"
    if info.st_size > MAX_FILE_BYTES:
        return f"it has more than {MAX_FILE_BYTES} bytes"
    with open(os.open(path, _READ), "rb") as file:
        if os.fstat(file.fileno()).st_ino != info.st_ino:
            raise FileNotFoundError(path)
        return file.read(MAX_FILE_BYTES + 1)


def _parse(file: DroppedFile, data: bytes) -> MailMessage | Failure:
    if not file.name.endswith(".json"):
        return _not_a_message(file, "its name does not end in .json")
    # A name of any form makes an id that is the same when the file is read again.
    name = file.name if has_message_name(file.name) else f"msg_file-{file.digest}.json"
    return from_file(data, file.agent, name, iso_time(int(time.time() * 1_000)))


def _not_a_message(file: DroppedFile, reason: str) -> Failure:
    text = f"'{printable(file.name)}' in the inbox of '{file.agent}' is not a message: {reason}."
    return failure("mail_message_invalid", text)


def _claimed_identity(data: bytes, name: str) -> tuple[str, str]:
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    if not isinstance(content, dict):
        return "", ""
    message_id, sender = content.get("id", name.removesuffix(".json")), content.get("sender")
    by = agent_name(sender) if isinstance(sender, str) else None
    return by or "", message_id if isinstance(message_id, str) and is_message_id(message_id) else ""


def importer(
    file: DroppedFile, policy: DeliveryPolicy, write_reason: Callable[[DroppedFile, int], None]
) -> Callable[[Transaction], tuple[Delivery, int]]:
    """Return a job that stores a message or its refusal; the number of a refusal, or 0.

    `write_reason` is called before the refusal is committed.
    """
    outgoing = None if file.message is None else OutgoingMessage(file.message, policy, by_file=True)

    def work(tx: Transaction) -> tuple[Delivery, int]:
        rows.add_agent(tx, file.agent)
        if outgoing is not None:
            try:
                sent = outgoing.store(tx)
                return Delivery(agent=file.agent, file=file.name, id=sent.id, sender=file.sender), 0
            except SwitchboardError as refusal:
                file.problem = refusal.failure
        order = _refuse(tx, file)
        write_reason(file, order)
        shown = printable(file.name)
        delivery = Delivery(
            agent=file.agent,
            file=shown,
            id=file.claimed_id or None,
            sender=file.sender or None,
            problem=file.problem,
        )
        return delivery, order

    return work


def _refuse(tx: Transaction, file: DroppedFile) -> int:
    """Store a refusal once, however often the file is read."""
    earlier = tx.row(
        "SELECT ord FROM message WHERE recipient = ? AND sender = ? AND dedup = ?",
        file.agent,
        file.sender,
        f"file {file.digest}",
    )
    if earlier is not None:
        return int(earlier[0])
    order, now = rows.next_order(tx), rows.now_ms(tx)
    name = foreign_name(order, file.name)
    # A message of this id was accepted, so its receipts say that.
    is_known = not file.claimed_id or rows.find(tx, file.agent, file.claimed_id) is not None
    tx.run(
        "INSERT INTO message (ord, id, sender, recipient, place, outcome, summary, sent_at, settled_at, dedup, thread,"
        " verified, by_file, size, sum) VALUES (?, ?, ?, ?, 'deadletter', 'refused', ?, ?, ?, ?, ?, 0, 1, 0, ?)",
        order,
        name,
        file.sender,
        file.agent,
        rows.clean(file.problem.message if file.problem else ""),
        now,
        now,
        f"file {file.digest}",
        name if is_known else file.claimed_id,
        b"",
    )
    count_refused(tx)
    tx.topics.update((f"outbox.{file.sender}",) if file.sender else ())
    return order


def foreign_name(order: int, name: str) -> str:
    """Return the name of a refused file in `deadletter/`."""
    kept = re.sub(r"[^A-Za-z0-9._-]", "_", name)[-_LONGEST_KEPT_NAME:]
    return f"{rows.FOREIGN}{order:0{ORDER_DIGITS}d}_{kept}"


def take_away(folders: MailFolders, file: DroppedFile) -> None:
    """Remove a file that was accepted, unless its author has replaced it meanwhile: that one is a new file."""
    folder = folders.folder("inbox", file.agent)
    lease = f"{TAKEN}{os.urandom(4).hex()}.{file.name[-200:]}"
    try:
        os.rename(os.path.join(folder, file.name), os.path.join(folder, lease))
        info = os.lstat(os.path.join(folder, lease))
        if (info.st_ino, info.st_mtime_ns) == (file.inode, file.mtime_ns):
            os.unlink(os.path.join(folder, lease))
        else:
            put_back(folder, lease, file.name)
    except OSError:
        pass  # Its author has removed it.


def move_to_dead_letters(folders: MailFolders, file: DroppedFile, order: int) -> None:
    """Move a refused file beside its reason, unless it was replaced."""
    source = os.path.join(folders.folder("inbox", file.agent), file.name)
    target = folders.folder("deadletter", file.agent)
    try:
        os.makedirs(target, 0o700, exist_ok=True)
        info = os.lstat(source)
        if (info.st_ino, info.st_mtime_ns) == (file.inode, file.mtime_ns):
            os.rename(source, os.path.join(target, foreign_name(order, file.name)))
    except OSError:
        pass  # Its author has removed it.
