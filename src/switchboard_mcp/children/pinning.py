"""Holding a child to its lock: what it may show and serve, given what it was pinned to and what it tells now.

Open mode: the lock answers where nothing else is known yet, and a difference is logged. Governed mode: hosts see what
was pinned and nothing else; what differs is blocked until somebody accepts it, and what is not in the lock does not
exist. Loaded only where there is a lock, or governed mode. How the file looks is `lock`'s affair.
"""

from __future__ import annotations

import os

from msgspec import UNSET, Raw
from msgspec.structs import replace

from switchboard_mcp.children.catalog import ServerSnapshot, read_tools
from switchboard_mcp.children.lock import (
    PROMPTS,
    compare_children,
    find_tampering,
    launch_hash,
    lock_child,
    lock_path,
    prompt_name,
    read_lock,
    snapshot_of,
)
from switchboard_mcp.config.lockfile import LockedChild, LockFile
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.observability.log import Log
from switchboard_mcp.policy.drift import FOR_MODELS, ToolChange

# How many differences an error or a log line tells; `lock --check` tells all.
MAX_SHOWN_CHANGES = 3
LOGGED_CHARS = 200


class Pins:
    """The lock of one workspace. Read anew where somebody is about to be refused and the file is another by now."""

    def __init__(self, lock: LockFile | None, workspace: str, log: Log, *, governed: bool) -> None:
        self._children = lock.children if lock is not None else {}
        self._path = lock_path(workspace)
        self._stamp = _stamp(self._path)
        self.lock_version = 1
        self._workspace = workspace
        self._log = log
        self._governed = governed
        self._logged: dict[
            str, list[ToolChange]
        ] = {}  # what was last told of each child: once, whoever meets it

    def pin_for(self, spec: ChildSpec) -> LockPin | None:
        """What holds for one child; None where nothing does. A wrapper is held to nothing, its original is."""
        entry = self._children.get(spec.name)
        if spec.kind == "builtin" or spec.wraps or (entry is None and not self._governed):
            return None
        pin = LockPin(
            spec, entry, self._path, self._workspace, self._log, self._logged, governed=self._governed
        )
        pin.lock_version = self.lock_version
        return pin

    def is_outdated(self, pin: LockPin) -> bool:
        """Whether there is another lock since the pin was made."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                lock = read_lock(self._path)
            except SwitchboardError as problem:  # perhaps half edited; what was held stays held
                self._log.warning("lock.ignored", problem=problem.failure.message)
            else:
                self._children = lock.children if lock is not None else {}
                self.lock_version += 1
        return pin.lock_version != self.lock_version


class LockPin:
    """What holds for one child. `changes` is what was found different in this run."""

    def __init__(
        self,
        spec: ChildSpec,
        entry: LockedChild | None,
        path: str,
        workspace: str,
        log: Log,
        logged: dict[str, list[ToolChange]],
        *,
        governed: bool,
    ) -> None:
        self.governed = governed
        self.lock_version = 0  # of the lock
        self.changes: list[ToolChange] = []
        self._spec = spec
        self._entry = entry
        self._path = path
        self._workspace = workspace
        self._log = log
        self._logged = logged
        self._snapshot: ServerSnapshot | None = None
        self._checked = False
        self._problem: Failure | None = None
        self._current_names: frozenset[str] | None = None  # names the child told, once it has

    @property
    def snapshot(self) -> ServerSnapshot | None:
        """What the lock knows of the child: as if it had just told it."""
        if self._snapshot is None and self._entry is not None and self._is_current():
            self._snapshot = snapshot_of(self._entry)
        return self._snapshot

    def blocked_reason(self) -> Failure | None:
        """Why the child must not be used at all, or None. Looks closely once, before anything of it is shown."""
        if not self._checked:
            self._checked = True
            self._problem = self._find_problem()
            if self._problem is not None and not self.governed:
                self._log.warning("lock.ignored", child=self._spec.name, problem=self._problem.message)
                self._entry = self._snapshot = None
        return self._problem if self.governed else None

    def prompts(self) -> list[Raw] | None:
        """Governed mode: the pinned prompts that were found as they were pinned; None where nothing is governed.

        Of a child that did not tell its prompts when it was locked, there are none.
        """
        if not self.governed:
            return None
        if self.blocked_reason() is not None or self.snapshot is None:
            return []
        pinned = self.snapshot.lists.get(PROMPTS, [])
        return [
            raw for raw in pinned if not self.changes or not self._changes_of(f"prompt {prompt_name(raw)}")
        ]

    def compare(self, snapshot: ServerSnapshot, *, prompts: bool) -> bool:
        """The child has told what it has, be it with its `prompts`: find what is different. Whether it is news."""
        tools = read_tools(snapshot.tools)
        self._current_names = frozenset(tool.name for tool in tools)
        self.blocked_reason()
        name, self.changes = self._spec.name, []
        if self._entry is not None and self._is_current():
            now = lock_child(self._spec, self._workspace, snapshot)
            self.changes = compare_children(self._entry, now if prompts else replace(now, prompts=UNSET))
        before, self._logged[name] = self._logged.get(name, []), self.changes
        if not self.changes or self.changes == before:
            return False
        self._log.warning(
            "child.drifted",
            child=name,
            changes=[_describe(change) for change in self.changes[:MAX_SHOWN_CHANGES]],
            count=len(self.changes),
            blocked=self.governed,
        )
        return True

    def matches_lock(self, name: str) -> bool:
        """Whether the child has a pinned tool, and has it as it was pinned."""
        return self._current_names is not None and name in self._current_names and not self._changes_of(name)

    def tool_blocked_reason(self, name: str) -> Failure | None:
        """Governed mode: why a tool of the running child must not be used. None where it may, or is not there."""
        if not self.governed or self._current_names is None or name not in self._current_names:
            return None
        return self.blocked_reason() or self._drifted(name, f"subtool '{name}'")

    def prompt_blocked_reason(self, name: str) -> Failure | None:
        """The same for a prompt."""
        return self._drifted(f"prompt {name}", f"prompt '{name}'")

    def _drifted(self, name: str, shown: str) -> Failure | None:
        found = self._changes_of(name)
        if not found:
            return None
        told = "; ".join(change.told(FOR_MODELS) for change in found[:MAX_SHOWN_CHANGES])
        more = f"; and {len(found) - MAX_SHOWN_CHANGES} more" if len(found) > MAX_SHOWN_CHANGES else ""
        child = self._spec.name
        message = f"Child '{child}', {shown} is not what was locked. {told}{more}."
        hint = (
            f"It is blocked. Look at it with `switchboard lock --check {child}`; "
            f"`switchboard lock --accept {child}` takes it as it is now."
        )
        subtool = name if shown.startswith("subtool") else UNSET
        return failure("tool_drifted", message, child=child, subtool=subtool, hint=hint)

    def _changes_of(self, name: str) -> list[ToolChange]:
        """What is held against a tool: its own compare_children, and those of the whole child."""
        return [change for change in self.changes if change.tool in ("", name)]

    def removed_tool_hint(self, name: str) -> str:
        """What to do about a tool that was locked and is gone, or an empty string."""
        if (
            self._entry is None
            or name not in self._entry.tools
            or self._current_names is None
            or name in self._current_names
        ):
            return ""
        child = self._spec.name
        return (
            f"It was there when child '{child}' was locked, and is not any more. Introspect the suite for what is; "
            f"`switchboard lock --accept {child}` takes note."
        )

    def _is_current(self) -> bool:
        """Whether the entry is of the child as it is configured now."""
        return self._entry is not None and self._entry.launch == launch_hash(self._spec, self._workspace)

    def _find_problem(self) -> Failure | None:
        child = self._spec.name
        if self._entry is None:
            told = f"Child '{child}' is not in {self._path}, so that none of its subtools exists."
            return failure("child_not_locked", told, child=child, hint=_lock_hint(child))
        if not self._is_current():
            where = f"{self._spec.source}: {self._spec.key}" if self._spec.key else self._spec.source
            told = (
                f"Child '{child}' is started in another way ({where}) than when it was locked ({self._path})."
            )
            return failure("child_not_locked", told, child=child, hint=_lock_hint(child))
        return find_tampering(self._path, child, self._entry)


def _lock_hint(child: str) -> str:
    return f"Whoever may lock children here runs `switchboard lock {child}`."


def _describe(change: ToolChange) -> str:
    told = change.told(LOGGED_CHARS)
    return f"{change.tool}: {told}" if change.tool else told


def load_pins(workspace: str, log: Log, *, governed: bool) -> Pins | None:
    """The lock of a workspace. One that cannot be read stops governed mode; open mode goes on without."""
    try:
        lock = read_lock(lock_path(workspace))
    except SwitchboardError as problem:
        if governed:
            raise
        log.warning("lock.ignored", problem=problem.failure.message)
        return None
    return Pins(lock, workspace, log, governed=governed) if lock is not None or governed else None


def _stamp(path: str) -> tuple[int, int, int]:
    """Another one for another file."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)
