"""`switchboard token`: create, list and revoke named tokens for the HTTP server.

The config stores the hash of a token, so only its holder has the token itself.
"""

from __future__ import annotations

import os
import secrets
from hashlib import sha256

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.console import Styled
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, choice, positional
from switchboard_mcp.config.agent_names import token_name_problem
from switchboard_mcp.config.load import JSON_NAME, load_workspace, require_profile
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import HASHED, Token, token_text
from switchboard_mcp.errors import refused
from switchboard_mcp.setup.edit import formats, jsonc_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.journal import read, write
from switchboard_mcp.suites.fuzzy import did_you_mean

TOKEN_BYTES = 32
PATH = ("http", "tokens")


def run(invocation: Invocation) -> int:
    """Create, list or revoke."""
    workspace = load_workspace(project_folder(invocation.options), invocation.options.config, os.environ)
    args = invocation.args
    if args.action == "list":
        return _list(workspace, invocation)
    if not args.name:
        raise usage_error(
            f"token {args.action}: NAME missing.", f"For example: switchboard token {args.action} ci"
        )
    if args.action == "new":
        return _new(workspace, invocation)
    return _revoke(workspace, invocation)


COMMAND = Command(
    "token new|list|revoke [NAME] [OPTIONS]",
    "Named tokens for clients of the HTTP server. `new` prints a token once and stores its hash in the config.\n"
    "With --profile, its holder sees what that profile shows. A running server accepts a new token at once, and ends\n"
    "the sessions and logins of a revoked one.",
    run=run,
    arguments=[
        positional("action", "what to do", metavar="new|list|revoke", choices=("new", "list", "revoke")),
        positional("name", "the agent, person or program that holds the token", nargs="?", default=""),
        choice("--dashboard", ("read", "act", "admin"), "new: its access to the dashboard (default: none)"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard token new ci\n"
        "  switchboard token new ada --profile reader --dashboard read\n"
        "  switchboard token revoke build"
    ),
)


def _new(workspace: Workspace, invocation: Invocation) -> int:
    name, profile = invocation.args.name, invocation.options.profile
    if name in workspace.config.http.tokens:
        hint = f"Revoke it first: switchboard token revoke {name}"
        raise usage_error(f"token: there is already a token '{name}'.", hint)
    if problem := token_name_problem([*workspace.config.http.tokens, name]):
        raise usage_error(f"token: {problem}", "`switchboard token list` shows all.")
    require_profile(workspace.config, profile, "--profile")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    stored = HASHED + sha256(token.encode()).hexdigest()
    more = {
        key: value for key, value in (("profile", profile), ("dashboard", invocation.args.dashboard)) if value
    }
    path = _edit(workspace, [], {name: {"token": stored, **more} if more else stored})
    if invocation.as_json:
        invocation.console.out.json({"name": name, "token": token, "file": path})
        return 0
    invocation.console.out.line(token)
    invocation.console.err.line(
        f"This is the token of {name}; it is not shown again. Its hash is in {path}.", "dim"
    )
    _note_governed(workspace, invocation)
    return 0


def _revoke(workspace: Workspace, invocation: Invocation) -> int:
    name, tokens = invocation.args.name, workspace.config.http.tokens
    if name not in tokens:
        message = f"There is no token '{name}'.{did_you_mean(name, tokens)}"
        raise usage_error(message, "`switchboard token list` shows all.")
    path = _edit(workspace, [name], {})
    if invocation.as_json:
        invocation.console.out.json({"name": name, "revoked": True, "file": path})
    else:
        invocation.console.out.line(f"Revoked {name}.", "green")
        _note_governed(workspace, invocation)
    return 0


def _list(workspace: Workspace, invocation: Invocation) -> int:
    rows = [
        {
            "name": name,
            "stored": "hash"
            if token_text(token).startswith(HASHED)
            else "variable"
            if "${" in token_text(token)
            else "literal",
            "profile": token.profile if isinstance(token, Token) else "",
            "dashboard": token.dashboard if isinstance(token, Token) else "",
        }
        for name, token in workspace.config.http.tokens.items()
    ]
    out = invocation.console.out
    if invocation.as_json:
        out.json({"tokens": rows})
    elif rows:
        table = [
            (Styled(row["name"], "bold"), row["stored"], row["profile"], row["dashboard"]) for row in rows
        ]
        out.table(table, ("NAME", "STORED AS", "PROFILE", "DASHBOARD"))
    else:
        out.line("No named tokens. `switchboard token new NAME` creates one.", "dim")
    return 0


def _edit(workspace: Workspace, remove: list[str], put: dict[str, object]) -> str:
    """Change the tokens in the config file, and return its path."""
    path = workspace.source or os.path.join(workspace.folder, JSON_NAME)
    try:
        if formats.guess_format(path) != "json":
            raise UnsafeEditError("is not JSON.")
        text = jsonc_edit.replace_members(formats.decode(read(path) or b""), PATH, remove, put)
    except UnsafeEditError as problem:
        lines = [
            f'{name} = "{value}"' if isinstance(value, str) else f"{name}" for name, value in put.items()
        ]
        hint = f"Edit http.tokens by hand: {', '.join(lines or remove)}."
        raise refused("setup_refused", f"{path} {problem}", hint=hint) from None
    write(path, text.encode(), 0o644)
    return path


def _note_governed(workspace: Workspace, invocation: Invocation) -> None:
    if workspace.config.governance.mode == "governed":
        invocation.console.err.line("This workspace is governed: run `switchboard approve --settings`.")
