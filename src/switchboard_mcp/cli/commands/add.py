"""`switchboard add`, `remove` and `import`: the children of a workspace, one by one or from a file.

The files of children are rendered by `setup.child_entries`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from msgspec import to_builtins

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.commands.init import allow_added, decide_outcomes, existing_setup
from switchboard_mcp.cli.console import Screen
from switchboard_mcp.cli.init_view import show_discovery
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional, repeatable
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.files.secrets_file import SECRETS_FILE, append_secrets, parse_secrets
from switchboard_mcp.config.load import is_workspace, load_workspace, read_config
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.config.sandbox import PRESETS, Preset, brief
from switchboard_mcp.errors import refused, shell_word
from switchboard_mcp.setup.child_entries import (
    FOLDER,
    PERSONAL,
    RESERVED,
    TEAM,
    USER,
    ChildrenFolder,
    child_path,
    find_literal_secrets,
    find_problem,
    is_missing,
    redacted_target,
    render_child,
    require_discoverable,
    safe_name,
)
from switchboard_mcp.setup.dialects import HostServer, Kind
from switchboard_mcp.setup.discovery import discover_servers
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.journal import (
    make_folders,
    make_private_folder,
    read,
    remove,
    require_real_folders,
    write,
)
from switchboard_mcp.setup.known_servers import SandboxProposal, propose_sandbox
from switchboard_mcp.setup.paths import host_paths
from switchboard_mcp.setup.plan import NewChild, SecretStore, move_secrets
from switchboard_mcp.setup.suite_settings import write_suites
from switchboard_mcp.suites.fuzzy import did_you_mean
from switchboard_mcp.system.atomic_write import GITIGNORE
from switchboard_mcp.system.user_folders import user_workspace

SANDBOXES = tuple(PRESETS)
SEE_LIST = "`switchboard list` shows the children."


def run(invocation: Invocation) -> int:
    """Add one child."""
    folder = _target_folder(invocation)
    is_user = os.path.realpath(folder) == os.path.realpath(user_workspace(os.environ) or os.devnull)
    if is_user:
        make_folders(folder)
    workspace = load_workspace(folder, None if is_user else invocation.options.config, os.environ)
    home = TEAM if invocation.args.team else USER if is_user else PERSONAL
    require_discoverable(workspace.config, workspace.source, home)
    name = invocation.args.name
    if name != safe_name(name) or name in RESERVED:
        message = f"add: '{name}' cannot be the name of a child."
        raise usage_error(message, f"Try '{safe_name(name)}': letters, digits, - and _.")
    if name in existing_setup(workspace).names:
        message = f"add: child '{name}' already exists."
        raise usage_error(message, f"Choose another name, or `switchboard remove {shell_word(name)}` first.")
    server = _server(invocation)
    preset: Preset | None = invocation.args.sandbox or None
    if preset is not None and not server.command:
        raise usage_error("add: --sandbox is for servers that are programs.", "Omit it.")
    if problem := find_problem(name, server, folder):
        raise usage_error(f"add: {problem}", "Correct it and try again.")
    child = NewChild(name=name, server=server)
    names = _move_secrets(folder, [child], invocation.args.secrets)
    server = child.server
    is_new = not is_workspace(folder)
    path = _put(folder, name, server, home)
    allow_added(folder, None if is_user else invocation.options.config, [name])
    sandbox = propose_sandbox(server.command, server.args, server.cwd or folder, preset or "workspace")
    settings = to_builtins(sandbox.settings) if preset is not None else None
    if settings is not None:
        write_suites(workspace, {name: {"sandbox": settings}})
    if invocation.as_json:
        secrets = [secret.location for secret in find_literal_secrets(server)]
        more = {"sandbox": settings} if settings is not None else {}
        answer = {"child": name, "file": path, "runs": redacted_target(server), "secrets": secrets}
        invocation.console.out.json(answer | more)
        return 0
    _show_added(invocation, child, path, names, None if is_user else is_new)
    if server.command:
        _show_sandbox(invocation.console.out, name, sandbox, is_set=settings is not None)
    return 0


def _show_added(
    invocation: Invocation, child: NewChild, path: str, names: list[str], is_new: bool | None
) -> None:
    """Say what was added, and what is still to do. `is_new` means that the workspace is, None that it is the user's."""
    name, server = child.name, child.server
    invocation.console.out.line(f"Added {name} in {path}.", "green")
    if names:
        invocation.console.out.line(f"Stored {', '.join(names)}; `switchboard secret list` shows where.")
    if secrets_found := find_literal_secrets(server):
        places = ", ".join(secret.location for secret in secrets_found)
        invocation.console.warn(
            f"{places}: that file contains a literal secret. Write ${{VAR}} and store its value with "
            "`switchboard secret set VAR`, or use --secrets."
        )
    if is_missing(server.command):
        invocation.console.warn(
            f"The program {server.command} was not found here. Install it, or use its full path."
        )
    invocation.console.out.line(f"`switchboard introspect {shell_word(name)}` shows its subtools.")
    if is_new and is_workspace(user_workspace(os.environ)):
        invocation.console.out.prose(
            "Your hosts see it once they have an entry for this folder: `switchboard init --host HOST`. For a "
            "server in every project, use `add --user`."
        )


