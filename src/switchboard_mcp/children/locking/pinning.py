"""Compares a running child with its lock and decides what it may show and serve.

Open mode: the lock serves as a snapshot until the child has run, and differences are logged. Governed mode: hosts see
only what was locked; what differs is blocked until it is accepted, and what is not in the lock does not exist. Loaded
only if there is a lock, or in governed mode. The file format is in `lock_file`.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from switchboard_mcp.children.catalog import ServerSnapshot, read_tools
from switchboard_mcp.children.locking.lock_file import (
    LISTS,
    compare_children,
    find_tampering,
    launch_hash,
    lock_child,
    lock_path,
    read_lock,
    snapshot_of,
)
from switchboard_mcp.config.files.lock_models import LockedChild, LockFile
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import SandboxSettings
from switchboard_mcp.errors import Failure, SwitchboardError, failure, shell_word
from switchboard_mcp.observability.log import Log
from switchboard_mcp.policy import tool_hash
from switchboard_mcp.policy.drift import FOR_MODELS, ToolChange

# How many differences an error or a log line shows; `lock --check` shows all.
MAX_SHOWN_CHANGES = 3
LOGGED_CHARS = 200


class Pins:
    """The lock of one workspace. Re-read if the file has changed before a call is refused."""

    def __init__(self, lock: LockFile | None, workspace: str, log: Log, *, governed: bool) -> None:
        self._children = lock.children if lock is not None else {}
        self._programs = _programs(lock)
        self._path = lock_path(workspace)
        self._stamp = _stamp(self._path)
        self.lock_version = 1
        self._workspace = workspace
        self._log = log
        self._governed = governed
        self._logged: dict[
            str, list[ToolChange]
        ] = {}  # the changes last logged per child, so each is logged once

    def program_hash(self, name: str) -> str:
        """Return the locked checksum of a kept program, from the file as it is now; empty if it has none."""
        try:
            self._programs = _programs(read_lock(self._path))
        except SwitchboardError as problem:  # perhaps half edited: keep the last valid lock
            self._log.warning("lock.ignored", problem=problem.failure.message)
        return self._programs.get(name, "")

    def pin_for(self, spec: ChildSpec, sandbox: SandboxSettings | UnsetType = UNSET) -> LockPin | None:
        """Return the pin of one child, or None if it has none. A wrapper has none: its original has one.

        Nor has a child of the user workspace: the lock is of this workspace.
        """
        entry = self._children.get(spec.name)
        if (
            spec.kind == "builtin"
            or spec.wraps
            or spec.scope == "user"
            or (entry is None and not self._governed)
        ):
            return None
        pin = LockPin(
            spec,
            sandbox,
            entry,
            self._path,
            self._workspace,
            self._log,
            self._logged,
            governed=self._governed,
        )
        pin.lock_version = self.lock_version
        return pin

    def result_schema(self, child: str, subtool: str) -> object:
        """Return the locked type of a subtool's result, or None; None in open mode."""
        if not self._governed:
            return None
        self._refresh()
        entry = self._children.get(child)
        return (entry.results or {}).get(subtool) if entry is not None else None

    def is_outdated(self, pin: LockPin) -> bool:
        """Return True if the lock file has changed since the pin was made."""
        self._refresh()
        return pin.lock_version != self.lock_version

    def _refresh(self) -> None:
        """Read the lock again if the file has changed."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                lock = read_lock(self._path)
            except SwitchboardError as problem:  # perhaps half edited: keep the last valid lock
                self._log.warning("lock.ignored", problem=problem.failure.message)
            else:
                self._children = lock.children if lock is not None else {}
                self._programs = _programs(lock)
                self.lock_version += 1


class LockPin:
    """The lock entry of one child. `changes` are its differences from the running child."""

    def __init__(
        self,
        spec: ChildSpec,
        sandbox: SandboxSettings | UnsetType,
        entry: LockedChild | None,
        path: str,
        workspace: str,
        log: Log,
        logged: dict[str, list[ToolChange]],
        *,
        governed: bool,
    ) -> None:
        self.governed = governed
        self.lock_version = 0  # of the lock file
        self.changes: list[ToolChange] = []
        self._changes_by_tool: dict[str, list[ToolChange]] = {}
        self._spec = spec
        self._sandbox = sandbox
        self._entry = entry
        self._path = path
        self._workspace = workspace
        self._log = log
        self._logged = logged
        self._snapshot: ServerSnapshot | None = None
        self._checked = False
        self._problem: Failure | None = None
        self._current_names: frozenset[str] | None = None  # tool names of the running child, once known
        self._normalized: tuple[list[list[Raw] | None], LockedChild] | None = None

    @property
    def start_limit_s(self) -> float:
        """The approved limit of a start; 0 if it is that of the health gate."""
        return (self._entry.start_limit_ms or 0) / 1000 if self._entry is not None else 0.0

    @property
    def snapshot(self) -> ServerSnapshot | None:
        """The snapshot that the lock describes."""
        if self._snapshot is None and self._entry is not None and self._is_current():
            self._snapshot = snapshot_of(self._entry)
        return self._snapshot

    def blocked_reason(self) -> Failure | None:
        """Return the failure if the whole child must not be used, or None. Checked once, before anything is shown."""
        if not self._checked:
            self._checked = True
            self._problem = self._find_problem()
            if self._problem is not None and not self.governed:
                self._log.warning("lock.ignored", child=self._spec.name, problem=self._problem.message)
                self._entry = self._snapshot = None
        return self._problem if self.governed else None

    def listed(self, method: str) -> list[Raw] | None:
        """Return the locked prompts or resources that have not changed; None in open mode.

        A child that had not listed them when it was locked has none.
        """
        if not self.governed:
            return None
        if self.blocked_reason() is not None or self.snapshot is None:
            return []
        pinned, kind = self.snapshot.lists.get(method, []), LISTS[method]
        return [
            raw
            for raw in pinned
            if not self.changes or not self._changes_of(f"{kind.noun} {kind.name_of(raw)}")
        ]

    def normalize(self, snapshot: ServerSnapshot) -> LockedChild:
        """Return the lock entry for a snapshot, computed once for the same lists. It may run in a thread."""
        lists = [snapshot.tools, *(snapshot.lists.get(method) for method in LISTS)]
        cached = self._normalized
        if cached is None or any(now is not then for now, then in zip(lists, cached[0], strict=True)):
            cached = self._normalized = (
                lists,
                lock_child(self._spec, self._workspace, snapshot, self._sandbox),
            )
        return cached[1]

    def reuse_normal_form(self, outdated: LockPin) -> None:
        """Take over the normal form that an outdated pin of the same child has computed."""
        self._normalized = outdated._normalized

    def compare(self, snapshot: ServerSnapshot, fetched: Collection[str]) -> bool:
        """Compare the running child with its lock, including the `fetched` lists. Return True for new changes."""
        tools = read_tools(snapshot.tools)
        self._current_names = frozenset(tool.name for tool in tools)
        self.blocked_reason()
        name, self.changes = self._spec.name, []
        if self._entry is not None and self._is_current():
            now = self.normalize(snapshot)
            unknown = {kind.member: UNSET for method, kind in LISTS.items() if method not in fetched}
            self.changes = compare_children(self._entry, replace(now, **unknown))
        self._changes_by_tool = {}
        for change in self.changes:
            self._changes_by_tool.setdefault(change.tool, []).append(change)
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
        """Return True if the running child has the tool exactly as locked."""
        return self._current_names is not None and name in self._current_names and not self._changes_of(name)

    def tool_blocked_reason(self, name: str) -> Failure | None:
        """Return the failure for a tool that is unlocked or differs from its lock. None in open mode."""
        if not self.governed or self._current_names is None or name not in self._current_names:
            return None
        return self.blocked_reason() or self._drifted(name, f"subtool '{name}'")

    def entry_blocked_reason(self, method: str, name: str) -> Failure | None:
        """Return the failure for a prompt or resource that differs from its lock, or None."""
        noun = LISTS[method].noun
        return self._drifted(f"{noun} {name}", f"{noun} '{name}'")

    def page_blocked_reason(self, uri: str, record: Raw | None) -> Failure | None:
        """Return the failure for a page of an app whose `record` differs from its lock, or None."""
        entry = self._entry
        locked = entry.pages.get(uri) if entry is not None and isinstance(entry.pages, dict) else None
        child = self._spec.name
        if locked is None:
            message = f"Child '{child}', page '{uri}' is not in the lock."
            return failure("child_not_locked", message, child=child, hint=_lock_hint(child))
        members = tool_hash.normalize(record, tool_hash.PAGE_MEMBERS) if record is not None else {}
        if tool_hash.digest(uri, members) == locked.hash:
            return None
        message = f"Child '{child}', page '{uri}' differs from its lock."
        return failure("tool_drifted", message, child=child, hint=_drift_hint(child))

    def _drifted(self, name: str, shown: str) -> Failure | None:
        changes = self._changes_of(name)
        if not changes:
            return None
        shown_changes = "; ".join(change.describe(FOR_MODELS) for change in changes[:MAX_SHOWN_CHANGES])
        more = f"; and {len(changes) - MAX_SHOWN_CHANGES} more" if len(changes) > MAX_SHOWN_CHANGES else ""
        child = self._spec.name
        message = f"Child '{child}', {shown} differs from its lock. {shown_changes}{more}."
        subtool = name if shown.startswith("subtool") else UNSET
        return failure("tool_drifted", message, child=child, subtool=subtool, hint=_drift_hint(child))

    def _changes_of(self, name: str) -> list[ToolChange]:
        """Return the changes of a tool, and those of the whole child."""
        by_tool = self._changes_by_tool
        return [*by_tool.get("", ()), *by_tool.get(name, ())]

    def removed_tool_hint(self, name: str) -> str:
        """Return a hint for a tool that was locked and has been removed, or an empty string."""
        if (
            self._entry is None
            or name not in self._entry.tools
            or self._current_names is None
            or name in self._current_names
        ):
            return ""
        child = self._spec.name
        return (
            f"Child '{child}' had it when it was locked, but has removed it. Introspect the suite for what there is; "
            f"`switchboard lock --accept {shell_word(child)}` updates the lock."
        )

    def _is_current(self) -> bool:
        """Return True if the child is still started as when it was locked."""
        return self._entry is not None and self._entry.launch == launch_hash(self._spec, self._workspace)

    def _find_problem(self) -> Failure | None:
        child = self._spec.name
        if self._entry is None:
            message = f"Child '{child}' is not in {self._path}, so it has no subtools."
            return failure("child_not_locked", message, child=child, hint=_lock_hint(child))
        if not self._is_current():
            where = f"{self._spec.source}: {self._spec.key}" if self._spec.key else self._spec.source
            message = (
                f"Child '{child}' is started differently ({where}) than when it was locked ({self._path})."
            )
            return failure("child_not_locked", message, child=child, hint=_lock_hint(child))
        return find_tampering(self._path, child, self._entry)


def _lock_hint(child: str) -> str:
    return f"A person who may lock children runs `switchboard lock {shell_word(child)}`."


def _drift_hint(child: str) -> str:
    return (
        f"It is blocked. Review it with `switchboard lock --check {shell_word(child)}`; "
        f"`switchboard lock --accept {shell_word(child)}` accepts it as it is now."
    )


def _describe(change: ToolChange) -> str:
    text = change.describe(LOGGED_CHARS)
    return f"{change.tool}: {text}" if change.tool else text


def load_pins(workspace: str, log: Log, *, governed: bool) -> Pins | None:
    """Load the lock of a workspace. Governed mode fails if it cannot be read; open mode continues without."""
    try:
        lock = read_lock(lock_path(workspace))
    except SwitchboardError as problem:
        if governed:
            raise
        log.warning("lock.ignored", problem=problem.failure.message)
        return None
    return Pins(lock, workspace, log, governed=governed) if lock is not None or governed else None


def _programs(lock: LockFile | None) -> dict[str, str]:
    return dict(lock.programs or {}) if lock is not None else {}


def _stamp(path: str) -> tuple[int, int, int]:
    """Return a stamp that changes with the file."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)
