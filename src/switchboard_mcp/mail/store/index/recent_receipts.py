"""The newest receipts of a sender that has very many, without listing its outbox.

Two text files in `.switchboard/index/` have message ids, oldest first: one that was written from a listing, and one to
which every new receipt is appended before it is published. They exist only for an outbox that was listed and found to
be large, may be deleted at any time, and are not used after a reboot, since they are never synced.
"""

from __future__ import annotations

import os

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.filenames import is_message_id
from switchboard_mcp.mail.store.index.inbox_index import FOLDER

# Ids that are kept when an outbox was listed.
KEPT = 1_400
# The appended file takes the place of the other one when it is larger than this.
MAX_BYTES = 65_536


class RecentReceipts:
    """The files of one sender."""

    def __init__(self, path: str, boot: str, sender: str) -> None:
        self._folder = os.path.join(path, FOLDER)
        self._prefix = f"{sender}.receipts."
        self._listed = os.path.join(self._folder, self._prefix + boot)
        self._appended = f"{self._listed}.new"

    def open(self) -> int:
        """Return a descriptor to append to; -1 if this outbox is listed."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._appended, flags)
        except OSError:
            pass
        try:
            # Another process has just moved it to the place of the other.
            return os.open(self._appended, flags | os.O_CREAT, 0o600) if os.path.exists(self._listed) else -1
        except OSError:
            return -1

    def append(self, descriptor: int, message_id: str) -> None:
        """Note a message that is about to get a receipt."""
        try:
            file_operations.append(descriptor, f"{message_id}\n".encode())
            if os.fstat(descriptor).st_size > MAX_BYTES:
                # What is appended meanwhile goes to the same file, or to a new one.
                os.rename(self._appended, self._listed)
        except OSError:
            self.discard()  # The disk is full: the outbox is listed again.

    def newest(self, limit: int) -> list[str] | None:
        """Return the ids of at least so many messages, those with the newest receipts first; None if unknown."""
        try:
            lines = _lines(self._listed)
        except OSError:
            return None
        try:
            lines += _lines(self._appended)
        except OSError:
            pass  # It has just taken the place of the other.
        ids = [each for each in dict.fromkeys(reversed(lines)) if is_message_id(each)]
        return ids if len(ids) >= limit else None

    def exists(self) -> bool:
        """Return True if an outbox was listed since the machine was started."""
        return os.path.exists(self._listed)

    def begin(self) -> None:
        """Begin to note receipts, before the outbox is listed."""
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(self._appended, flags, 0o600))
        except OSError:
            return

    def write(self, ids: list[str]) -> None:
        """Write the ids that a listing has found, newest first; removes the files of earlier boots."""
        temporary = f"{self._listed}.{os.getpid()}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600)
            try:
                file_operations.append(
                    descriptor, "".join(f"{each}\n" for each in reversed(ids[:KEPT])).encode()
                )
            finally:
                os.close(descriptor)
            os.rename(temporary, self._listed)
            current = (self._listed, self._appended)
            for name in os.listdir(self._folder):
                path = os.path.join(self._folder, name)
                if name.startswith(self._prefix) and path not in current:
                    os.unlink(path)
        except OSError:
            self.discard()

    def discard(self) -> None:
        """Remove the files; the outbox is listed from now on."""
        for path in (self._listed, self._appended):
            try:
                os.unlink(path)
            except OSError:
                continue


def _lines(path: str) -> list[str]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(2 * MAX_BYTES).decode("ascii", "replace").split("\n")
