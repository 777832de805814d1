"""`switchboard revert`: undo what `init` did.

Handles the dialog; `setup.revert` decides what is restored, and how.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.console import Screen, Styled, plural
from switchboard_mcp.cli.invocation import (
    DRY_RUN_FIRST,
    YES,
    Invocation,
    prompt,
    require_person,
    usage_error,
)
from switchboard_mcp.cli.parser import Command, flag
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.files.secrets_file import is_keyring_reference, read_secrets
from switchboard_mcp.errors import SwitchboardError, shell_word
from switchboard_mcp.setup.journal import (
    LEGACY_FOLDER,
    JournalFolder,
    JournalRun,
    LegacyCopy,
    journal_folder,
    journal_folders,
    legacy_copies,
    load_runs,
)
from switchboard_mcp.setup.paths import host_paths
from switchboard_mcp.setup.revert import RevertStep, Verdict, perform_revert, plan_revert, revertible
from switchboard_mcp.system.user_folders import user_workspace

CHANGING: tuple[Verdict, ...] = ("restored", "merged", "removed")
STYLES = {"restored": "green", "merged": "yellow", "removed": "green", "kept": "yellow", "nothing": "dim"}
# What each verdict means before it is carried out.
PLANNED: dict[Verdict, str] = {
    "restored": "restore",
    "merged": "merge",
    "removed": "delete",
    "kept": "leave",
    "nothing": "as before",
}


def run(invocation: Invocation) -> int:
    """Show the plan, ask, and restore. Exit code 1 if something could not be restored."""
    folder, args = project_folder(invocation.options), invocation.args
    if sum((args.all, args.user, args.project)) > 1:
        raise usage_error(
            "revert: --all, --user and --project exclude each other.", "Use one of them, or none."
        )
    user = user_workspace(os.environ)
    here = host_paths(folder, os.environ, sys.platform)
    runs, others = _find_runs(invocation, folder, user)
    steps = plan_revert(revertible(runs), here, [folder, *filter(None, [user])])
    legacy = [] if args.user else legacy_copies(folder)
    agreed = bool(steps) and not args.dry_run
    out = invocation.console.out
    if not invocation.as_json and not (agreed and args.yes):
        show_plan(steps, out)
    if agreed and not args.yes:
        require_person(invocation, "revert", DRY_RUN_FIRST)
        agreed = prompt(f"{_count(steps)}? [Y/n]") in ("", *YES)
    if agreed:
        _perform(steps)
        with suppress(OSError):
            os.rmdir(user)  # Only if it is empty.
    if invocation.as_json:
        files = [
            {"file": step.record.path, "outcome": step.verdict, "remarks": step.remarks} for step in steps
        ]
        answer = {"workspace": folder, "changed": agreed, "files": files, "others": [*others]}
        out.json(answer | ({"copiesInWorkspace": legacy} if legacy else {}))
    else:
        if agreed:
            show_done(steps, out)
        elif not steps:
            out.line(f"There is nothing to revert {'for you' if args.user else f'in {folder}'}.")
        elif not args.dry_run:
            out.line("Nothing was changed.")
        _show_legacy(legacy, out)
        _show_others(others, out)
    lost = any(step.verdict == "kept" and step.record.before for step in steps)
    return 1 if agreed and lost else 0


COMMAND = Command(
    "revert [OPTIONS]",
    "Undo what `init` did: every host gets its original entries back, byte for byte. In a file that was edited\n"
    "since, only what was moved is restored. Mail, state and archive are not touched. The copies are outside of the\n"
    "project, so this works after its folder was cleaned or deleted, and from any other folder.",
    run=run,
    arguments=[
        flag("--yes", "do not ask"),
        flag("--dry-run", "show the plan, change nothing"),
        flag("--user", "only the files of the user, which all projects share"),
        flag("--project", "only the files of this project"),
        flag("--all", "the files of the user and of every project, also of those that are gone"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard revert                          your own files, and those of this project\n"
        "  switchboard revert --workspace ~/work/gone  the same for another project\n"
        "  switchboard revert --all                    everything that `init` ever did"
    ),
)


def _perform(steps: Sequence[RevertStep]) -> None:
    """Revert, and delete the secrets in the system keyring that no secrets file of these workspaces names any more."""
    folders = sorted({folder for step in steps for folder in step.workspaces})
    stored = {folder: read_secrets(folder, []) for folder in folders}
    perform_revert(steps)
    for folder, before in stored.items():
        gone = before.items() - read_secrets(folder, []).items()
        keyring_store.delete_all({name: value for name, value in gone if is_keyring_reference(value)})


def _find_runs(invocation: Invocation, folder: str, user: str) -> tuple[list[JournalRun], dict[str, int]]:
    """Return the runs to revert, and the number of those that are left in other workspaces."""
    args = invocation.args
    folders = ([] if args.user else [folder]) + ([user] if user and not args.project else [])
    wanted = {place.path: place for place in (journal_folder(path, os.environ) for path in folders)}
    runs = [run for place in wanted.values() for run in load_runs(place)]
    others: dict[str, int] = {}
    for place in journal_folders(os.environ):
        if place.path in wanted:
            continue
        left = _load_other(place, invocation)
        if args.all:
            runs += left
        elif count := len(revertible(left)):
            others[place.workspace] = count
    return runs, others


def _load_other(place: JournalFolder, invocation: Invocation) -> list[JournalRun]:
    """Return the runs of another workspace. One that cannot be used is reported, and does not stop the rest."""
    try:
        return load_runs(place)
    except SwitchboardError as problem:
        invocation.console.show_failure(problem.failure)
        return []


def _show_others(others: dict[str, int], out: Screen) -> None:
    if not others:
        return
    out.line()
    out.line("`init` was also run in:")
    for workspace in sorted(others):
        gone = "" if os.path.isdir(workspace) else out.paint("  (the folder is gone)", "dim")
        out.line(f"  {workspace}{gone}")
    out.text(f"Revert one: switchboard revert --workspace {shell_word(min(others))}")
    out.line("Revert all of them: switchboard revert --all")


def _show_legacy(copies: list[LegacyCopy], out: Screen) -> None:
    if not copies:
        return
    out.line()
    out.prose(
        f"{LEGACY_FOLDER} has copies of an earlier release. They are not restored: the author of this folder may have "
        "written them. If they are yours, compare them with the files, and copy them by hand:",
        style="yellow",
    )
    out.table([(legacy.copy, legacy.file or "see its journal.json") for legacy in copies], ("COPY", "OF"))


def show_plan(steps: Sequence[RevertStep], out: Screen) -> None:
    """Print what would happen to each file."""
    _show(steps, PLANNED, out)


def show_done(steps: Sequence[RevertStep], out: Screen) -> None:
    """Print what happened to each file."""
    _show(steps, {verdict: verdict for verdict in PLANNED}, out)
    out.line("Done. Hosts pick it up in their next session.", "green")


def _show(steps: Sequence[RevertStep], words: dict[Verdict, str], out: Screen) -> None:
    rows = [
        (Styled(words[step.verdict], STYLES[step.verdict]), step.record.path, "; ".join(step.remarks))
        for step in steps
        if step.verdict != "nothing" or step.remarks
    ]
    if rows:
        out.table(rows)


def _count(steps: Sequence[RevertStep]) -> str:
    """Return what would be done in a few words."""
    back = len({step.record.path for step in steps if step.verdict in ("restored", "merged")})
    gone = len({step.record.path for step in steps if step.verdict == "removed"})
    parts = [f"Restore {plural(back, 'file')}"] if back or not gone else []
    parts += [f"delete {plural(gone, 'file')} that `init` made"] if gone else []
    text = " and ".join(parts)
    return text[0].upper() + text[1:]
