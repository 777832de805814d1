"""Files of messages in the folders of agents: shown, taken, exported. Every name may be gone at any moment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from switchboard_mcp.config.agent_names import agent_name, is_agent_name
from switchboard_mcp.mail.store.filenames import MESSAGE_ID, ORDER_DIGITS

_NAME = re.compile(rf"msg_(\d{{{ORDER_DIGITS}}})_([A-Za-z0-9_-]{{1,110}})\.json")
_RECEIPT = re.compile(rf"receipt_{MESSAGE_ID}(?:\.[a-z]+)?\.json")
_SETTLED = re.compile(r"msg_\d{16}_[A-Za-z0-9_-]{1,110}\.\d{16}\.[a-z]+\.json")
AGENT_FOLDERS = ("inbox", "claimed", "archive", "deadletter", "outbox")
TEMPORARY = "tmp"
TAKEN = ".taken."
# Files that are in no agent's folder.
UNADDRESSED = "unaddressed"
# Files that a folder of receipts or of settled messages shows.
SHOWN = 100
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class MailFolders:
    """The folders below `.switchboard`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = 0
        self._mark = os.urandom(5).hex()

    def folder(self, place: str, agent: str = "") -> str:
        """Return the path of a folder."""
        return os.path.join(self.path, place, agent) if agent else os.path.join(self.path, place)

    def make(self, agent: str = "") -> None:
        """Create the folders of an agent, or those of all."""
        for place in (
            (*AGENT_FOLDERS, "reviews", TEMPORARY, "locks") if not agent else ("inbox", "outbox", "archive")
        ):
            os.makedirs(self.folder(place, agent), 0o700, exist_ok=True)

    def names(self, place: str, agent: str) -> list[str]:
        """List a folder; empty if it is missing, or is not a folder of ours."""
        path = self.folder(place, agent)
        try:
            info = os.lstat(path)
            if not os.path.isdir(path) or os.path.islink(path) or info.st_uid != os.geteuid():
                return []
            return os.listdir(path)
        except OSError:
            return []

    def collect_misplaced(self) -> None:
        """Move what was dropped under a name as people write it, such as `inbox/Coder 1/`, to the inbox of the agent.

        A name that stands for no agent belongs to `unaddressed`, where each file is refused.
        """
        for name in self.names("inbox", ""):
            if is_agent_name(name) or name.startswith("."):
                continue
            path = self.folder("inbox", name)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            agent = (agent_name(name) if is_folder else None) or UNADDRESSED
            self.make(agent)
            files = os.listdir(path) if is_folder else [name]
            source = path if is_folder else self.folder("inbox")
            for file in files:
                kept = f"{name}.{file}"[-200:] if agent == UNADDRESSED and is_folder else file
                put_back(source, file, kept, self.folder("inbox", agent))
                if agent == UNADDRESSED:
                    # Refused at once: its content does not matter.
                    _make_old(os.path.join(self.folder("inbox", agent), kept))
            if is_folder:
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # A new file, or one that cannot be moved.

    def agents(self) -> list[str]:
        """List the names of agents that have a folder."""
        return [name for name in self.names("inbox", "") if is_agent_name(name) and self._is_folder(name)]

    def _is_folder(self, name: str) -> bool:
        path = self.folder("inbox", name)
        return os.path.isdir(path) and not os.path.islink(path)

    def write_draft(self, data: bytes) -> str:
        """Write a file that is to be renamed to where it is seen."""
        self._count += 1
        path = os.path.join(self.folder(TEMPORARY), f"{self._mark}.{self._count}")
        with open(os.open(path, _NEW, 0o600), "wb") as file:
            file.write(data)
        return path

    def publish(self, place: str, agent: str, name: str, data: bytes) -> None:
        """Write a file that readers see whole; it is not synced, for the database can write it again."""
        folder = self.folder(place, agent)
        os.makedirs(folder, 0o700, exist_ok=True)
        os.rename(self.write_draft(data), os.path.join(folder, name))

    def has(self, place: str, agent: str, name: str) -> bool:
        """Return True if this name exists."""
        return os.path.lexists(os.path.join(self.folder(place, agent), name))

    def show(self, draft: str, agent: str, name: str) -> bool:
        """Show a waiting message, whose row is locked, unless its reader or a claimer has it."""
        if self.has("archive", agent, name) or self.has("claimed", agent, name):
            return False
        try:
            os.rename(draft, os.path.join(self.folder("inbox", agent), name))
        except OSError:
            return False  # The folder was removed; the next pass makes it.
        return True

    def take(self, agent: str, name: str) -> bool:
        """Move a shown message to `claimed/` for its claimer; False if its reader has moved it to the archive."""
        source, target = (os.path.join(self.folder(place, agent), name) for place in ("inbox", "claimed"))
        for _ in range(2):
            try:
                os.rename(source, target)
                return True
            except FileNotFoundError:
                if not os.path.lexists(source):
                    return not self.has("archive", agent, name)
                os.makedirs(self.folder("claimed", agent), 0o700, exist_ok=True)
            except OSError:
                break  # The folders cannot be changed; the next pass removes the file.
        return True

    def remove(self, place: str, agent: str, name: str) -> None:
        """Remove a file that may be gone."""
        try:
            os.unlink(os.path.join(self.folder(place, agent), name))
        except OSError:
            pass

    def remove_drafts(self) -> None:
        """Remove what processes that have ended were writing."""
        for name in self.names(TEMPORARY, ""):
            if not name.startswith(self._mark):
                self.remove(TEMPORARY, "", name)

    def return_taken(self, agent: str) -> None:
        """Give dropped files that were being taken away their names back; importing them again is harmless."""
        for name in self.names("inbox", agent):
            if name.startswith(TAKEN):
                put_back(self.folder("inbox", agent), name, name[len(TAKEN) :].partition(".")[2])

    def trim(self, place: str, agent: str) -> None:
        """Remove the oldest exports of a folder; what an agent has put there itself stays."""
        pattern = _RECEIPT if place == "outbox" else _SETTLED
        folder = self.folder(place, agent)
        exports = [name for name in self.names(place, agent) if pattern.fullmatch(name)]
        if len(exports) > SHOWN:
            exports.sort(key=lambda name: _changed(folder, name))
            for name in exports[:-SHOWN]:
                self.remove(place, agent, name)


