"""The workspaces that `init` sets up: that of the user, and that of the project.

A server in a file of the user goes to the user workspace, one in a file of the project to the project. Each has its own
plan, its own secrets and its own journal. Not aware of dialogs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.setup.child_entries import FOLDER
from switchboard_mcp.setup.discovery import DiscoveredServer, Discovery
from switchboard_mcp.setup.journal import (
    FileChange,
    JournalFolder,
    begin,
    make_private_folder,
    perform,
    require_real_folders,
    require_writable,
)
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


class SetupScope(Struct, kw_only=True):
    """One workspace that is set up, with the decisions for the servers that go there."""

    workspace: Workspace
    present: ExistingSetup
    is_user: bool
    journals: JournalFolder
    outcomes: list[Outcome] = []
    children: list[NewChild] = []

    @property
    def folder(self) -> str:
        """The folder of the workspace."""
        return self.workspace.folder


class ScopePlan(Struct, frozen=True, kw_only=True):
    """The changes of one workspace."""

    scope: SetupScope
    options: SetupOptions
    plan: Plan


def decide_scopes(discovery: Discovery, scopes: Sequence[SetupScope], *, share: bool) -> list[Outcome]:
    """Decide which entry becomes which child of which workspace; return the outcomes in the order of discovery."""
    for scope in scopes:
        servers = [server for server in discovery.servers if _belongs(server, scope, scopes)]
        own = Discovery(sources=discovery.sources, servers=servers, problems=[])
        scope.outcomes, scope.children = decide(own, scope.present, scope.folder, share=share)
        if scope.is_user:
            hosts = {child.name: _hosts(child.name, scope.outcomes) for child in scope.children}
            for other in scopes:
                if not other.is_user:
                    other.present.included.update(hosts)
    return in_order(discovery, [outcome for scope in scopes for outcome in scope.outcomes])


def in_order(discovery: Discovery, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes in the order of discovery."""
    place = {id(server): number for number, server in enumerate(discovery.servers)}
    return sorted(outcomes, key=lambda outcome: place[id(outcome.entry)])


def _belongs(server: DiscoveredServer, scope: SetupScope, scopes: Sequence[SetupScope]) -> bool:
    return len(scopes) == 1 or server.source.of_user == scope.is_user


def _hosts(child: str, outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({outcome.entry.source.host.name for outcome in outcomes if outcome.child == child})


def plan_scopes(
    discovery: Discovery,
    chosen: Sequence[Outcome],
    scopes: Sequence[SetupScope],
    options: Sequence[SetupOptions],
) -> list[ScopePlan]:
    """Return the changes of each workspace; those of a later one build on those of an earlier one."""
    plans: list[ScopePlan] = []
    for scope, own in zip(scopes, options, strict=True):
        entries = {id(outcome.entry) for outcome in scope.outcomes}
        outcomes = [outcome for outcome in chosen if id(outcome.entry) in entries]
        earlier = [change for planned in plans for change in planned.plan.changes]
        plan = make_plan(discovery, outcomes, scope.children, own, earlier)
        plans.append(ScopePlan(scope=scope, options=own, plan=plan))
    return plans


def combine(discovery: Discovery, plans: Sequence[ScopePlan]) -> Plan:
    """Return all changes as one plan, to be shown."""
    own = [planned.plan for planned in plans]
    return Plan(
        outcomes=in_order(discovery, [outcome for plan in own for outcome in plan.outcomes]),
        children=[child for plan in own for child in plan.children],
        changes=[change for plan in own for change in plan.changes],
        problems=list(dict.fromkeys(problem for plan in own for problem in plan.problems)),
        variables=list(dict.fromkeys(name for plan in own for name in plan.variables)),
        secrets={name: value for plan in own for name, value in plan.secrets.items()},
        profiles=[profile for plan in own for profile in plan.profiles],
        keyring={name: entry for plan in own for name, entry in plan.keyring.items()},
    )


def apply_scopes(plans: Sequence[ScopePlan], named: Sequence[str]) -> None:
    """Make all changes, those of the user first. Nothing is changed if one of the files cannot be written."""
    plans = [planned for planned in plans if planned.plan.changes]
    for planned in plans:
        paths = [change.path for change in planned.plan.changes]
        require_real_folders(planned.scope.folder, paths)
        require_writable([*paths, os.path.join(planned.scope.journals.path, "journal")])
    for planned in plans:
        _apply(planned.plan.changes, planned, named)


def _apply(changes: Sequence[FileChange], planned: ScopePlan, named: Sequence[str]) -> None:
    config = planned.options.config
    files = [*named, config, os.path.join(os.path.dirname(config), CONFIG_SCHEMA)]
    make_private_folder(os.path.join(planned.scope.folder, FOLDER))
    keyring = planned.plan.keyring
    keyring_store.save_all(keyring)
    try:
        run = begin(planned.scope.journals, changes, [os.path.realpath(path) for path in files])
        perform(changes, run)
    except BaseException:
        keyring_store.delete_all({name: reference for name, (reference, _) in keyring.items()})
        raise
