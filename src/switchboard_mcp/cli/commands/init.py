"""`switchboard init`: move the servers of all hosts behind Switchboard.

Handles the dialog. Discovery, decisions and file changes are in `setup`.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence

from msgspec import structs

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.commands.revert import show as show_revert
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.init_view import as_json, show_discovery, show_done, show_plan
from switchboard_mcp.cli.invocation import DRY_RUN_FIRST, YES, Invocation, own_command, prompt, usage_error
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional, repeatable
from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.load import JSON_NAME, load_workspace
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.policy.governance import ENABLED
from switchboard_mcp.setup.child_entries import (
    FOLDER,
    PERSONAL,
    TEAM,
    hosts_of_child,
    require_discoverable,
    server_from_spec,
    taken_names,
)
from switchboard_mcp.setup.discovery import Discovery, discover_servers
from switchboard_mcp.setup.host_profiles import PROJECT
from switchboard_mcp.setup.hosts import ANY_FILE, BY_NAME, HOSTS
from switchboard_mcp.setup.journal import (
    LEGACY_FOLDER,
    JournalFolder,
    begin,
    journal_folder,
    legacy_copies,
    load_runs,
    make_private_folder,
    perform,
    require_real_folders,
)
from switchboard_mcp.setup.paths import HostPaths, host_paths
from switchboard_mcp.setup.plan import (
    CONFIG_SCHEMA,
    ExistingSetup,
    NewChild,
    Outcome,
    Plan,
    SetupOptions,
    decide,
    make_plan,
)
from switchboard_mcp.setup.references import ServerReference, find_references
from switchboard_mcp.setup.revert import interrupted, perform_revert, plan_revert
from switchboard_mcp.suites.fuzzy import did_you_mean

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
            "every host sees the servers of all hosts (default: each sees those it had, by a profile of its own)",
        ),
        flag("--find", "enable the suite that searches all others"),
        flag("--mail", "enable mail between agents"),
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
    folder = workspace_folder(invocation.options)
    here = host_paths(folder, os.environ, sys.platform)
    if not args.dry_run and not _undo_interrupted(invocation, here, ask if interactive else None):
        invocation.console.out.line("Nothing was changed.")
        return 1
    workspace = load_workspace(folder, invocation.options.config, os.environ)
    require_discoverable(workspace.config, workspace.source, TEAM if args.team else PERSONAL)
    survey = discover_servers(here, _host_names(args.host), args.files, named=bool(args.host), team=args.team)
    share = args.share or args.team
    outcomes, children = decide(survey, existing_setup(workspace), folder, share=share)
    if not invocation.as_json:
        present = sorted(spec.name for spec in workspace.children if spec.kind != "builtin")
        show_discovery(survey, outcomes, folder, invocation.console.out, present)
    if interactive:
        outcomes = _choose(outcomes, ask)
    options = setup_options(
        invocation, workspace, _features(invocation, workspace, ask if interactive else None)
    )
    plan = make_plan(survey, outcomes, children, options)
    references = _references(plan, here)
    agreed = bool(plan.changes) and not args.dry_run
    if agreed and interactive:
        show_plan(plan, invocation.console.out)
        agreed = ask(f"Change {plural(len(plan.changes), 'file')}? [Y/n]") in ("", *YES)
    journals = journal_folder(folder, os.environ)
    if agreed:
        schema = os.path.join(os.path.dirname(options.config), CONFIG_SCHEMA)
        _apply(plan, journals, folder, [*args.files, options.config, schema])
    if invocation.as_json:
        invocation.console.out.json(as_json(plan, references, folder, changed=agreed))
    elif agreed:
        show_done(plan, references, workspace, options, journals.path, invocation.console.out)
    elif args.dry_run:
        show_plan(plan, invocation.console.out)
    else:
        invocation.console.out.line("There is nothing to do." if not plan.changes else "Nothing was changed.")
    return 0


def _undo_interrupted(invocation: Invocation, here: HostPaths, ask: Ask | None) -> bool:
    """Undo an interrupted run, after asking unless nobody is present. Return False if the person refuses."""
    out = invocation.console
    if legacy_copies(here.workspace):
        out.warn(
            f"{LEGACY_FOLDER} has copies of an earlier release; `switchboard revert` explains what they are."
        )
    steps = plan_revert(interrupted(load_runs(journal_folder(here.workspace, os.environ))), here)
    if not steps:
        return True
    count = sum(step.verdict in ("restored", "merged", "removed") for step in steps)
    if ask is not None:
        show_revert(steps, here.workspace, out.out)
        if ask(
            f"An earlier run was interrupted. Undo its changes of {plural(count, 'file')} first? [Y/n]"
        ) not in (
            "",
            *YES,
        ):
            return False
    perform_revert(steps, here.workspace)
    out.warn(f"An earlier run was interrupted; its changes of {plural(count, 'file')} were undone first.")
    return True


def _apply(plan: Plan, journals: JournalFolder, folder: str, named: Sequence[str]) -> None:
    require_real_folders(folder, [change.path for change in plan.changes])
    make_private_folder(os.path.join(folder, FOLDER))
    keyring_store.save_all(plan.keyring)
    try:
        run = begin(journals, plan.changes, [os.path.realpath(path) for path in named])
        perform(plan.changes, run)
    except BaseException:
        keyring_store.delete_all({name: reference for name, (reference, _) in plan.keyring.items()})
        raise


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


def setup_options(invocation: Invocation, workspace: Workspace, enable: tuple[str, ...]) -> SetupOptions:
    """Return the options of the plan."""
    args, config = invocation.args, invocation.options.config
    if args.team and (args.command or config):
        message = f"init: --team and {'--command' if args.command else '--config'} cannot be combined."
        raise usage_error(message, "What a team shares must work on every machine.")
    command = [args.command] if args.command else own_command()
    more = ["--config", os.path.abspath(config)] if config else []
    return SetupOptions(
        workspace=workspace.folder,
        config=workspace.source or os.path.join(workspace.folder, JSON_NAME),
        command=[] if args.team else [*command, "--workspace", workspace.folder, *more],
        environ=os.environ,
        children=TEAM if args.team else PERSONAL,
        secrets=args.secrets,
        enable=enable,
        entry_env={ENABLED: "true"} if workspace.config.governance.mode == "governed" else {},
        connect=tuple(name for name in args.host if name != ANY_FILE.name),
        share=args.share or args.team,
        hosts_of=existing_setup(workspace).hosts_of,
        hidden={
            name: profile.hide
            for name, profile in (workspace.written or workspace.config).profiles.items()
            if name in BY_NAME or name == PROJECT
        },
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


def _features(invocation: Invocation, workspace: Workspace, ask: Ask | None) -> tuple[str, ...]:
    """Return the built-in suites to enable."""
    config = workspace.config
    offers = (
        (
            "find",
            config.find.enabled,
            "Enable `find`, a suite that searches all others (about 90 tokens)?",
        ),
        ("mail", config.mail.enabled, "Enable `mail`, messages between agents (about 90 tokens)?"),
    )
    enabled: list[str] = []
    for name, already, question in offers:
        if already:
            continue
        if getattr(invocation.args, name) or (ask is not None and ask(f"{question} [y/N]") in YES):
            enabled.append(name)
    return tuple(enabled)


def _references(plan: Plan, here: HostPaths) -> list[ServerReference]:
    references: list[ServerReference] = []
    for host in BY_NAME.values():
        names = {each.entry.name for each in plan.moving if each.entry.source.host is host}
        if names:
            references += find_references(host, sorted(names), here)
    return references


def decide_outcomes(survey: Discovery, workspace: Workspace) -> tuple[list[Outcome], list[NewChild]]:
    """Decide what happens to each discovered server, given the workspace's children."""
    return decide(survey, existing_setup(workspace), workspace.folder)