ADD = Command(
    "add NAME -- CMD [ARGS …]  |  add NAME --url URL [OPTIONS]",
    "Add a server as a child of this workspace.",
    run=run,
    arguments=[
        positional("name", "name of the new child"),
        option("--url", "URL", "address of a remote server"),
        repeatable("--header", "K=V", "an HTTP header; ${VAR} is expanded"),
        repeatable("--env", "K=V", "an environment variable; ${VAR} is expanded"),
        choice("--type", ("stdio", "http", "sse", "ws"), "transport of the server"),
        option("--description", "TEXT", "purpose, shown to models"),
        option("--cwd", "DIR", "folder to run in (default: the workspace)"),
        flag("--team", "put it into mcps/, which is shared with the project"),
        choice("--secrets", ("keep", "env", "keyring"), "as for `init`", "keep"),
        choice("--sandbox", SANDBOXES, "confine it: its known needs, or this preset; see `sandbox learn`"),
        flag("--user", "put it into the user workspace, which every project includes"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard add memory -- npx -y @modelcontextprotocol/server-memory\n"
        "  switchboard add tracker --url https://tracker.example/mcp "
        "--header 'Authorization=Bearer ${TRACKER_TOKEN}'"
    ),
)


def _show_sandbox(out: Screen, name: str, sandbox: SandboxProposal, *, is_set: bool) -> None:
    """Say which sandbox the child has, or could have."""
    if not is_set:
        save = f"`switchboard sandbox learn {shell_word(name)} --save`"
        settings = f" It is known to work in `{brief(sandbox.settings)}`." if sandbox.is_known else ""
        out.prose(f"It runs without a sandbox. {save} finds one that it works in.{settings}")
        return
    learn = f"`switchboard sandbox learn {shell_word(name)}`"
    out.prose(f"Its sandbox is {brief(sandbox.settings)}. {learn} tries it.")
    if sandbox.note:
        out.prose(f"Note: {sandbox.note}")


def _target_folder(invocation: Invocation) -> str:
    """Return the folder of the workspace that gets the child."""
    args = invocation.args
    if not args.user:
        return project_folder(invocation.options)
    if args.team or invocation.options.workspace:
        other = "--team" if args.team else "--workspace"
        raise usage_error(f"add: --user and {other} cannot be combined.", "Omit one of them.")
    folder = user_workspace(os.environ)
    if not folder:
        raise usage_error("add: there is no home folder for the user workspace.", "Set HOME.")
    return folder


def _server(invocation: Invocation) -> HostServer:
    args, program = invocation.args, list(invocation.args.program)
    if bool(program) == bool(args.url):
        message = "add: give either -- CMD [ARGS …] or --url URL."
        raise usage_error(message, "`switchboard add --help` has examples.")
    if program:
        return HostServer(
            kind="stdio",
            command=program[0],
            args=program[1:],
            env=_pairs(args.env, "--env"),
            cwd=os.path.abspath(args.cwd) if args.cwd else "",
            description=args.description,
        )
    if not re.match(r"(https?|wss?)://[^/\s]|\$\{", args.url, re.IGNORECASE):
        message = f"add: --url '{args.url}' is not a URL of a server."
        raise usage_error(message, "It begins with https://, http://, wss:// or ws://, and names a host.")
    older = args.url.partition("?")[0].rstrip("/").endswith("/sse")
    kind: Kind = args.type or ("ws" if args.url.startswith("ws") else "sse" if older else "http")
    return HostServer(
        kind=kind, url=args.url, headers=_pairs(args.header, "--header"), description=args.description
    )


def _pairs(words: list[str], flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and ":" in word:
            name, equals, value = word.partition(":")
        if not name.strip() or not equals:
            raise usage_error(f"add: {flag} {name}: expected K=V.", "Write e.g. K=V.")
        pairs[name.strip()] = value.strip()
    return pairs


def _put(folder: str, name: str, server: HostServer, home: ChildrenFolder = PERSONAL) -> str:
    """Write the file of a child, and the `.gitignore` its folder needs."""
    path = child_path(folder, name, home)
    require_real_folders(folder, [path])
    make_private_folder(os.path.join(folder, FOLDER))
    ignore = os.path.join(folder, FOLDER, ".gitignore")
    if read(ignore) is None:
        write(ignore, GITIGNORE, 0o644)
    make_folders(os.path.dirname(path))
    write(path, render_child(name, server, folder, home), home.mode)
    return path


def run_remove(invocation: Invocation) -> int:
    """Remove one child, keeping a copy of its entry."""
    folder = project_folder(invocation.options)
    workspace = load_workspace(folder, invocation.options.config, os.environ, include_user=True)
    name = invocation.args.name
    source, key = _find(workspace, name)
    data = read(source) or b""
    # A copy may have secrets, so it stays in the workspace that the entry was in.
    user = workspace.user
    of_user = user is not None and name in user.children
    backup = _keep(user.folder if user is not None and of_user else folder, name, data)
    if key:
        try:
            text = formats.replace_servers(
                formats.decode(data), formats.guess_format(source), ("mcpServers",), [name], {}
            )
        except UnsafeEditError as problem:
            raise refused("setup_refused", f"{source} {problem}") from None
        write(source, text.encode(), 0o600)
    else:
        remove(source)
        try:
            os.rmdir(os.path.dirname(source))
        except OSError:
            pass  # The folder holds other files, which are not ours to remove.
    if invocation.as_json:
        invocation.console.out.json({"child": name, "file": source, "kept": backup})
    else:
        invocation.console.out.line(
            f"Removed {name} from {source}. A copy of its entry is in {backup}.", "green"
        )
        if workspace.source and name in read_config(workspace.source).suites:
            invocation.console.warn(f"{workspace.source}: suites.{name} is still there; remove it too.")
    return 0


REMOVE = Command(
    "remove NAME [OPTIONS]",
    "Remove a child of this workspace. A copy of its entry is kept in .switchboard/backup/removed/.",
    run=run_remove,
    arguments=[
        positional("name", "name of a child"),
    ],
)


def _find(workspace: Workspace, name: str) -> tuple[str, str]:
    """Return the file of a child and its key in it; disabled children have a file too."""
    by_name: dict[str, ChildSpec] = {spec.name: spec for spec in workspace.children if spec.kind != "builtin"}
    if name in by_name:
        return by_name[name].source, by_name[name].key
    for home in (PERSONAL, TEAM):
        path = child_path(workspace.folder, name, home)
        if name == safe_name(name) and os.path.exists(path):
            return path, ""
    message = f"There is no child '{name}' in {workspace.folder}.{did_you_mean(name, by_name)}"
    raise usage_error(message, SEE_LIST)


def _keep(folder: str, name: str, data: bytes) -> str:
    home = os.path.join(folder, FOLDER, "backup", "removed")
    require_real_folders(folder, [os.path.join(home, name)])
    make_private_folder(os.path.join(folder, FOLDER))
    make_private_folder(home)
    number = 1
    while os.path.exists(path := os.path.join(home, f"{safe_name(name)}-{number}.json")):
        number += 1
    write(path, data, 0o600)
    return path


def run_import(invocation: Invocation) -> int:
    """Copy the servers of files as children, leaving the files unchanged."""
    folder = project_folder(invocation.options)
    workspace = load_workspace(folder, invocation.options.config, os.environ)
    require_discoverable(workspace.config, workspace.source)
    survey = discover_servers(
        host_paths(folder, os.environ, sys.platform), (), invocation.args.files, named=False
    )
    outcomes, children = decide_outcomes(survey, workspace)
    if not survey.servers and survey.problems:
        raise refused("setup_refused", "\n".join(survey.problems), hint="Nothing was added.")
    if not invocation.args.dry_run:
        _move_secrets(folder, children, invocation.args.secrets)
        for child in children:
            _put(folder, child.name, child.server)
        allow_added(folder, invocation.options.config, [child.name for child in children])
    added = sorted(child.name for child in children)
    if invocation.as_json:
        stays = {outcome.entry.name: outcome.skip_reason for outcome in outcomes if not outcome.moves}
        answer = {"children": added, "left": stays, "troubles": survey.problems}
        invocation.console.out.json({**answer, "changed": bool(added) and not invocation.args.dry_run})
    else:
        show_discovery(survey, outcomes, folder, invocation.console.out)
        verb = "Would add" if invocation.args.dry_run else "Added"
        invocation.console.out.line(f"{verb} {', '.join(added) or 'nothing'}.", "green" if added else "")
    return 0


IMPORT = Command(
    "import FILE … [OPTIONS]",
    "Copy the servers of a file as children of this workspace, leaving the file unchanged.\n"
    "`init FILE` moves them.",
    run=run_import,
    arguments=[
        positional("files", "a host's own file, or any with `mcpServers`", metavar="FILE", nargs="+"),
        flag("--dry-run", "show the plan, change nothing"),
        choice("--secrets", ("keep", "env", "keyring"), "as for `init`", "keep"),
    ],
)


def _move_secrets(folder: str, children: Sequence[NewChild], store: SecretStore) -> list[str]:
    """Replace literal secrets in the children by variables, store their values, and return their names."""
    if store == "keep":
        return []
    path = os.path.join(folder, SECRETS_FILE)
    data = read(path) or b""
    values = move_secrets(children, parse_secrets(data))
    if store == "keyring" and values:
        entries = {name: (keyring_store.new_reference(), value) for name, value in values.items()}
        keyring_store.save_all(entries)
        values = {name: reference for name, (reference, _) in entries.items()}
    if values:
        require_real_folders(folder, [path])
        make_private_folder(os.path.join(folder, FOLDER))
        write(path, append_secrets(data, values), 0o600)
    return sorted(values)
