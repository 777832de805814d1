"""Checks the files of a workspace: permissions, leftovers, and the integrity of lock, approvals, audit record and mail.

Reads only.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping

from switchboard_mcp.children.locking.lock_file import find_tampering, read_lock
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.doctor.findings import NOTE, PROBLEM, Finding
from switchboard_mcp.config.documents import read_bytes, read_document
from switchboard_mcp.config.files.approvals import read_approvals
from switchboard_mcp.config.files.schema_files import read_schema, schema_file
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import HASHED, token_text
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store.integrity import MailVerdict
from switchboard_mcp.mail.store.store import DATABASE_FILE, MessageStore
from switchboard_mcp.observability.audit.verification import verify
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.system.processes import is_running
from switchboard_mcp.system.write_access import other_writers
from switchboard_mcp.transport.http.token_store import logins_folder

FOLDER = auth.FOLDER
LOCK, APPROVALS = "switchboard.lock.json", "switchboard.approvals.json"
# Atomic writes use `NAME.RANDOM.PID.new` (earlier versions `NAME.PID.new` and `NAME.PID`) before the rename.
_TEMPORARY = re.compile(r".+\.(\d+)(?:\.new)?")
# Verifying mail reads all of it; beyond this many messages, point to the command instead.
MOST_MAIL = 5_000


def file_findings(workspace: Workspace, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings about files."""
    return [
        *_permissions(workspace, environ),
        *_leftovers(workspace.folder),
        *_config_schema(workspace.source),
        *_lock(workspace),
        *_approvals(workspace),
        *_audit(workspace),
        *_mail(workspace),
    ]


def _config_schema(config: str) -> Iterator[Finding]:
    """Check that editors find the schema that the config names, and that it is ours."""
    document = read_document(config) if config else None
    named = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(named, str) or "://" in named:
        return
    path = os.path.normpath(os.path.join(os.path.dirname(config), named))
    content = read_bytes(path)
    remedy = f"Run: switchboard schema config > {shlex.quote(path)}"
    if not isinstance(content, bytes):
        yield Finding(NOTE, f"{config}: $schema names {path}, which cannot be read.", remedy)
    elif os.path.basename(path) == schema_file("config") and content != read_schema("config"):
        yield Finding(NOTE, f"{path} is the schema of another version of Switchboard.", remedy)


def _permissions(workspace: Workspace, environ: Mapping[str, str]) -> Iterator[Finding]:
    folder = os.path.join(workspace.folder, FOLDER)
    secret = [os.path.join(folder, auth.FILE)]
    logins = logins_folder(environ)
    if logins and os.path.isdir(logins):
        secret += [logins, *(os.path.join(logins, name) for name in sorted(os.listdir(logins)))]
    for path in (folder, *secret):
        mode = _mode(path)
        if mode is not None and mode & 0o077:
            expected = "700" if stat.S_ISDIR(mode) else "600"
            holds = "holds secrets" if path != folder or os.path.exists(secret[0]) else "is for secrets"
            message = f"{path} {holds} and is open to others (mode {stat.S_IMODE(mode):04o})."
            level = PROBLEM if path != folder or os.path.exists(secret[0]) else NOTE
            yield Finding(level, message, f"chmod {expected} {shlex.quote(path)}")
    sources = {workspace.source, *(spec.source for spec in workspace.children)}
    own = {os.path.join(workspace.folder, name) for name in (LOCK, APPROVALS)}
    for path in sorted(filter(None, sources | own)):
        open_to = _other_writers(path)
        if open_to:
            message = f"{path} controls what runs here, and it {open_to}."
            yield Finding(PROBLEM, message, _remedy(path, open_to))
    yield from _open_tokens(workspace)


def _other_writers(path: str) -> str:
    try:
        return other_writers(path, os.stat(path))
    except OSError:
        return ""  # missing: other findings report it


def _remedy(path: str, open_to: str) -> str:
    if "ACL" in open_to:
        return f"setfacl -b {shlex.quote(path)}"
    return (
        f"chown {os.geteuid()} {shlex.quote(path)}"
        if "belongs" in open_to
        else f"chmod go-w {shlex.quote(path)}"
    )


def _open_tokens(workspace: Workspace) -> Iterator[Finding]:
    mode = _mode(workspace.source) if workspace.source else None
    tokens = workspace.config.http.tokens
    literal = [
        name
        for name, token in tokens.items()
        if not ("${" in token_text(token) or token_text(token).startswith(HASHED))
    ]
    if mode is not None and mode & 0o044 and literal:
        message = (
            f"{workspace.source} can be read by others and contains literal tokens: {', '.join(literal)}."
        )
        remedy = f"Write ${{VAR}} in http.tokens and set VAR, or: chmod 600 {shlex.quote(workspace.source)}"
        yield Finding(NOTE, message, remedy)