def put_back(folder: str, name: str, original: str, into: str = "") -> None:
    """Give a file another name, in this folder or another one, never over another file."""
    into = into or folder
    target = os.path.join(into, original or f"{os.urandom(8).hex()}.json")
    for path in (target, os.path.join(into, f"{os.urandom(8).hex()}.json")):
        try:
            os.link(os.path.join(folder, name), path, follow_symlinks=False)
        except FileExistsError:
            continue
        except OSError:
            return
        break
    os.unlink(os.path.join(folder, name))


def orders_of(names: Iterable[str]) -> dict[int, str]:
    """Return the orders in names that have the form of shown messages."""
    matches = {name: _NAME.fullmatch(name) for name in names}
    return {int(match[1]): name for name, match in matches.items() if match is not None}


def settled_name(shown: str, fence: int, outcome: str) -> str:
    """Return the name of a settled message in `archive/` or `deadletter/`.

    >>> settled_name("msg_0000000000000007_ab.json", 9, "done")
    'msg_0000000000000007_ab.0000000000000009.done.json'
    """
    return f"{shown.removesuffix('.json')}.{fence:0{ORDER_DIGITS}d}.{outcome}.json"


def _make_old(path: str) -> None:
    try:
        os.utime(path, (0, 0), follow_symlinks=False)
    except OSError:
        pass  # It is gone.


def _changed(folder: str, name: str) -> float:
    try:
        return os.lstat(os.path.join(folder, name)).st_mtime
    except OSError:
        return 0.0
