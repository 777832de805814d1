"""Reverts what `init` has done.

A file that is unchanged since then gets its old bytes back. A file that was edited since keeps those edits: our entry
is removed, and the moved entries are put back as they were written. Only files in the journal are touched, and of those
only such as `init` changes: never mail, state or archives.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from switchboard_mcp.config.files.secrets_file import SECRETS_FILE
from switchboard_mcp.config.load import JSON_NAME, TOML_NAME
from switchboard_mcp.setup.child_entries import FILE, FOLDER, PERSONAL, TEAM
from switchboard_mcp.setup.edit import formats, jsonc_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.hosts import HOSTS
from switchboard_mcp.setup.journal import (
    TEMP_SUFFIX,
    JournalEntry,
    JournalRun,
    digest,
    read,
    remove,
    require_real_folders,
    require_writable,
    write,
)
from switchboard_mcp.setup.paths import HostPaths, candidate_paths

# restored: old bytes written back; merged: later edits kept; removed: a file that we created is deleted;
# nothing: already as it was; kept: edited since, and left alone.
Verdict = Literal["restored", "merged", "removed", "nothing", "kept"]


class RevertStep(Struct, kw_only=True):
    """The decision for one file. `data` is its new content; `remarks` are notes for the user."""

    run: JournalRun
    record: JournalEntry
    verdict: Verdict
    data: bytes | None = None
    remarks: list[str] = []
    # The folder of the workspace, as the journal and as the user spells it.
    workspaces: list[str] = []


def revertible(runs: Sequence[JournalRun]) -> list[JournalRun]:
    """Return the runs that can be reverted, newest first."""
    left = [run for run in runs if run.journal.state != "reverted"]
    return sorted(left, key=lambda run: (run.written_ns, run.folder), reverse=True)


def interrupted(runs: Sequence[JournalRun]) -> list[JournalRun]:
    """Return the runs that were interrupted, newest first."""
    return [run for run in revertible(runs) if run.journal.state == "begun"]


def plan_revert(runs: Sequence[JournalRun], here: HostPaths, folders: Sequence[str] = ()) -> list[RevertStep]:
    """Decide how to revert these runs, newest first. Reads files, writes nothing.

    `folders` are workspaces as the user spells them. Those of a run need not exist any more.
    """
    steps: list[RevertStep] = []
    now: dict[str, bytes | None] = {}
    for run in runs:
        own = run.journal.workspace
        matching = (
            workspace for workspace in (here.workspace, *folders) if os.path.realpath(workspace) == own
        )
        workspaces = list(dict.fromkeys((own, *matching)))
        for record in reversed(run.journal.records):
            path = record.path
            if not any(_is_touchable(path, run, here.at(workspace)) for workspace in workspaces):
                remark = "it is not a file that `init` changes here, and is left alone"
                steps.append(RevertStep(run=run, record=record, verdict="kept", remarks=[remark]))
                continue
            current = now[path] if path in now else read(path)
            step = _step(run, record, current)
            step.workspaces = workspaces
            now[path] = current if step.verdict in ("nothing", "kept") else step.data
            steps.append(step)
    return steps


def _step(run: JournalRun, record: JournalEntry, current: bytes | None) -> RevertStep:
    state = digest(current)
    if state == record.before:
        return RevertStep(run=run, record=record, verdict="nothing", data=current)
    existed = bool(record.before)
    if state == record.after:
        data = run.backup(record) if existed else None
        return RevertStep(run=run, record=record, verdict="restored" if existed else "removed", data=data)
    if current is None:
        copy = os.path.join(run.folder, record.backup)
        remark = (
            f"it was deleted, and is not restored; its copy is {copy}" if existed else "it is already deleted"
        )
        return RevertStep(run=run, record=record, verdict="kept" if existed else "nothing", remarks=[remark])
    if not record.edits:
        return RevertStep(
            run=run, record=record, verdict="kept", data=current, remarks=["it was edited since"]
        )
    return _merge(run, record, current)


def _merge(run: JournalRun, record: JournalEntry, current: bytes) -> RevertStep:
    """Revert only our own changes in a file that was edited since."""
    remarks = ["it was edited since; only the moved entries are put back"]
    try:
        text = formats.decode(current)
        before = formats.decode(run.backup(record)) if record.before else ""
        for edit in record.edits:
            there = formats.read_servers(text, edit.form, edit.key)
            again = [name for name in edit.names if name in there]
            remarks += [f"'{name}' exists again, and is left alone" for name in again]
            back = formats.server_texts(before, edit.form, edit.key, edit.names) if before else {}
            gone = [edit.entry] if edit.entry else []
            text = formats.restore_servers(text, edit.form, edit.key, gone, back)
            if edit.entry and edit.form == "json" and before:
                text = _remove_from_allowlists(text, before, edit.entry)
    except UnsafeEditError as problem:
        copy = os.path.join(run.folder, record.backup)
        remark = f"it was edited since, and {problem} Restore what you need from {copy} by hand"
        return RevertStep(run=run, record=record, verdict="kept", data=current, remarks=[remark])
    return RevertStep(run=run, record=record, verdict="merged", data=text.encode(), remarks=remarks)


def _remove_from_allowlists(text: str, before: str, entry: str) -> str:
    for key in {host.allowlist for host in HOSTS if host.allowlist}:
        listed = jsonc_edit.read(before, key)
        if isinstance(listed, list) and entry not in listed:
            text = jsonc_edit.remove_item(text, key, entry)
    return text


def _is_touchable(path: str, run: JournalRun, here: HostPaths) -> bool:
    """Return True if `init` could have changed this file: one of the workspace, of a host, or one that was named."""
    if path != os.path.normpath(path) or not os.path.isabs(path):
        return False
    if path in run.journal.named:
        return True
    workspaces = {here.workspace, os.path.realpath(here.workspace)}
    own = (
        JSON_NAME,
        TOML_NAME,
        "switchboard.config.schema.json",
        SECRETS_FILE,
        os.path.join(FOLDER, ".gitignore"),
    )
    if any(path == os.path.join(workspace, name) for workspace in workspaces for name in own):
        return True
    patterns = [
        os.path.join(workspace, home.folder, "*", FILE)
        for workspace in workspaces
        for home in (PERSONAL, TEAM)
    ]
    for host in HOSTS:
        for location in host.locations:
            for candidate in candidate_paths(location, here):
                patterns += [candidate, os.path.realpath(candidate)]
    return any(_matches(path, pattern) for pattern in patterns)


def _matches(path: str, pattern: str) -> bool:
    parts, wanted = path.split(os.sep), pattern.split(os.sep)
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def perform_revert(steps: Sequence[RevertStep]) -> None:
    """Perform the steps and delete the runs. Copies are kept if a file could not be restored."""
    changed = [step for step in steps if step.verdict in ("restored", "merged", "removed")]
    for step in changed:
        for workspace in step.workspaces:
            require_real_folders(workspace, [step.record.path])
    require_writable([step.record.path for step in changed])
    for step in steps:
        if step.verdict == "kept":
            continue
        remove(step.record.path + TEMP_SUFFIX)
        if step.verdict in ("restored", "merged"):
            write(step.record.path, step.data or b"", 0o600)
        elif step.verdict == "removed":
            remove(step.record.path)
            for workspace in step.workspaces:
                _remove_empty_folders(os.path.dirname(step.record.path), workspace)
    for run in {step.run.folder: step.run for step in steps}.values():
        own = [step for step in steps if step.run is run]
        run.mark("reverted")
        if all(step.verdict != "kept" or not step.record.before for step in own):
            shutil.rmtree(run.folder, ignore_errors=True)
            try:
                os.rmdir(os.path.dirname(run.folder))
            except OSError:
                pass  # It holds other runs.


def _remove_empty_folders(folder: str, workspace: str) -> None:
    """Remove folders of ours that are now empty."""
    ours = (os.path.join(workspace, FOLDER), os.path.join(workspace, TEAM.folder))
    while folder in ours or folder.startswith(tuple(parent + os.sep for parent in ours)):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
