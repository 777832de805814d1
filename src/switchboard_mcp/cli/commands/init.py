"""`switchboard init`: move the servers of all hosts behind Switchboard.

Handles the dialog. Discovery, decisions and file changes are in `setup`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence

from msgspec import structs

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.commands.revert import CHANGING
from switchboard_mcp.cli.commands.revert import show_plan as show_revert
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.init_view import as_json, show_discovery, show_done, show_plan
from switchboard_mcp.cli.invocation import DRY_RUN_FIRST, YES, Invocation, own_command, prompt, usage_error
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional, repeatable
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.load import JSON_NAME, load_workspace
from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.config.trust import allow_children
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.policy.governance import ENABLED
from switchboard_mcp.setup.child_entries import (
    PERSONAL,
    TEAM,
    USER,
    find_literal_secrets,
    hosts_of_child,
    require_discoverable,
    server_from_spec,
    taken_names,
)
from switchboard_mcp.setup.discovery import Discovery, discover_servers
from switchboard_mcp.setup.host_profiles import is_host_profile
from switchboard_mcp.setup.hosts import ANY_FILE, BY_NAME, HOSTS
from switchboard_mcp.setup.journal import (
    LEGACY_FOLDER,
    journal_folder,
    legacy_copies,
    load_runs,
)
from switchboard_mcp.setup.known_servers import propose_sandbox
from switchboard_mcp.setup.paths import HostPaths, host_paths
from switchboard_mcp.setup.plan import (
    ExistingSetup,
    NewChild,
    Outcome,
    Plan,
    SandboxChoice,
    SecretStore,
    SetupOptions,
    decide,
)
from switchboard_mcp.setup.references import ServerReference, find_references
from switchboard_mcp.setup.revert import interrupted, perform_revert, plan_revert
from switchboard_mcp.setup.scopes import (
    ScopePlan,
    SetupScope,
    apply_scopes,
    combine,
    decide_scopes,
    plan_scopes,
)
from switchboard_mcp.suites.fuzzy import did_you_mean
from switchboard_mcp.system.user_folders import user_workspace

Ask = Callable[[str], str]
HELP_CHARS = 110


def run(invocation: Invocation) -> int:
    """Run `init` with questions on the terminal."""
    return initialise(invocation, prompt)


COMMAND = Command(
    "init [OPTIONS] [FILE …]",
    textwrap.fill(
        f"Find the MCP servers that your hosts have ({', '.join(host.title for host in HOSTS)}), move them "
        "behind Switchboard, and leave each host with one entry. Copies of all files are kept; "
        "`switchboard revert` undoes it.",
        HELP_CHARS,
    ),
    run=run,
    arguments=[
        positional("files", "also read this file, whatever program it belongs to", metavar="FILE", nargs="*"),
        flag("--yes", "move everything that can move, without asking"),
        flag("--dry-run", "show the plan, change nothing"),
        repeatable(
            "--host",
            "NAME",
            "only this host, which gets an entry even without servers; `file` means the named files only",
        ),
        choice(
            "--secrets",
            ("keep", "env", "keyring"),
            "what to do with literal secrets: keep them, or replace them with ${VAR} and store them in "
            ".switchboard/secrets.env (env) or in the system keyring",
            "keep",
        ),
        flag(
            "--team",
            "for everyone on this project: only its own files, children in mcps/, no paths of this machine",
        ),
        flag(
            "--share",
            "every host sees the servers of all hosts (default: each sees those it had, by its own profile)",
        ),
        flag("--find", "enable the suite that searches all others"),
        flag("--mail", "enable mail between agents"),
        choice(
            "--sandbox",
            tuple(PRESETS),
            "confine new children that are programs: what they are known to need, otherwise this preset",
        ),
        option("--command", "PROGRAM", "the command hosts run (default: the path of this program)"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard init                       show, choose, confirm\n"
        "  switchboard init --dry-run             only show the plan\n"
        "  switchboard init --yes --host codex    all servers of one host\n"
        "  switchboard init --team                the project's own servers, for everyone on it"
    ),
)


def initialise(invocation: Invocation, ask: Ask) -> int:
    """Discover, ask, plan and apply; `ask` puts a question to the person."""
    args = invocation.args
    interactive = not (args.yes or args.dry_run)
    if interactive and (invocation.as_json or not sys.stdin.isatty()):
        raise usage_error("init: nobody is present to choose.", DRY_RUN_FIRST)
    if args.secrets == "keyring":
        keyring_store.open_keyring("switchboard init --secrets env")
    folder = project_folder(invocation.options)
    here = host_paths(folder, os.environ, sys.platform)
    if not args.dry_run and not _undo_interrupted(invocation, here, ask if interactive else None):
        invocation.console.out.line("Nothing was changed.")
        return 1
    scopes = _scopes(invocation, folder)
    for scope in scopes:
        home = TEAM if args.team else PERSONAL
        require_discoverable(scope.workspace.config, scope.workspace.source, home)
    survey = discover_servers(here, _host_names(args.host), args.files, named=bool(args.host), team=args.team)
    outcomes = decide_scopes(survey, scopes, share=args.share or args.team)
    if not invocation.as_json:
        present = sorted(
            spec.name for scope in scopes for spec in scope.workspace.children if spec.kind != "builtin"
        )
        show_discovery(survey, outcomes, folder, invocation.console.out, present, named=bool(args.host))
    if interactive:
        outcomes = _choose(outcomes, ask)
    options = _options(invocation, survey, outcomes, scopes, ask if interactive else None)
    plans = plan_scopes(survey, outcomes, scopes, options)
    whole = combine(survey, plans)
    references = _references(whole, here)
    agreed = bool(whole.changes) and not args.dry_run
    if agreed and interactive:
        show_plan(plans, invocation.console.out)
        agreed = ask(f"Change {plural(len(whole.changes), 'file')}? [Y/n]") in ("", *YES)
    if agreed:
        _apply(plans, invocation, scopes, outcomes)
    if invocation.as_json:
        invocation.console.out.json(as_json(whole, references, scopes, changed=agreed))
    elif agreed:
        show_done(plans, whole, references, invocation.console.out)
    elif args.dry_run:
        show_plan(plans, invocation.console.out)
    else:
        nothing = "There is nothing to do." if not whole.changes else "Nothing was changed."
        invocation.console.out.line(nothing)
    return 0


def allow_added(folder: str, config: str | None, names: Sequence[str]) -> None:
    """Say yes to children that were just added here. If that fails, their parts stay off, and say so."""
    with contextlib.suppress(OSError, SwitchboardError):
        allow_children(load_workspace(folder, config, os.environ, withhold=False), os.environ, names)


def _apply(
    plans: list[ScopePlan], invocation: Invocation, scopes: list[SetupScope], outcomes: list[Outcome]
) -> None:
    """Change the files. What a person moves here by this command has the yes that it may need."""
    apply_scopes(plans, invocation.args.files)
    moved = [outcome.child for outcome in outcomes if outcome.moves]
    for scope in scopes:
        allow_added(scope.workspace.folder, invocation.options.config, moved)


def _undo_interrupted(invocation: Invocation, here: HostPaths, ask: Ask | None) -> bool:
    """Undo an interrupted run, after asking unless nobody is present. Return False if the person refuses."""
    out = invocation.console
    if legacy_copies(here.workspace):
        out.warn(
            f"{LEGACY_FOLDER} has copies of an earlier release; `switchboard revert` explains what they are."
        )
    folders = [here.workspace, *filter(None, [user_workspace(os.environ)])]
    places = {place.path: place for place in (journal_folder(folder, os.environ) for folder in folders)}
    runs = [run for place in places.values() for run in load_runs(place)]
    steps = plan_revert(interrupted(runs), here, folders)
    if not steps:
        return True
    count = plural(sum(step.verdict in CHANGING for step in steps), "file")
    if ask is not None:
        show_revert(steps, out.out)
        question = f"An earlier run was interrupted. Undo its changes of {count} first? [Y/n]"
        if ask(question) not in ("", *YES):
            return False
    perform_revert(steps)
    out.warn(f"An earlier run was interrupted; its changes of {count} were undone first.")
    return True


def _scopes(invocation: Invocation, folder: str) -> list[SetupScope]:
    """Return the workspaces to set up: that of the user first, unless the project is set up for everyone."""
    project = load_workspace(folder, invocation.options.config, os.environ)
    user_folder = user_workspace(os.environ)
    is_user = bool(user_folder) and os.path.realpath(folder) == os.path.realpath(user_folder)
    own = _scope(project, is_user=is_user)
    if is_user or not user_folder or invocation.args.team:
        return [own]
    user = Workspace(folder=user_folder, config=Config(), children=[], warnings=[])
    if os.path.isdir(user_folder):
        user = load_workspace(user_folder, None, os.environ)
    scope = _scope(user, is_user=True)
    own.present.included.update(
        {spec.name: hosts_of_child(spec) for spec in user.children if spec.kind != "builtin"}
    )
    return [scope, own]


def _scope(workspace: Workspace, *, is_user: bool) -> SetupScope:
    return SetupScope(
        workspace=workspace,
        present=existing_setup(workspace),
        is_user=is_user,
        journals=journal_folder(workspace.folder, os.environ),
    )


def _options(
    invocation: Invocation,
    survey: Discovery,
    outcomes: Sequence[Outcome],
    scopes: Sequence[SetupScope],
    ask: Ask | None,
) -> list[SetupOptions]:
    """Return the options of the plan of each workspace."""
    connect = _connected(invocation, survey, scopes)
    users = {id(outcome.entry) for scope in scopes if scope.is_user for outcome in scope.outcomes}
    by_user = {moved.entry.source.host.name for moved in outcomes if moved.moves and id(moved.entry) in users}
    by_user.update(name for scope in scopes if scope.is_user for name in _entered(survey, scope))
    moving = {id(outcome.entry) for outcome in outcomes if outcome.moves}
    targets = [
        scope for scope in scopes if any(id(outcome.entry) in moving for outcome in scope.outcomes)
    ] or [scopes[-1]]
    enable = _features(invocation, [scope.workspace for scope in targets], ask)
    sandbox = _sandbox(invocation, outcomes, ask)
    secrets = _secrets(invocation, outcomes, ask)
    return [
        setup_options(
            invocation,
            scope,
            scopes,
            enable if scope in targets else (),
            sandbox=sandbox,
            secrets=secrets,
            entered=_entered(survey, scope),
            entered_by_user=sorted(by_user),
            connect=[name for name, target in connect.items() if target is scope],
        )
        for scope in scopes
    ]


def _entered(survey: Discovery, scope: SetupScope) -> list[str]:
    """Return the hosts that have an entry of their own for a workspace."""
    return [
        server.source.host.name
        for server in survey.servers
        if server.parsed.serves_folder == scope.folder and not server.source.shared
    ]


def _connected(
    invocation: Invocation, survey: Discovery, scopes: Sequence[SetupScope]
) -> dict[str, SetupScope]:
    """Return the hosts that were named, each with the workspace that its entry serves if no server moves from it."""
    user, project = scopes[0], scopes[-1]
    of_user = {source.host.name for source in survey.sources if source.of_user}
    # Children that were moved from other hosts are for those hosts; others are for every host.
    for_all = project.present.children.keys() - project.present.hosts_of.keys()
    here = bool(for_all) or (bool(project.present.children) and not (user.present.children or user.children))
    return {
        name: project if here or name not in of_user else user
        for name in invocation.args.host
        if name != ANY_FILE.name
    }


def existing_setup(workspace: Workspace) -> ExistingSetup:
    """Return the children the workspace already has."""
    children = {
        spec.name: server_from_spec(spec, workspace.config, workspace.folder)
        for spec in workspace.children
        if spec.kind != "builtin"
    }
    hosts_of = {spec.name: hosts for spec in workspace.children if (hosts := hosts_of_child(spec))}
    names = taken_names(workspace.folder, workspace.children)
    return ExistingSetup(children=children, names=names, hosts_of=hosts_of)


def setup_options(
    invocation: Invocation,
    scope: SetupScope,
    scopes: Sequence[SetupScope],
    enable: tuple[str, ...],
    *,
    sandbox: SandboxChoice = "",
    secrets: SecretStore = "keep",
    connect: Sequence[str] = (),
    entered: Sequence[str] = (),
    entered_by_user: Sequence[str] = (),
) -> SetupOptions:
    """Return the options of the plan of one workspace."""
    args, workspace = invocation.args, scope.workspace
    config = None if scope.is_user and len(scopes) > 1 else invocation.options.config
    if args.team and (args.command or config):
        message = f"init: --team and {'--command' if args.command else '--config'} cannot be combined."
        raise usage_error(message, "What a team shares must work on every machine.")
    command = [args.command] if args.command else own_command()
    more = ["--config", os.path.abspath(config)] if config else []
    project = scopes[-1].workspace
    includes_user = project.config.governance.mode == "open" and project.config.include_user is not False
    return SetupOptions(
        workspace=workspace.folder,
        config=workspace.source or os.path.join(workspace.folder, JSON_NAME),
        command=[] if args.team else [*command, "--workspace", workspace.folder, *more],
        environ=os.environ,
        children=TEAM if args.team else USER if scope.is_user else PERSONAL,
        secrets=secrets,
        enable=enable,
        sandbox=sandbox,
        entry_env={ENABLED: "true"} if workspace.config.governance.mode == "governed" else {},
        is_governed=workspace.config.governance.mode == "governed",
        connect=tuple(connect),
        entered=tuple(entered),
        entered_by_user=tuple(entered_by_user),
        share=args.share or args.team,
        hosts_of=scope.present.hosts_of,
        hidden={
            name: profile.hide
            for name, profile in (workspace.written or workspace.config).profiles.items()
            if is_host_profile(name)
        },
        user_workspace=user_workspace(os.environ),
        is_user=scope.is_user and len(scopes) > 1,
        includes_user=includes_user and not scope.is_user,
        reached_from=(project.folder,) if scope.is_user and includes_user else (),
    )


def _host_names(named: Sequence[str]) -> list[str]:
    for name in named:
        if name not in BY_NAME and name != ANY_FILE.name:
            message = f"init: there is no host '{name}'.{did_you_mean(name, BY_NAME)}"
            raise usage_error(message, f"Known hosts: {', '.join(BY_NAME)}.")
    return list(named) or list(BY_NAME)


def _choose(outcomes: list[Outcome], ask: Ask) -> list[Outcome]:
    """Ask which of the movable servers to move."""
    movable = [outcome for outcome in outcomes if outcome.moves]
    if not movable:
        return outcomes
    while True:
        answer = ask(f"Move which? [all {len(movable)}; or numbers such as 1,3-5; or none]")
        numbers = parse_choice(answer, len(movable))
        if numbers is not None:
            break
    keep = {id(outcome) for number, outcome in enumerate(movable, 1) if number in numbers}
    return [
        outcome
        if not outcome.moves or id(outcome) in keep
        else structs.replace(outcome, child="", skip_reason="it was not chosen")
        for outcome in outcomes
    ]


def parse_choice(answer: str, count: int) -> set[int] | None:
    """Parse an answer such as `1,3-5`; None if it is not understood."""
    if answer in ("", "all", "y", "yes"):
        return set(range(1, count + 1))
    if answer in ("none", "n", "no", "0", "q", "quit"):
        return set()
    numbers: set[int] = set()
    for part in re.split(r"[,\s]+", answer):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            return None
        numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers if numbers <= set(range(1, count + 1)) else None


def _features(invocation: Invocation, workspaces: Sequence[Workspace], ask: Ask | None) -> tuple[str, ...]:
    """Return the built-in suites to enable."""
    configs = [workspace.config for workspace in workspaces]
    offers = (
        (
            "find",
            all(config.find.enabled for config in configs),
            "Enable `find`, a suite that searches all others (about 90 tokens)?",
        ),
        (
            "mail",
            all(config.mail.enabled for config in configs),
            "Enable `mail`, messages between agents (about 90 tokens)?",
        ),
    )
    enabled: list[str] = []
    for name, already, question in offers:
        if already:
            continue
        if getattr(invocation.args, name) or (ask is not None and ask(f"{question} [y/N]") in YES):
            enabled.append(name)
    return tuple(enabled)


def _sandbox(invocation: Invocation, outcomes: Sequence[Outcome], ask: Ask | None) -> SandboxChoice:
    """Return the preset for new children, or `known` if those with known needs are to be confined."""
    chosen: SandboxChoice = invocation.args.sandbox
    if chosen or ask is None or not sys.platform.startswith("linux"):
        return chosen
    servers = {outcome.child: outcome.entry.parsed.server for outcome in outcomes if outcome.moves}
    proposals = [
        name
        for name, server in servers.items()
        if server is not None and server.command and propose_sandbox(server.command, server.args, "").is_known
    ]
    if not proposals:
        return ""
    question = f"Confine {', '.join(sorted(proposals))} in sandboxes with what they are known to need?"
    return "known" if ask(f"{question} [y/N]") in YES else ""


def _secrets(invocation: Invocation, outcomes: Sequence[Outcome], ask: Ask | None) -> SecretStore:
    """Return what happens to secrets that are written out in the entries that move."""
    chosen: SecretStore = invocation.args.secrets
    if chosen != "keep" or ask is None:
        return chosen
    servers = {outcome.child: outcome.entry.parsed.server for outcome in outcomes if outcome.moves}
    literal = sorted(name for name, server in servers.items() if server and find_literal_secrets(server))
    if not literal:
        return chosen
    question = f"Store the secrets written out in the entries of {', '.join(literal)} in a private file?"
    return "env" if ask(f"{question} [y/N]") in YES else chosen


def _references(plan: Plan, here: HostPaths) -> list[ServerReference]:
    references: list[ServerReference] = []
    for host in BY_NAME.values():
        names = {outcome.entry.name for outcome in plan.moving if outcome.entry.source.host is host}
        if names:
            references += find_references(host, sorted(names), here)
    return references


def decide_outcomes(survey: Discovery, workspace: Workspace) -> tuple[list[Outcome], list[NewChild]]:
    """Decide what happens to each discovered server, given the workspace's children."""
    return decide(survey, existing_setup(workspace), workspace.folder)
