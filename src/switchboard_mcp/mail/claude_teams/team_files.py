"""Reads and writes Claude Code's team files, under the locks that Claude Code itself uses. Blocking; call in threads.

A lock is a folder beside the file, `<file>.lock`, made to take it and removed to release it; one that is ten seconds
old was left behind. Files are replaced as a whole. Only folders and regular files of this user are touched, and no
links are followed.

A message reaches an inbox exactly once, also if this process is killed: the new content is written beside the inbox
first, then a mark in the workspace, and only then the content takes the place of the inbox. A mark whose content is
gone means that the message is in the inbox, or was read from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from switchboard_mcp.mail.claude_teams import team_entries
from switchboard_mcp.mail.claude_teams.team_entries import ClaudeTeam
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.system.processes import is_running
from switchboard_mcp.system.write_access import other_writers

CONFIG, INBOXES, TEAMS = "config.json", "inboxes", "teams"
MAX_CONFIG_BYTES = 1_048_576
MAX_INBOX_BYTES = 4_194_304
MAX_ROWS = 1_000
# Newest teams that are looked at; Claude Code leaves the folders of sessions that crashed.
MAX_TEAMS = 100
# All folders are looked at for this long after one was made, and then this often.
NEW_TEAM_S, SCAN_S = 60.0, 30.0
# As in Claude Code: a lock that nobody has renewed for this long was left behind.
STALE_S = 10.0
# Claude Code holds a lock for some milliseconds.
LOCK_WAIT_S, LOCK_RETRY_S = 1.0, 0.01
# A lock held longer than this may count as left behind soon, so nothing is written any more.
MAX_HELD_S = STALE_S / 2
# Folder in `.switchboard` with the marks of messages that are being written to an inbox.
MARKS = "claude-teams"
# Messages wait for a lease of half a minute, or for the next start; a mark is needed until they are settled.
OLD_MARK_S = 30 * 86_400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BusyError(Exception):
    """Another program holds the lock, or has taken it; try again later."""


class UnusableFile(Exception):  # noqa: N818 - a reason, which its sender reads
    """A file or folder that is not used; the text says why."""


class _Held(Struct):
    inode: int
    since: float


def teams_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of Claude Code's teams."""
    return os.path.join(environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"), TEAMS)


class TeamFiles:
    """The teams whose lead works in one workspace."""

    def __init__(self, folder: str, workspace: str, store: str) -> None:
        """Initialize. `folder` is that of the teams, `store` the workspace's `.switchboard`."""
        self._folder = folder
        self.workspace = os.path.realpath(workspace)
        self._store = store
        # By folder name: what a stat of the config said, and the team.
        self._known: dict[str, tuple[tuple[int, int], ClaudeTeam | None]] = {}
        self._pid_space = _pid_space()
        self._scanned_at = 0.0

    def teams(self) -> dict[str, ClaudeTeam]:
        """Return the live teams of this workspace, by folder name. Raises `UnusableFile`, OSError."""
        try:
            root = _open_folder(self._folder)
        except FileNotFoundError:
            return {}
        try:
            stats = ((_stat_of(root, name), name) for name in self._candidates(root))
            newest = sorted(((stat, name) for stat, name in stats if stat is not None), reverse=True)
            by_name = {name: self._read_team(root, name, stat) for stat, name in newest[:MAX_TEAMS]}
        finally:
            os.close(root)
        self._known = by_name
        return {name: team for name, (_, team) in by_name.items() if team is not None and self._is_live(team)}

    def _candidates(self, root: int) -> list[str]:
        """Return the folders to look at: all of them if there may be new teams, else those of this workspace."""
        changed, now = os.fstat(root).st_mtime, time.time()
        # A team's config is written some time after its folder was made.
        if abs(now - changed) > NEW_TEAM_S and abs(now - self._scanned_at) < SCAN_S:
            return [name for name, (_, team) in self._known.items() if team is not None]
        self._scanned_at = now
        return file_operations.names(root)

    def _read_team(
        self, root: int, name: str, stat: tuple[int, int]
    ) -> tuple[tuple[int, int], ClaudeTeam | None]:
        before = self._known.get(name)
        if before is not None and before[0] == stat:
            return before
        try:
            folder = _open_folder(name, root)
        except (OSError, UnusableFile):
            return stat, None
        try:
            content = file_operations.read(folder, CONFIG, MAX_CONFIG_BYTES)
        finally:
            os.close(folder)
        if isinstance(content, file_operations.RejectedFile):
            return stat, None
        team = team_entries.parse_team(content.data)
        if team is None:
            # Claude Code writes this file in place, so a part of it may have been read.
            return (0, 0), None if before is None else before[1]
        return stat, team if self._is_here(team) else None

    def _is_here(self, team: ClaudeTeam) -> bool:
        if not os.path.isabs(team.cwd) or "\0" in team.cwd:
            return False
        here = os.path.realpath(team.cwd)
        return here == self.workspace or here.startswith(self.workspace.rstrip(os.sep) + os.sep)

    def _is_live(self, team: ClaudeTeam) -> bool:
        if not team.lead_pid or not self._pid_space or not team.pid_space.endswith(self._pid_space):
            return True
        return is_running(team.lead_pid)

    def list_agents(self, folder: str, agents: list[str]) -> None:
        """Let the member list of a team have exactly these agents of this workspace."""
        with self._team_folder(folder) as team, _locked(team, CONFIG) as lock:
            content = file_operations.read(team, CONFIG, MAX_CONFIG_BYTES)
            if isinstance(content, file_operations.RejectedFile):
                return
            data = team_entries.with_agents(content.data, agents, self.workspace, int(time.time() * 1000))
            if data is not None:
                _write_beside(team, f".{CONFIG}.switchboard", data)
                _publish(team, f".{CONFIG}.switchboard", CONFIG, lock)

    def inbox_stamp(self, team: ClaudeTeam) -> int:
        """Return a number that changes whenever an inbox of a team does; 0 if there are none."""
        try:
            return os.lstat(
                os.path.join(self._folder, team_entries.inbox_name(team.name), INBOXES)
            ).st_mtime_ns
        except OSError:
            return 0

    def read(self, team: ClaudeTeam, member: str) -> list[Any]:
        """Return the rows of an inbox. Raises `UnusableFile`."""
        with self._inboxes(team, make=False) as folder:
            return [] if folder is None else _read_rows(folder, member)

    def remove(self, team: ClaudeTeam, member: str, rows: list[Any]) -> None:
        """Remove rows that were read from an inbox; others that came meanwhile stay."""
        with self._inboxes(team, make=False) as folder:
            if folder is None:
                return
            name = _file(member)
            with _locked(folder, name) as lock:
                now = _read_rows(folder, member)
                for row in rows:
                    with suppress(ValueError):
                        now.remove(row)
                _write_beside(folder, f".{name}.switchboard", team_entries.encode_inbox(now))
                _publish(folder, f".{name}.switchboard", name, lock)

    def append(self, team: ClaudeTeam, member: str, mark: str, row: dict[str, Any]) -> None:
        """Append a row to an inbox, unless the mark says that this was done. Raises `UnusableFile`, `BusyError`."""
        name, beside = _file(member), f".switchboard-{mark}.new"
        with self._inboxes(team, make=True) as folder, self._marks() as marks:
            assert folder is not None
            with _locked(folder, name) as lock:
                if file_operations.exists(marks, mark) and not file_operations.exists(folder, beside):
                    return
                rows = _read_rows(folder, member)
                if len(rows) >= MAX_ROWS:
                    raise UnusableFile(f"its inbox has {len(rows)} unread messages")
                data = team_entries.encode_inbox([*rows, row])
                if len(data) > MAX_INBOX_BYTES:
                    raise UnusableFile(f"its inbox would be larger than {MAX_INBOX_BYTES} bytes")
                _write_beside(folder, beside, data)
                with suppress(FileExistsError):
                    os.close(file_operations.create(marks, mark, b""))
                file_operations.sync(marks)
                _publish(folder, beside, name, lock)

    def forget(self, mark: str) -> None:
        """Remove the mark of a message that is settled."""
        with self._marks() as marks, suppress(FileNotFoundError):
            file_operations.remove(marks, mark)

    def remove_old_marks(self) -> None:
        """Remove the marks that crashed processes have left."""
        with self._marks() as marks:
            for name in file_operations.names(marks):
                if time.time() - (file_operations.mtime(marks, name) or 0.0) > OLD_MARK_S:
                    with suppress(OSError):
                        file_operations.remove(marks, name)

    @contextmanager
    def _marks(self) -> Iterator[int]:
        marks = file_operations.make_and_open_folder(self._store, MARKS)
        try:
            yield marks
        finally:
            os.close(marks)

    @contextmanager
    def _team_folder(self, name: str) -> Iterator[int]:
        try:
            root = _open_folder(self._folder)
            try:
                folder = _open_folder(name, root)
            finally:
                os.close(root)
        except OSError as problem:
            raise UnusableFile(f"the folder of its team cannot be opened: {problem.strerror}") from None
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _inboxes(self, team: ClaudeTeam, *, make: bool) -> Iterator[int | None]:
        with self._team_folder(team_entries.inbox_name(team.name)) as parent:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(INBOXES, 0o700, dir_fd=parent)
            try:
                folder = _open_folder(INBOXES, parent)
            except FileNotFoundError:
                folder = -1
            except OSError as problem:
                raise UnusableFile(f"its folder of inboxes cannot be opened: {problem.strerror}") from None
        try:
            yield folder if folder >= 0 else None
        finally:
            if folder >= 0:
                os.close(folder)


def _open_folder(name: str, parent: int | None = None) -> int:
    """Open a folder of this user that nobody else can change. Raises `UnusableFile`."""
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    info = os.fstat(descriptor)
    problem = other_writers(descriptor, info) if info.st_uid == os.geteuid() else "belongs to another user"
    if problem:
        os.close(descriptor)
        raise UnusableFile(f"the folder '{os.path.basename(name)}' {problem}")
    return descriptor


def _file(member: str) -> str:
    return f"{team_entries.inbox_name(member)}.json"


def _stat_of(root: int, name: str) -> tuple[int, int] | None:
    """Return the time and inode of a team's config; None if there is none."""
    try:
        info = os.stat(os.path.join(name, CONFIG), dir_fd=root, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return info.st_mtime_ns, info.st_ino


def _read_rows(folder: int, member: str) -> list[Any]:
    content = file_operations.read_unshared(folder, _file(member), MAX_INBOX_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        if content.gone:
            return []
        raise UnusableFile(f"its inbox is not used: {content.reason}")
    rows = team_entries.decode_inbox(content.data)
    if rows is None:
        raise UnusableFile("its inbox is not a JSON list")
    return rows


def _write_beside(folder: int, name: str, data: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    descriptor = file_operations.create(folder, name, data)
    try:
        file_operations.sync(descriptor)
    finally:
        os.close(descriptor)


def _publish(folder: int, beside: str, name: str, lock: _Held) -> None:
    """Put new content in the place of a file, if its lock is still ours."""
    kept = file_operations.inode(folder, f"{name}.lock") == lock.inode
    if not kept or time.monotonic() - lock.since > MAX_HELD_S:
        raise BusyError  # The new content stays, which shows that it was not published.
    file_operations.replace(folder, beside, folder, name)
    file_operations.sync(folder)


@contextmanager
def _locked(folder: int, name: str) -> Iterator[_Held]:
    lock = f"{name}.lock"
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            os.mkdir(lock, 0o700, dir_fd=folder)
            break
        except FileExistsError:
            if time.monotonic() >= until:
                raise BusyError from None
            locked_at = file_operations.mtime(folder, lock)
            if locked_at is not None and time.time() - locked_at > STALE_S:
                with suppress(OSError):
                    os.rmdir(lock, dir_fd=folder)
            time.sleep(LOCK_RETRY_S)
    held = _Held(file_operations.inode(folder, lock), time.monotonic())
    try:
        yield held
    finally:
        if file_operations.inode(folder, lock) == held.inode:
            with suppress(OSError):
                os.rmdir(lock, dir_fd=folder)


def _pid_space() -> str:
    """Return the end of Claude Code's name for the space in which process ids are ours; empty if it is unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