def _leftovers(workspace: str) -> Iterator[Finding]:
    folder = os.path.join(workspace, FOLDER)
    info_path, token_path = (os.path.join(folder, name) for name in (server_info.FILE, auth.FILE))
    info = server_info.read(folder)
    serves = info is not None and server_info.is_alive(info)
    if not serves and os.path.lexists(info_path):
        whose = (
            f"process {info.pid}, which is gone" if info is not None else "a program that is not Switchboard"
        )
        message = f"{info_path} was left by {whose}: agents that look for a server will fail."
        yield Finding(NOTE, message, f"rm {shlex.quote(info_path)}")
    if not serves and os.path.lexists(token_path):
        message = f"{token_path} is the token of a server that no longer runs; it is useless."
        yield Finding(NOTE, message, f"rm {shlex.quote(token_path)}")
    for name in sorted(_names(folder)):
        match = _TEMPORARY.fullmatch(name)
        if match is not None and not is_running(int(match[1])):
            path = os.path.join(folder, name)
            yield Finding(
                NOTE, f"{path} was left half-written by a process that is gone.", f"rm {shlex.quote(path)}"
            )


def _lock(workspace: Workspace) -> Iterator[Finding]:
    path = os.path.join(workspace.folder, LOCK)
    governed = workspace.config.governance.mode == "governed"
    if not os.path.lexists(path) and not governed:
        return
    try:
        lock = read_lock(path)
    except SwitchboardError as problem:
        yield Finding(PROBLEM, problem.failure.message, problem.failure.hint or "")
        return
    locked = lock.children if lock is not None else {}
    names = {spec.name for spec in workspace.own_children if spec.kind != "builtin"}
    for name, entry in locked.items():
        broken = find_tampering(path, name, entry)
        if broken is not None:
            yield Finding(PROBLEM, broken.message, broken.hint or "")
        elif name not in names and name not in workspace.absent:
            message = f"{path} has a child '{name}' that is not configured."
            yield Finding(
                NOTE, message, f"`switchboard lock` writes the file without it; or configure '{name}' again."
            )
    for name in sorted(names - locked.keys()):
        message = f"Child '{name}' is not locked: {'it is not served' if governed else 'its changes are not noticed'}."
        yield Finding(PROBLEM if governed else NOTE, message, f"switchboard lock {shlex.quote(name)}")


def _approvals(workspace: Workspace) -> Iterator[Finding]:
    path = os.path.join(workspace.folder, APPROVALS)
    if not os.path.lexists(path):
        return
    try:
        approved = read_approvals(path).names()
    except SwitchboardError as problem:
        yield Finding(PROBLEM, problem.failure.message, problem.failure.hint or "")
        return
    names = {spec.name for spec in workspace.own_children} | set(workspace.absent)
    for name in sorted(approved - names):
        message = f"{path} approves a child '{name}' that is not configured."
        yield Finding(NOTE, message, f"switchboard approve --revoke {shlex.quote(name)}")


def _audit(workspace: Workspace) -> Iterator[Finding]:
    folder = os.path.join(workspace.folder, workspace.config.audit.path)
    if not os.path.isdir(folder) or not os.listdir(folder):
        return
    try:
        verdict = verify(folder, keep=workspace.config.audit.keep)
    except OSError as problem:
        message = f"The audit record in {folder} cannot be read: {problem.strerror or problem}."
        yield Finding(PROBLEM, message, "Give yourself permission to read it.")
        return
    if not verdict.ok:
        line = f", line {verdict.line}" if verdict.line else ""
        message = f"The audit record is broken: {os.path.join(folder, verdict.file)}{line} {verdict.reason}."
        yield Finding(PROBLEM, message, "Find out who changed it; see `switchboard audit verify`.")


def has_mail(workspace: Workspace) -> bool:
    """Return True if there is a database of mail; it is not created to be checked."""
    path = os.path.join(workspace.folder, FOLDER)
    is_shared = bool(workspace.config.database) and os.path.isdir(os.path.join(path, "inbox"))
    return is_shared or os.path.exists(os.path.join(path, DATABASE_FILE))


def _mail(workspace: Workspace) -> Iterator[Finding]:
    folder, config = os.path.join(workspace.folder, FOLDER), workspace.config
    if not has_mail(workspace):
        return

    async def look() -> tuple[int, MailVerdict | None]:
        store = await MessageStore.open(workspace.folder, database=config.database, watch=False)
        async with store:
            count = await store.count()
            return count, await store.verify() if count <= MOST_MAIL else None

    try:
        count, verdict = asyncio.run(look())
    except (OSError, SwitchboardError) as problem:
        hint = problem.failure.hint if isinstance(problem, SwitchboardError) else ""
        yield Finding(
            PROBLEM, f"The mail in {folder} cannot be read: {problem}", hint or "switchboard mail verify"
        )
        return
    if verdict is None:
        message = f"There are {plural(count, 'message')}, too many to check every time."
        yield Finding(NOTE, message, "switchboard mail verify")
        return
    for problem_found in verdict.problems:
        yield Finding(PROBLEM, f"Mail: {problem_found}", "switchboard mail verify")


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode if not os.path.islink(path) else None
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
