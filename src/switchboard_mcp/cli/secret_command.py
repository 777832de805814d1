"""`switchboard secret`: store, list, move and remove the values of variables that entries of children reference.

Values are in the secrets file of the workspace or in the system keyring. None is ever printed, or read from the
command line, where other programs could see it.
"""

from __future__ import annotations

import os
import re
import sys
from getpass import getpass

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.console import Styled
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, choice, positional
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ConfigWarning, Workspace
from switchboard_mcp.config.secrets_file import (
    MAX_BYTES,
    SECRETS_FILE,
    append_secrets,
    is_keyring_reference,
    read_secrets,
    without_secret,
)
from switchboard_mcp.config.variables import used_variables
from switchboard_mcp.errors import Failure, SwitchboardError, refused, shell_word
from switchboard_mcp.setup.child_entries import FOLDER
from switchboard_mcp.setup.journal import make_private_folder, read, require_real_folders, write
from switchboard_mcp.suites.fuzzy import did_you_mean
from switchboard_mcp.system.atomic_write import GITIGNORE

PLACES = {"file": SECRETS_FILE, "keyring": "the system keyring"}
ACTIONS = ("set", "list", "move", "remove")


def run(invocation: Invocation) -> int:
    """Store, list, move or remove."""
    workspace = load_workspace(project_folder(invocation.options), invocation.options.config, os.environ)
    action, name = invocation.args.action, invocation.args.name
    stored = _stored(workspace.folder)
    if action == "list":
        return _list(workspace, stored, invocation)
    if action == "set":
        return _set(workspace, stored, invocation)
    if action == "remove" and not name:
        raise usage_error("secret remove: NAME missing.", "`switchboard secret list` shows all.")
    if name and name not in stored:
        message = f"There is no secret '{name}' in this workspace.{did_you_mean(name, stored)}"
        raise usage_error(message, "`switchboard secret list` shows all.")
    return (_remove if action == "remove" else _move)(workspace, stored, invocation)


COMMAND = Command(
    "secret set|list|move|remove [NAME] [OPTIONS]",
    "The values of ${VAR} in the entries of children. They are stored in .switchboard/secrets.env, which only you can\n"
    "read, or in the system keyring. A child gets those that its entry names; no value is ever printed.\n"
    "`set` asks for the value, or reads it from stdin. `move` takes all if no NAME is given.",
    run=run,
    arguments=[
        positional("action", "what to do", metavar="|".join(ACTIONS), choices=ACTIONS),
        positional("name", "name of a variable", nargs="?", default=""),
        choice(
            "--store", tuple(PLACES), "set, move: where to (default for `set`: where it is, else the file)"
        ),
    ],
    epilog=(
        "examples:\n"
        "  switchboard secret set GITHUB_TOKEN\n"
        "  switchboard secret set GITHUB_TOKEN --store keyring < token.txt\n"
        "  switchboard secret move --store keyring"
    ),
)


def _stored(folder: str) -> dict[str, str]:
    """Return the content of the secrets file; raises if Switchboard would ignore it."""
    warnings: list[ConfigWarning] = []
    stored = read_secrets(folder, warnings)
    if warnings:
        raise refused("setup_refused", str(warnings[0]), hint="Correct it, and try again.")
    return stored


def _set(workspace: Workspace, stored: dict[str, str], invocation: Invocation) -> int:
    name = invocation.args.name
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise usage_error(
            f"secret set: '{name}' is not the name of a variable." if name else "secret set: NAME missing.",
            "Use letters, digits and _, for example GITHUB_TOKEN.",
        )
    store = invocation.args.store or ("keyring" if is_keyring_reference(stored.get(name, "")) else "file")
    if store == "keyring":
        keyring_store.open_keyring()  # before anybody types a value
    value = _read_value(name)
    _replace(workspace.folder, stored, {name: value}, store)
    users = _users(workspace).get(name, [])
    used = (
        f"Used by {', '.join(users)}." if users else f"No child uses it yet: write ${{{name}}} in an entry."
    )
    answer = {"name": name, "store": store, "usedBy": users}
    invocation.report(answer, f"Stored {name} in {PLACES[store]}. {used}", "green")
    return 0


