"""`switchboard revert`: undo what `init` did.

Handles the dialog; `setup.revert` decides what is restored, and how.
"""

from __future__ import annotations

import os
import sys

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.console import Screen, Styled, plural
from switchboard_mcp.cli.invocation import DRY_RUN_FIRST, YES, Invocation, prompt, require_person
from switchboard_mcp.cli.parser import Command, flag
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.secrets_file import is_keyring_reference, read_secrets
from switchboard_mcp.setup.journal import LEGACY_FOLDER, LegacyCopy, journal_folder, legacy_copies, load_runs
from switchboard_mcp.setup.paths import host_paths
from switchboard_mcp.setup.revert import RevertStep, perform_revert, plan_revert, revertible

STYLES = {"restored": "green", "merged": "yellow", "removed": "green", "kept": "yellow", "nothing": "dim"}


def run(invocation: Invocation) -> int:
    """Show the plan, ask, and restore. Exit code 1 if something could not be restored."""
    folder = workspace_folder(invocation.options)
    here = host_paths(folder, os.environ, sys.platform)
    steps = plan_revert(revertible(load_runs(journal_folder(folder, os.environ))), here)
    legacy = legacy_copies(folder)
    agreed = bool(steps) and not invocation.args.dry_run
    if not invocation.as_json:
        show(steps, folder, invocation.console.out)
        _show_legacy(legacy, invocation.console.out)
    if agreed and not invocation.args.yes:
        require_person(invocation, "revert", DRY_RUN_FIRST)
        count = sum(step.verdict in ("restored", "merged", "removed") for step in steps)
        agreed = prompt(f"Restore {plural(count, 'file')}? [Y/n]") in ("", *YES)
    if agreed:
        stored = read_secrets(folder, [])
        perform_revert(steps, folder)
        gone = stored.items() - read_secrets(folder, []).items()
        keyring_store.delete_all({name: value for name, value in gone if is_keyring_reference(value)})
    if invocation.as_json:
        files = [
            {"file": step.record.path, "outcome": step.verdict, "remarks": step.remarks} for step in steps
        ]
        answer = {"workspace": folder, "changed": agreed, "files": files}
        invocation.console.out.json(answer | ({"copiesInWorkspace": legacy} if legacy else {}))
    elif agreed:
        invocation.console.out.line("Done. Hosts pick it up in their next session.", "green")
    lost = any(step.verdict == "kept" and step.record.before for step in steps)
    return 1 if agreed and lost else 0


COMMAND = Command(
    "revert [OPTIONS]",
    "Undo what `init` did: every host gets its original entries back, byte for byte. In a file that was edited\n"
    "since, only what was moved is restored. Mail, state and archive are not touched.",
    run=run,
    arguments=[
        flag("--yes", "do not ask"),
        flag("--dry-run", "show the plan, change nothing"),
    ],
)


def _show_legacy(copies: list[LegacyCopy], out: Screen) -> None:
    if not copies:
        return
    out.line()
    out.prose(
        f"{LEGACY_FOLDER} has copies of an earlier release. They are not restored: whoever made this folder may have "
        "written them. If they are yours, compare them with the files, and copy them by hand:",
        style="yellow",
    )
    out.table([(each.copy, each.file or "see its journal.json") for each in copies], ("COPY", "OF"))


def show(steps: list[RevertStep], folder: str, out: Screen) -> None:
    """Print what happens to each file."""
    if not steps:
        out.line(f"There is nothing to revert in {folder}.")
        return
    rows = [
        (Styled(step.verdict, STYLES[step.verdict]), step.record.path, "; ".join(step.remarks))
        for step in steps
        if step.verdict != "nothing" or step.remarks
    ]
    out.table(rows, ("", "FILE", ""))
