"""`switchboard init`: move the servers of all hosts behind Switchboard.

Owns the conversation. What is found, decided and written is the affair of `setup`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence

from msgspec import structs

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.init_view import answer, show_done, show_plan, show_survey
from switchboard_mcp.cli.invocation import LOOK_FIRST, YES, Invocation, answer_to, misuse, own_command
from switchboard_mcp.config.load import JSON_NAME, load_workspace
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.setup.child_entries import (
    PERSONAL,
    TEAM,
    require_discoverable,
    server_from_spec,
    taken_names,
)
from switchboard_mcp.setup.discovery import Discovery, discover_servers
from switchboard_mcp.setup.hosts import ANY_FILE, BY_NAME
from switchboard_mcp.setup.journal import begin, perform
from switchboard_mcp.setup.paths import HostPaths, host_paths
from switchboard_mcp.setup.plan import ExistingSetup, NewChild, Outcome, Plan, SetupOptions, decide, make_plan
from switchboard_mcp.setup.references import ServerReference, find_references
from switchboard_mcp.setup.revert import revert_interrupted
from switchboard_mcp.suites.fuzzy import meant

Ask = Callable[[str], str]


def run(asked: Invocation) -> int:
    """Look, ask, do."""
    return initialise(asked, answer_to)


def initialise(asked: Invocation, ask: Ask) -> int:
    """The whole of it; `ask` puts a question to the person."""
    given = asked.given
    interactive = not (given.yes or given.dry_run)
    if interactive and (asked.as_json or not sys.stdin.isatty()):
        raise misuse("init: nobody is here to choose.", LOOK_FIRST)
    folder = workspace_folder(asked.options)
    if not given.dry_run and revert_interrupted(folder):
        asked.console.warn("An earlier run was interrupted; what it did was taken back first.")
    workspace = load_workspace(folder, asked.options.config, os.environ)
    require_discoverable(workspace.config, workspace.source, TEAM if given.team else PERSONAL)
    here = host_paths(folder, os.environ, sys.platform)
    survey = discover_servers(here, _hosts(given.host), given.files, named=bool(given.host), team=given.team)
    outcomes, children = decide(survey, present(workspace), folder)
    if not asked.as_json:
        show_survey(survey, outcomes, folder, asked.console.out)
    if interactive:
        outcomes = _choose(outcomes, ask)
    wanted = settings(asked, workspace, _features(asked, workspace, ask if interactive else None))
    plan = make_plan(survey, outcomes, children, wanted)
    found = _traces(plan, here)
    agreed = bool(plan.changes) and not given.dry_run
    if agreed and interactive:
        show_plan(plan, asked.console.out)
        agreed = ask(f"Change {plural(len(plan.changes), 'file')}? [Y/n]") in ("", *YES)
    if agreed:
        perform(plan.changes, begin(folder, plan.changes))
    if asked.as_json:
        asked.console.out.json(answer(plan, found, folder, changed=agreed))
    elif agreed:
        show_done(plan, found, workspace, wanted, asked.console.out)
    elif given.dry_run:
        show_plan(plan, asked.console.out)
    else:
        asked.console.out.line("There is nothing to do." if not plan.changes else "Nothing was changed.")
    return 0


def present(workspace: Workspace) -> ExistingSetup:
    """What the workspace has already."""
    children = {
        spec.name: server_from_spec(spec, workspace.config, workspace.folder)
        for spec in workspace.children
        if spec.kind != "builtin"
    }
    return ExistingSetup(children=children, names=taken_names(workspace.folder, workspace.children))


def settings(asked: Invocation, workspace: Workspace, enable: tuple[str, ...]) -> SetupOptions:
    """What the person wants."""
    given, config = asked.given, asked.options.config
    if given.team and (given.command or config):
        told = f"init: --team and {'--command' if given.command else '--config'} do not go together."
        raise misuse(told, "What a team shares must hold on every machine.")
    command = [given.command] if given.command else own_command()
    more = ["--config", os.path.abspath(config)] if config else []
    return SetupOptions(
        workspace=workspace.folder,
        config=workspace.source or os.path.join(workspace.folder, JSON_NAME),
        command=[] if given.team else [*command, "--workspace", workspace.folder, *more],
        environ=os.environ,
        children=TEAM if given.team else PERSONAL,
        move_secrets=given.secrets == "env",
        enable=enable,
        connect=tuple(name for name in given.host if name != ANY_FILE.name),
    )


def _hosts(named: Sequence[str]) -> list[str]:
    for name in named:
        if name not in BY_NAME and name != ANY_FILE.name:
            told = f"init: there is no host '{name}'.{meant(name, BY_NAME)}"
            raise misuse(told, f"Known are {', '.join(BY_NAME)}.")
    return list(named) or list(BY_NAME)


def _choose(outcomes: list[Outcome], ask: Ask) -> list[Outcome]:
    """Ask which of those that can move shall."""
    movable = [outcome for outcome in outcomes if outcome.moves]
    if not movable:
        return outcomes
    while True:
        told = ask(f"Move which? [all {len(movable)}; or numbers such as 1,3-5; or none]")
        numbers = chosen(told, len(movable))
        if numbers is not None:
            break
    keep = {id(outcome) for number, outcome in enumerate(movable, 1) if number in numbers}
    return [
        outcome
        if not outcome.moves or id(outcome) in keep
        else structs.replace(outcome, child="", skip_reason="it was not chosen")
        for outcome in outcomes
    ]


def chosen(told: str, count: int) -> set[int] | None:
    """The numbers that an answer means; None where it means nothing."""
    if told in ("", "all", "y", "yes"):
        return set(range(1, count + 1))
    if told in ("none", "n", "no", "0", "q", "quit"):
        return set()
    numbers: set[int] = set()
    for part in re.split(r"[,\s]+", told):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if found is None:
            return None
        numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return numbers if numbers <= set(range(1, count + 1)) else None


def _features(asked: Invocation, workspace: Workspace, ask: Ask | None) -> tuple[str, ...]:
    """Built-in suites that shall be switched on."""
    config = workspace.config
    offers = (
        (
            "find",
            config.find.enabled,
            "Switch on `find`, a suite that searches all others (about 90 tokens)?",
        ),
        ("mail", config.mail.enabled, "Switch on `mail`, letters between agents (about 90 tokens)?"),
    )
    wanted: list[str] = []
    for name, already, question in offers:
        if already:
            continue
        if getattr(asked.given, name) or (ask is not None and ask(f"{question} [y/N]") in YES):
            wanted.append(name)
    return tuple(wanted)


def _traces(plan: Plan, here: HostPaths) -> list[ServerReference]:
    found: list[ServerReference] = []
    for host in BY_NAME.values():
        names = {each.entry.name for each in plan.moving if each.entry.source.host is host}
        if names:
            found += find_references(host, sorted(names), here)
    return found


def decided(survey: Discovery, workspace: Workspace) -> tuple[list[Outcome], list[NewChild]]:
    """What would become of what was found, beside what the workspace has."""
    return decide(survey, present(workspace), workspace.folder)
