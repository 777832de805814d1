"""`switchboard secret`: store, list, move and remove the values of variables that entries of children reference.

Values are in the secrets file of the workspace or in the system keyring. None is ever printed, or read from the
command line, where other programs could see it.
"""

from __future__ import annotations

import os
import re
import sys
from getpass import getpass

from msgspec import Struct

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.console import Styled
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, choice, flag, positional
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.discover import WORKSPACE_FOLDER
from switchboard_mcp.config.files.secrets_file import (
    MAX_BYTES,
    SECRETS_FILE,
    append_secrets,
    is_keyring_reference,
    read_secrets,
    without_secret,
)
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ConfigWarning, Workspace
from switchboard_mcp.config.variables import used_variables
from switchboard_mcp.errors import Failure, SwitchboardError, refused, shell_word
from switchboard_mcp.setup.child_entries import FOLDER
from switchboard_mcp.setup.journal import make_private_folder, read, require_real_folders, write
from switchboard_mcp.suites.fuzzy import did_you_mean
from switchboard_mcp.system.atomic_write import GITIGNORE

PLACES = {"file": SECRETS_FILE, "keyring": "the system keyring"}
ACTIONS = ("set", "list", "move", "remove")


class SecretRow(Struct, frozen=True, rename="camel"):
    """One line of the list."""

    name: str
    store: str
    scope: str
    used_by: list[str]
    overridden: bool


class Store(Struct, frozen=True):
    """The secrets file of one workspace: its content, and the children of that workspace by the variables they use."""

    folder: str
    scope: str
    stored: dict[str, str]
    users: dict[str, list[str]]


def run(invocation: Invocation) -> int:
    """Store, list, move or remove."""
    workspace = load_workspace(
        project_folder(invocation.options), invocation.options.config, os.environ, include_user=True
    )
    action, name = invocation.args.action, invocation.args.name
    stores = _stores(workspace)
    if action == "list":
        return _list(stores, invocation)
    if action == "set":
        return _set(_store_for(name, stores, invocation), invocation)
    if action == "remove" and not name:
        raise usage_error("secret remove: NAME missing.", "`switchboard secret list` shows all.")
    variables = {variable for store in stores for variable in store.stored}
    if name and name not in variables:
        message = f"There is no secret '{name}' in this workspace.{did_you_mean(name, variables)}"
        raise usage_error(message, "`switchboard secret list` shows all.")
    if action == "remove":
        return _remove(_store_for(name, stores, invocation), invocation)
    return _move([_store_for(name, stores, invocation)] if name else stores, invocation)


