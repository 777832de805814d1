"""`switchboard mail verify|prune|export|backup|restore|salvage`: the database of the mail."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeVar

from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.mailbox import Mailbox, config_of, folder_of, with_mailbox
from switchboard_mcp.cli.parser import Command, flag, option, positional
from switchboard_mcp.database.file_lock import FileLock
from switchboard_mcp.database.machine_clocks import machine_clocks
from switchboard_mcp.database.transactions import StorageError
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.store import integrity
from switchboard_mcp.mail.store.store import DATABASE_FILE

T = TypeVar("T")


def run_verify(invocation: Invocation) -> int:
    """Verify the database; exit code 1 if a message is damaged."""

    async def work(mailbox: Mailbox) -> int:
        if invocation.args.recount:
            await mailbox.store.recount()
        verdict = await mailbox.store.verify()
        out = invocation.console.out
        if invocation.as_json:
            out.json({"messages": verdict.messages, "problems": verdict.problems, "sound": verdict.is_sound})
        else:
            whole = "Every accepted message is in exactly one place."
            broken = "Something is damaged; `switchboard mail salvage` saves what can be read."
            out.line(whole if verdict.is_sound else broken, "green" if verdict.is_sound else "red")
            out.line(plural(verdict.messages, "message"), "dim")
            for problem in verdict.problems:
                out.line(problem)
        return 0 if verdict.is_sound else 1

    return with_mailbox(invocation, work)


VERIFY = Command(
    "mail verify [--recount] [OPTIONS]",
    "Read every message, and compare its checksum and the counts. Exit code 1 if something is wrong.",
    run=run_verify,
    arguments=[flag("--recount", "count all messages again first")],
)


def run_prune(invocation: Invocation) -> int:
    """Delete old settled messages, or count them."""
    seconds = read_age(invocation.args.older)
    dry = invocation.args.dry_run

    async def work(mailbox: Mailbox) -> int:
        store = mailbox.store
        count = await (store.count_old(seconds) if dry else store.prune(seconds))
        text = (
            f"{'Would remove' if dry else 'Removed'} {plural(count, 'settled message')} and their receipts."
        )
        invocation.report({"dryRun": dry, "messages": count}, text, "" if dry else "green")
        return 0

    return with_mailbox(invocation, work)


PRUNE = Command(
    "mail prune --older AGE [--dry-run] [OPTIONS]",
    "Delete messages settled that long ago, with their receipts and attachments, of all agents.\n"
    "Unread and claimed messages stay.",
    run=run_prune,
    arguments=[
        option("--older", "AGE", "minimum age: 30d, 12h", required=True),
        flag("--dry-run", "only show how much would be deleted"),
    ],
)


def run_export(invocation: Invocation) -> int:
    """Write messages as lines of JSON."""
    day = invocation.args.day or ""

    async def work(mailbox: Mailbox) -> int:
        for line in await mailbox.store.read_rows(lambda tx: list(integrity.export(tx, day))):
            invocation.console.out.text(line)
        return 0

    return with_mailbox(invocation, work)


EXPORT = Command(
    "mail export [--day DAY] [OPTIONS]",
    "Write every message to the standard output as a line of JSON, with its place and receipts.",
    run=run_export,
    arguments=[
        option("--day", "DAY", "only messages of this day (2026-01-31), or of this month (2026-01)", "")
    ],
    epilog="example:\n  switchboard mail export --day 2026-01 > january.jsonl",
)


def run_backup(invocation: Invocation) -> int:
    """Copy the database to a new file."""
    path = os.path.abspath(invocation.args.file)
    if os.path.lexists(path):
        raise refused("mail_not_stored", f"{path} exists.", hint="Name a new file.")

    async def work(mailbox: Mailbox) -> int:
        await mailbox.store.back_up(path)
        invocation.report({"file": path}, f"The mail was copied to {path}.", "green")
        return 0

    return with_mailbox(invocation, work)


BACKUP = Command(
    "mail backup FILE [OPTIONS]",
    "Copy the database of the mail to a new file, while others go on. Attachments are files beside it.",
    run=run_backup,
    arguments=[positional("file", "the new file", metavar="FILE")],
)


def run_restore(invocation: Invocation) -> int:
    """Put a copy in the place of the database."""
    source = os.path.abspath(invocation.args.file)

    if not os.path.isfile(source):
        raise refused("mail_not_found", f"There is no file {source}.")

    moved = _offline(invocation, lambda path: integrity.restore(source, path, machine_clocks()))
    invocation.report(
        {"movedTo": moved}, f"The mail is that of {source}. What was there is in {moved}.", "green"
    )
    return 0


RESTORE = Command(
    "mail restore FILE [OPTIONS]",
    "Put a copy made by `mail backup` in the place of the database, which is moved aside. Stop every Switchboard\n"
    "of the workspace first.",
    run=run_restore,
    arguments=[positional("file", "the copy", metavar="FILE")],
)


def run_salvage(invocation: Invocation) -> int:
    """Read what can be read of a damaged database into a new one."""
    saved = _offline(invocation, lambda path: integrity.salvage(path, machine_clocks()))
    text = f"{plural(saved.messages, 'message')} saved; the damaged file is {saved.moved_to}."
    if saved.lost:
        text += f" {plural(len(saved.lost), 'message')} could not be read: look in a backup and in inbox/."
    invocation.report({"messages": saved.messages, "lost": saved.lost, "movedTo": saved.moved_to}, text)
    return 1 if saved.lost else 0


def _offline(invocation: Invocation, work: Callable[[str], T]) -> T:
    """Do something with the file of the database while no process that stays has it open."""
    folder = folder_of(invocation)
    if config_of(invocation, folder).database:
        raise refused(
            "mail_not_stored", "The mail is on a PostgreSQL server.", hint="Use `pg_dump` and `pg_restore`."
        )
    if not os.path.isdir(folder):
        raise refused(
            "mail_not_found", f"{folder} is not a folder.", hint="Name the workspace with --workspace."
        )
    locks = os.path.join(folder, FOLDER, "locks")
    os.makedirs(locks, 0o700, exist_ok=True)
    lock = FileLock(os.path.join(locks, "files"))
    try:
        if not lock.try_acquire():
            holder = lock.holder() or "a process"
            text = f"The mail of {folder} is in use by {holder}."
            raise refused("mail_not_stored", text, hint="Stop every Switchboard of the workspace first.")
        return work(os.path.join(folder, FOLDER, DATABASE_FILE))
    except StorageError as problem:
        raise refused("mail_not_stored", problem.text, hint=problem.hint) from problem
    finally:
        lock.close()


SALVAGE = Command(
    "mail salvage [OPTIONS]",
    "Move a damaged database aside, and read what can be read of it into a new one. Stop every Switchboard of the\n"
    "workspace first. Exit code 1 if messages were lost.",
    run=run_salvage,
)


def read_age(text: str, flag: str = "--older") -> float:
    """Parse a duration, in seconds.

    >>> read_age("30d"), read_age("12h"), read_age("0.5d"), read_age("30m")
    (2592000.0, 43200.0, 43200.0, 1800.0)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([dhm])", text)
    if match is None:
        raise usage_error(
            f"{flag} '{text[:80]}': not a duration.",
            f"For example: {flag} 30d for 30 days, 12h for 12 hours, or 30m for 30 minutes.",
        )
    return float(match[1]) * {"d": 86_400, "h": 3_600, "m": 60}[match[2]]