def _read_value(name: str) -> str:
    if sys.stdin.isatty():
        value = getpass(f"Value of {name}: ")
    else:
        value = (
            sys.stdin.buffer.read(MAX_BYTES // 2)
            .decode("utf-8", "replace")
            .removesuffix("\n")
            .removesuffix("\r")
        )
    if not value or is_keyring_reference(value):
        raise usage_error(f"secret set: the value of {name} is empty or reserved.", "Nothing was changed.")
    return value


def _remove(workspace: Workspace, stored: dict[str, str], invocation: Invocation) -> int:
    name = invocation.args.name
    _write(workspace.folder, without_secret(_content(workspace.folder), name))
    _forget({name: stored[name]}, invocation)
    invocation.report({"name": name, "removed": True}, f"Removed {name}.", "green")
    return 0


def _move(workspace: Workspace, stored: dict[str, str], invocation: Invocation) -> int:
    store = invocation.args.store
    if not store:
        raise usage_error(
            "secret move: --store missing.", "For example: switchboard secret move --store keyring"
        )
    names = [invocation.args.name] if invocation.args.name else sorted(stored)
    moving = [name for name in names if is_keyring_reference(stored[name]) != (store == "keyring")]
    values = {name: stored[name] for name in moving}
    if store == "file":
        loaded = keyring_store.load_all(values)
        if isinstance(loaded, Failure):
            raise SwitchboardError(loaded)
        values = loaded
    if moving:
        _replace(workspace.folder, stored, values, store)
    text = (
        f"Moved {', '.join(moving)} to {PLACES[store]}." if moving else f"All are in {PLACES[store]} already."
    )
    invocation.report({"moved": moving, "store": store}, text, "green" if moving else "")
    return 0


def _replace(folder: str, stored: dict[str, str], values: dict[str, str], store: str) -> None:
    """Store values, write their lines, and delete what the keyring had under the former references."""
    lines = values
    if store == "keyring":
        entries = {name: (keyring_store.new_reference(), value) for name, value in values.items()}
        keyring_store.save_all(entries)
        lines = {name: reference for name, (reference, _) in entries.items()}
    data = _content(folder)
    for name in lines:
        data = without_secret(data, name)
    _write(folder, append_secrets(data, lines))
    keyring_store.delete_all(
        {name: stored[name] for name in values if is_keyring_reference(stored.get(name, ""))}
    )


def _forget(references: dict[str, str], invocation: Invocation) -> None:
    """Delete values from the keyring; warn about those that stay."""
    in_keyring = {name: text for name, text in references.items() if is_keyring_reference(text)}
    for name in keyring_store.delete_all(in_keyring):
        invocation.console.warn(
            f"The system keyring did not delete the value of {name}. Delete `switchboard:{name}` there by hand."
        )


def _list(workspace: Workspace, stored: dict[str, str], invocation: Invocation) -> int:
    users = _users(workspace)
    rows = [
        {
            "name": name,
            "store": "keyring" if is_keyring_reference(text) else "file",
            "usedBy": users.get(name, []),
            "overridden": name in os.environ,
        }
        for name, text in sorted(stored.items())
    ]
    missing = sorted(users.keys() - stored.keys() - os.environ.keys())
    out = invocation.console.out
    if invocation.as_json:
        out.json({"secrets": rows, "missing": missing})
        return 0
    if rows:
        table = [
            (
                Styled(str(row["name"]), "bold"),
                "environment first" if row["overridden"] else str(row["store"]),
                ", ".join(users.get(str(row["name"]), [])) or "no child",
            )
            for row in rows
        ]
        out.table(table, ("NAME", "STORED IN", "USED BY"))
    else:
        out.line("No secrets are stored. `switchboard secret set NAME` stores one.", "dim")
    for name in missing:
        used = f"{name} is used by {', '.join(users[name])} and not set"
        out.line(f"{used}: switchboard secret set {shell_word(name)}", "yellow")
    return 0


def _users(workspace: Workspace) -> dict[str, list[str]]:
    """Return the children that use each variable."""
    users: dict[str, list[str]] = {}
    for spec in sorted(workspace.children, key=lambda spec: spec.name):
        for name in {use.variable for use in used_variables(spec)}:
            users.setdefault(name, []).append(spec.name)
    return users


def _content(folder: str) -> bytes:
    return read(os.path.join(folder, SECRETS_FILE)) or b""


def _write(folder: str, data: bytes) -> None:
    path = os.path.join(folder, SECRETS_FILE)
    require_real_folders(folder, [path])
    make_private_folder(os.path.join(folder, FOLDER))
    ignore = os.path.join(folder, FOLDER, ".gitignore")
    if read(ignore) is None:
        write(ignore, GITIGNORE, 0o644)
    write(path, data, 0o600)