COMMAND = Command(
    "secret set|list|move|remove [NAME] [OPTIONS]",
    "The values of ${VAR} in the entries of children. They are stored in .switchboard/secrets.env, which only you can\n"
    "read, or in the system keyring. A child gets those that its entry names; no value is ever printed.\n"
    "`set` asks for the value, or reads it from stdin. `move` takes all if no NAME is given.",
    run=run,
    arguments=[
        positional("action", "what to do", metavar="|".join(ACTIONS), choices=ACTIONS),
        positional("name", "name of a variable", nargs="?", default=""),
        flag("--user", "set, remove: the value for children of the user workspace"),
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


def _stores(workspace: Workspace) -> list[Store]:
    """Return the store of this workspace and, if it is another, that of the user workspace."""
    user = workspace.user.folder if workspace.user is not None and not workspace.user.left_out else ""
    stores = [_open(workspace.folder, "workspace", workspace)]
    return stores + ([_open(user, "user", workspace)] if user else [])


def _open(folder: str, scope: str, workspace: Workspace) -> Store:
    warnings: list[ConfigWarning] = []
    stored = read_secrets(folder, warnings)
    if warnings:
        raise refused("setup_refused", str(warnings[0]), hint="Correct it, and try again.")
    users: dict[str, list[str]] = {}
    for spec in sorted(workspace.children, key=lambda spec: spec.name):
        if (spec.scope == "user") == (scope == "user"):
            for name in sorted({use.variable for use in used_variables(spec)} - {WORKSPACE_FOLDER}):
                users.setdefault(name, []).append(spec.name)
    return Store(folder, scope, stored, users)


def _store_for(name: str, stores: list[Store], invocation: Invocation) -> Store:
    """Return the store of a variable: where it is, else where a child uses it, else that of this workspace."""
    if invocation.args.user:
        if stores[-1].scope != "user":
            hint = "`switchboard init` makes one."
            raise usage_error("secret: there is no user workspace besides this one.", hint)
        return stores[-1]
    having = [store for store in stores if name in store.stored] or [
        store for store in stores if name in store.users
    ]
    return (having or stores)[0]


def _set(target: Store, invocation: Invocation) -> int:
    name = invocation.args.name
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise usage_error(
            f"secret set: '{name}' is not the name of a variable." if name else "secret set: NAME missing.",
            "Use letters, digits and _, for example GITHUB_TOKEN.",
        )
    former = target.stored.get(name, "")
    store = invocation.args.store or ("keyring" if is_keyring_reference(former) else "file")
    if store == "keyring":
        keyring_store.open_keyring(f"switchboard secret set {shell_word(name)} --store file")
    _replace(target, {name: _read_value(name)}, store)
    users = target.users.get(name, [])
    used = (
        f"Used by {', '.join(users)}." if users else f"No child uses it yet: write ${{{name}}} in an entry."
    )
    answer = {"name": name, "store": store, "scope": target.scope, "usedBy": users}
    invocation.report(answer, f"Stored {name} in {_place(target, store)}. {used}", "green")
    return 0


def _place(target: Store, store: str) -> str:
    if store == "keyring":
        return "the system keyring"
    return SECRETS_FILE if target.scope == "workspace" else os.path.join(target.folder, SECRETS_FILE)


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


def _remove(target: Store, invocation: Invocation) -> int:
    name = invocation.args.name
    if name not in target.stored:
        raise usage_error(f"There is no secret '{name}' there.", "`switchboard secret list` shows all.")
    _write(target.folder, without_secret(_content(target.folder), name))
    _forget({name: target.stored[name]}, invocation)
    invocation.report({"name": name, "removed": True}, f"Removed {name}.", "green")
    return 0


def _move(stores: list[Store], invocation: Invocation) -> int:
    store, name = invocation.args.store, invocation.args.name
    if not store:
        raise usage_error(
            "secret move: --store missing.", "For example: switchboard secret move --store keyring"
        )
    moved: list[str] = []
    for target in stores:
        moving = {
            variable: text
            for variable, text in target.stored.items()
            if name in ("", variable) and is_keyring_reference(text) != (store == "keyring")
        }
        if store == "file":
            loaded = keyring_store.load_all(moving)
            if isinstance(loaded, Failure):
                raise SwitchboardError(loaded)
            moving = loaded
        if moving:
            _replace(target, moving, store)
        moved += moving
    place = PLACES[store]
    text = f"Moved {', '.join(sorted(moved))} to {place}." if moved else f"All are in {place} already."
    invocation.report({"moved": sorted(moved), "store": store}, text, "green" if moved else "")
    return 0


def _replace(target: Store, values: dict[str, str], store: str) -> None:
    """Store values, write their lines, and delete what the keyring had under the former references."""
    lines = values
    if store == "keyring":
        entries = {name: (keyring_store.new_reference(), value) for name, value in values.items()}
        keyring_store.save_all(entries)
        lines = {name: reference for name, (reference, _) in entries.items()}
    data = _content(target.folder)
    for name in lines:
        data = without_secret(data, name)
    _write(target.folder, append_secrets(data, lines))
    former = {name: target.stored.get(name, "") for name in values}
    keyring_store.delete_all({name: text for name, text in former.items() if is_keyring_reference(text)})


def _forget(references: dict[str, str], invocation: Invocation) -> None:
    """Delete values from the keyring; warn about those that stay."""
    in_keyring = {name: text for name, text in references.items() if is_keyring_reference(text)}
    for name in keyring_store.delete_all(in_keyring):
        invocation.console.warn(
            f"The system keyring did not delete the value of {name}. Delete `switchboard:{name}` there by hand."
        )


def _list(stores: list[Store], invocation: Invocation) -> int:
    rows = [
        SecretRow(
            name=name,
            store="keyring" if is_keyring_reference(text) else "file",
            scope=store.scope,
            used_by=store.users.get(name, []),
            overridden=name in os.environ,
        )
        for store in stores
        for name, text in sorted(store.stored.items())
    ]
    missing = {
        name: users
        for store in stores
        for name, users in sorted(store.users.items())
        if name not in store.stored and name not in os.environ
    }
    out = invocation.console.out
    if invocation.as_json:
        out.json({"secrets": rows, "missing": sorted(missing)})
        return 0
    if rows:
        table = [
            (
                Styled(row.name, "bold"),
                "environment first" if row.overridden else row.store,
                row.scope,
                ", ".join(row.used_by) or "no child",
            )
            for row in rows
        ]
        out.table(table, ("NAME", "STORED IN", "SCOPE", "USED BY"), optional=(2,))
    else:
        out.line("No secrets are stored. `switchboard secret set NAME` stores one.", "dim")
    for name, users in missing.items():
        used = f"{name} is used by {', '.join(users)} and not set"
        out.line(f"{used}: switchboard secret set {shell_word(name)}", "yellow")
    return 0


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
