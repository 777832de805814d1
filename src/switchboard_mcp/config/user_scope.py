"""Adds the children of the user workspace to those of a project.

Decides what a project takes over: all children, with their own settings, secrets and profiles. A name that the user has
given stays his: a host may always allow it, so an entry of the project does not take it, nor the name of its suite. The
project can switch such a child off. A governed workspace takes nothing over and is taken over by none, so an approval
covers the same in both directions. The place of the user workspace comes from the user's environment, never from a
project.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.gate import GateSection, gate_settings
from switchboard_mcp.config.models import (
    ChildSpec,
    Config,
    ConfigWarning,
    SuiteSettings,
    Timeouts,
    UserScope,
    Workspace,
)
from switchboard_mcp.config.sections import NO_LIMITS, Profile
from switchboard_mcp.suites.suite_names import suite_names, twin_names
from switchboard_mcp.system.write_access import other_writers

GOVERNED = "this workspace is governed, and holds only what is approved in it"


def find_obstacle(project: Workspace, folder: str, *, default: bool) -> str:
    """Return why a project does not include the user workspace in a folder, or an empty string."""
    if project.config.governance.mode != "open":
        return GOVERNED
    if project.config.include_user is False:
        return f"{project.source}: includeUser is `false`"
    if project.config.include_user is None and not default:
        return "an HTTP server has other clients too; `includeUser: true` in the config includes it"
    try:
        problem = other_writers(folder, os.stat(folder))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    return f"{folder} {problem}" if problem else ""


def include(project: Workspace, user: Workspace) -> Workspace:
    """Return the project with the children of the user workspace; an entry of the user wins over one of the project."""
    if user.config.governance.mode != "open":
        return leave_out(project, user.folder, f"{user.source}: it is governed, and served on its own only")
    if gate_settings(user.config.gate).otherwise != "allow":
        return leave_out(
            project, user.folder, f"{user.source}: gate.otherwise cannot hold for its children alone"
        )
    switched_off = {spec.name for spec in project.disabled}
    offered = [spec for spec in user.children if spec.kind != "builtin"]
    added = [replace(spec, scope="user") for spec in offered if spec.name not in switched_off]
    kept = keep_names(project, user)
    own = {spec.name for spec in (*kept.children, *kept.disabled)}
    names = {spec.name for spec in added}
    scope = UserScope(
        folder=user.folder,
        children=sorted(names),
        shadowed=sorted({spec.name for spec in project.children} - own),
        profiles=user.config.profiles,
        workspace=user,
    )
    return replace(
        kept,
        config=_with_settings(kept.config, user.config, names),
        children=[*kept.children, *added],
        disabled=[
            *kept.disabled,
            *(replace(spec, scope="user") for spec in user.disabled if spec.name not in own),
        ],
        warnings=[*_warnings(kept, user, names), *user.warnings],
        user=scope,
    )


def keep_names(project: Workspace, user: Workspace) -> Workspace:
    """Return the project without the children and names of suites that are the user's."""
    users = {spec.name for spec in (*user.children, *user.disabled) if spec.kind != "builtin"}
    clashes = [spec for spec in project.children if spec.name in users and spec.kind != "builtin"]
    kept = [spec for spec in project.children if spec not in clashes]
    config, renamed = _with_own_names(project.config, kept, user)
    message = "is not used: your user workspace has '{}', which keeps the name. Give it another one here."
    warnings = [ConfigWarning(spec.source, spec.key, message.format(spec.name)) for spec in clashes]
    for name, suite in renamed.items():
        message = f"The suite of '{name}' is called '{suite}': its name belongs to your user workspace."
        warnings.append(ConfigWarning(project.source, join_key("suites", name), message))
    if not warnings:
        return project
    written = project.written_config
    return replace(
        project, config=config, written=written, children=kept, warnings=[*project.warnings, *warnings]
    )


def _with_own_names(config: Config, kept: list[ChildSpec], user: Workspace) -> tuple[Config, dict[str, str]]:
    """Return the config in which no suite of the project has a name of the user's, and the suites that were renamed."""
    taken = set(suite_names(_named(user.children, user.config)).values())
    taken |= {name for twins in twin_names(sorted(taken)).values() for name in twins}
    wanted = _named(kept, config)
    alone, beside = suite_names(wanted), suite_names(wanted, taken)
    renamed = {name: suite for name, suite in beside.items() if suite != alone[name]}
    suites = dict(config.suites)
    for name, suite in renamed.items():
        suites[name] = replace(suites.get(name) or SuiteSettings(), suite_name=suite)
    return (replace(config, suites=suites) if renamed else config), renamed


def _named(children: list[ChildSpec], config: Config) -> list[tuple[str, str]]:
    """Return the children with the names that are configured for their suites."""
    names = {name: suite.suite_name for name, suite in config.suites.items()}
    return [(spec.name, names.get(spec.name, "")) for spec in children if spec.kind != "builtin"]


def leave_out(project: Workspace, folder: str, reason: str) -> Workspace:
    """Return the project with the reason why the user workspace is not included."""
    return replace(project, user=UserScope(folder=folder, left_out=reason))


def _with_settings(project: Config, user: Config, names: set[str]) -> Config:
    """Return the settings of the project, with those of the user for the included children alone."""
    suites = {name: suite for name, suite in project.suites.items() if name not in names}
    suites |= {name: suite for name in sorted(names) if (suite := _suite(name, user)) != SuiteSettings()}
    # What a profile shows of the included children is decided by the profile of that name in the user workspace.
    profiles = {name: Profile() for name in user.profiles} | project.profiles
    return replace(project, suites=suites, profiles=profiles, gate=_gate(project, user, names))


def _gate(project: Config, user: Config, names: set[str]) -> GateSection:
    """Return the rules of the project with those of the user that ask or deny: together they only restrict."""
    rules = [rule for rule in gate_settings(user.gate).rules if not rule.allow]
    more = [rule if rule.suite else replace(rule, suite=sorted(names)) for rule in rules] if names else []
    own = gate_settings(project.gate)
    return replace(own, rules=[*own.rules, *more]) if more else project.gate


def _suite(name: str, user: Config) -> SuiteSettings:
    """Return the settings of a suite, with what the user workspace sets for all of its suites."""
    suite = user.suites.get(name) or SuiteSettings()
    if suite.limits is None and user.limits != NO_LIMITS:
        suite = replace(suite, limits=user.limits)
    if suite.rpc_ms is None and user.timeouts.rpc_ms != Timeouts().rpc_ms:
        suite = replace(suite, rpc_ms=user.timeouts.rpc_ms)
    if suite.sandbox is None and user.sandbox is not None:
        suite = replace(suite, sandbox=user.sandbox)
    if user.middleware:
        suite = replace(suite, middleware=[*user.middleware, *suite.middleware])
    return suite


def _warnings(project: Workspace, user: Workspace, names: set[str]) -> list[ConfigWarning]:
    """Return the warnings of the project; for settings of a child of the user, what becomes of them."""
    keys = {join_key("suites", name): name for name in names}
    kept = [warning for warning in project.warnings if warning.key not in keys]
    where = user.source or os.path.join(user.folder, "switchboard.config.json")
    message = "is ignored: the child belongs to your user workspace. Its settings are in {}."
    used = (key for key, name in sorted(keys.items()) if name in project.written_config.suites)
    return [*kept, *(ConfigWarning(project.source, key, message.format(where)) for key in used)]
