"""Reverts what `init` has done.

A file that is unchanged since then gets its old bytes back. A file that was edited since keeps those edits: our entry
is removed, and the moved entries are put back as they were written. Only files in the journal are touched: never mail,
state or archives.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from switchboard_mcp.setup.child_entries import FOLDER, TEAM
from switchboard_mcp.setup.edit import formats, jsonc_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.hosts import HOSTS
from switchboard_mcp.setup.journal import (
    TEMP_SUFFIX,
    JournalEntry,
    JournalRun,
    digest,
    load_runs,
    read,
    remove,
    write,
)

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


def revertible(runs: Sequence[JournalRun]) -> list[JournalRun]:
    """Return the runs that can be reverted, newest first."""
    return [run for run in reversed(runs) if run.journal.state != "reverted"]


def plan_revert(runs: Sequence[JournalRun]) -> list[RevertStep]:
    """Decide how to revert these runs, newest first. Reads files, writes nothing."""
    steps: list[RevertStep] = []
    now: dict[str, bytes | None] = {}
    for run in runs:
        for record in reversed(run.journal.records):
            path = record.path
            current = now[path] if path in now else read(path)
            step = _step(run, record, current)
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
        remark = "it was deleted, and is not restored" if existed else "it is already deleted"
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


def revert_interrupted(workspace: str) -> bool:
    """Revert an interrupted run, so that the next one starts clean. Returns True if there was one."""
    begun = [run for run in revertible(load_runs(workspace)) if run.journal.state == "begun"]
    perform_revert(plan_revert(begun), workspace)
    return bool(begun)


def perform_revert(steps: Sequence[RevertStep], workspace: str) -> None:
    """Perform the steps and delete the runs. Copies are kept if a file could not be restored."""
    for step in steps:
        remove(step.record.path + TEMP_SUFFIX)
        if step.verdict in ("restored", "merged"):
            write(step.record.path, step.data or b"", 0o600)
        elif step.verdict == "removed":
            remove(step.record.path)
            _remove_empty_folders(os.path.dirname(step.record.path), workspace)
    for run in {step.run.folder: step.run for step in steps}.values():
        own = [step for step in steps if step.run is run]
        run.mark("reverted")
        if all(step.verdict != "kept" or not step.record.before for step in own):
            shutil.rmtree(run.folder, ignore_errors=True)
            _remove_empty_folders(os.path.dirname(run.folder), workspace)


def _remove_empty_folders(folder: str, workspace: str) -> None:
    """Remove folders of ours that are now empty."""
    ours = (os.path.join(workspace, FOLDER), os.path.join(workspace, TEAM.folder))
    while folder in ours or folder.startswith(tuple(each + os.sep for each in ours)):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
