"""Attachments: files by their hash beside the database, and rows too where several machines share it."""

from __future__ import annotations

import os
from hashlib import sha256

from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import MAX_ATTACHMENT_BYTES, MailMessage
from switchboard_mcp.mail.store.accepting import Attachment
from switchboard_mcp.system.atomic_write import sync_folder, write_atomically

PIECE_BYTES = 1_048_576
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_file(folder: str, attachment: Attachment) -> None:
    """Write an attachment durably, before the message that names it."""
    os.makedirs(folder, 0o700, exist_ok=True)
    write_atomically(os.path.join(folder, attachment.name), attachment.data)
    sync_folder(folder)


def store_rows(tx: Transaction, attachment: Attachment) -> None:
    """Store an attachment for other machines, which cannot read our files."""
    if tx.dialect != "postgresql":
        return
    for number, first in enumerate(range(0, len(attachment.data) or 1, PIECE_BYTES)):
        tx.run(
            "INSERT INTO attachment (sha, piece, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            str(attachment.record["sha256"]),
            number,
            attachment.data[first : first + PIECE_BYTES],
        )


def read(tx: Transaction, folder: str, message: MailMessage) -> bytes:
    """Return the attachment of a message after checking its hash; without one, its payload."""
    record = message.metadata.get("attachment")
    if not isinstance(record, dict):
        return message.payload.encode()
    digest = str(record.get("sha256"))
    if len(digest) != 64 or not digest.isalnum():
        raise refused("mail_not_found", f"Message '{message.id}' has an invalid attachment hash.")
    data = _read_file(os.path.join(folder, f"{digest}{'.bin' if 'name' in record else '.txt'}"))
    if data is None and tx.dialect == "postgresql":
        data = b"".join(
            row[0] for row in tx.rows("SELECT data FROM attachment WHERE sha = ? ORDER BY piece", digest)
        )
    if data is None or sha256(data).hexdigest() != digest:
        reason = "it is gone" if data is None else "its content was changed"
        raise refused("mail_not_found", f"The attachment of '{message.id}' is not available: {reason}.")
    return data


def _read_file(path: str) -> bytes | None:
    try:
        with open(os.open(path, _READ), "rb") as file:
            return file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError:
        return None


def remove_unused(tx: Transaction, folder: str, before_s: float) -> int:
    """Remove old attachments that no message names any more; returns how many files."""
    if tx.dialect == "postgresql":
        tx.run(
            "DELETE FROM attachment WHERE NOT EXISTS (SELECT 1 FROM attached WHERE attached.sha = attachment.sha)"
        )
    try:
        names = os.listdir(folder)
    except OSError:
        return 0
    count = 0
    for name in names:
        path = os.path.join(folder, name)
        if tx.row("SELECT 1 FROM attached WHERE sha = ? LIMIT 1", name.partition(".")[0]) is None:
            try:
                if os.lstat(path).st_mtime < before_s:
                    os.unlink(path)
                    count += 1
            except OSError:
                pass  # Removed by another process.
    return count
