"""Creates the approval of a child: what it really runs, with the current hashes.

Checked by the same rules as a launch, so nothing is approved that would be refused at its start. Used by
`child_approval` only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec import structs

from switchboard_mcp.config.files.approvals import Approval, Approvals, FilePin, PathVariables
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.variables import expand, used_variables
from switchboard_mcp.config.wrapped_children import wrapper_folder
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.policy.launch import file_inspector
from switchboard_mcp.policy.launch.arguments import ArgumentFlaw, NamedPath, find_named, possible_paths
from switchboard_mcp.policy.launch.installed_packages import InstalledPackages, check_packages, find_packages
from switchboard_mcp.policy.launch.packages import resolve
from switchboard_mcp.policy.launch.program_resolution import Unresolved
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.policy.launch.text_rules import (
    LaunchFault,
    argument_key,
    command_key,
    find_text_fault,
    is_steering,
    origin_of,
    variable_key,
)
from switchboard_mcp.policy.launch.wrappers import propose_ask
from switchboard_mcp.redaction.redactor import Redactor, is_secret_name

_REFERENCE = re.compile(r"\$\{[^}]*\}")


def propose(
    spec: ChildSpec,
    policy: LaunchPolicy,
    allow_env: frozenset[str],
    *,
    ask: bool = False,
    data: frozenset[str] = frozenset(),
) -> Approval | Failure:
    """Return the approval for this child as it is now; with `ask`, natural language is approved too.

    `spec` is as written, with variables not expanded. `data` are paths in its arguments that are not pinned, in
    addition to those of the approval that there is.
    """
    expanded = expand(spec, policy.environ)
    if isinstance(expanded, Failure):
        return expanded
    fault = find_text_fault(expanded) or _steering_fault(expanded, allow_env) or _secret_fault(spec)
    if fault is not None:
        return policy.refusal(expanded, fault)
    approval = _remote(expanded) if expanded.kind != "stdio" else _local(spec, expanded, policy, data)
    if isinstance(approval, Failure):
        return approval
    approval = structs.replace(
        approval, variables=sorted({reference.variable for reference in used_variables(spec)})
    )
    if ask:
        folder = wrapper_folder(policy.workspace, spec)
        approval = structs.replace(approval, ask=propose_ask(spec.name, policy.ask, folder))
    approvals = Approvals().adding(spec.name, policy.platform, approval)
    proposed = structs.replace(policy, approvals=approvals, unapproved_suites={})
    outcome = proposed.approve(expanded)
    if isinstance(outcome, Failure):
        return outcome
    return (proposed.check_ask(spec) if ask else None) or approval


def _steering_fault(spec: ChildSpec, allow_env: frozenset[str]) -> LaunchFault | None:
    for name in spec.env:
        if not is_steering(name):
            continue
        if is_secret_name(name):
            return LaunchFault(
                variable_key(spec, name), "changes what runs and may be a secret, so it cannot be approved"
            )
        if name not in allow_env:
            message = f"changes what runs; if that is intended, approve with --allow-env {name}"
            return LaunchFault(variable_key(spec, name), message)
    return None


def _secret_fault(spec: ChildSpec) -> LaunchFault | None:
    """Return a fault if an argument looks like a secret: approvals are kept in git, with arguments as written."""
    mask = Redactor().redact_text
    for index, word in enumerate(spec.args):
        literal = _REFERENCE.sub("", word)
        flag = f"{spec.args[index - 1]} " if index else ""
        if literal and (mask(literal) != literal or mask(flag + literal) != mask(flag) + literal):
            message = "looks like a secret, and approvals are kept in git; write it as ${VAR}"
            return LaunchFault(argument_key(spec, index), message)
    return None


def _remote(spec: ChildSpec) -> Approval:
    assert spec.kind in ("http", "sse", "ws")
    return Approval(kind=spec.kind, origin=origin_of(spec.url))


def _local(
    spec: ChildSpec, expanded: ChildSpec, policy: LaunchPolicy, more_data: frozenset[str]
) -> Approval | Failure:
    resolved = resolve(expanded, {**policy.environ, **expanded.env}, policy.workspace)
    if isinstance(resolved, Unresolved):
        where = f"{spec.source}: {command_key(spec)}"
        message = f"Child '{spec.name}' cannot be approved: {where}: {resolved.why}."
        return failure("launch_unresolved", message, child=spec.name, hint=resolved.hint)
    pins: list[FilePin] = []
    for path in dict.fromkeys(resolved.files):
        pin = file_inspector.find_flaw(path) or _pin(path, policy.path_variables)
        if isinstance(pin, str):
            return policy.refusal(spec, LaunchFault(command_key(spec), f"{path} {pin}"))
        pins.append(pin)
    for watched in resolved.watched:
        pin = file_inspector.find_flaw(watched.folder) or _pin(
            watched.folder, policy.path_variables, watched.names
        )
        if isinstance(pin, str):
            return policy.refusal(spec, LaunchFault(command_key(spec), f"{watched.folder} {pin}"))
        pins.append(pin)
    packages = find_packages(resolved.argv, resolved.files)
    installed = _pin_packages(packages, policy)
    if isinstance(installed, str):
        return policy.refusal(spec, LaunchFault(command_key(spec), installed))
    pins += installed
    data = _data(expanded, policy, more_data)
    for named in find_named(
        resolved.argv[0], expanded.args[resolved.replaces :], expanded.cwd, policy.environment(expanded)
    ):
        key = argument_key(spec, resolved.replaces + named.index)
        if isinstance(named, ArgumentFlaw):
            return policy.refusal(spec, LaunchFault(key, named.why))
        if named.is_data(data) or named.path in resolved.files:
            continue
        pin = _argument_flaw(named, policy) or _pin(named.path, policy.path_variables)
        if isinstance(pin, str):
            return policy.refusal(spec, LaunchFault(key, f"{named.path} {pin}{_data_hint(named)}"))
        if pin not in pins:
            pins.append(pin)
    steering = {name: value for name, value in sorted(expanded.env.items()) if is_steering(name)}
    return Approval(
        command=policy.path_variables.shorten(expanded.command),
        args=[pattern(word) for word in spec.args],
        launch=[policy.path_variables.shorten(word) for word in resolved.argv],
        replaces=resolved.replaces,
        files=pins,
        data=[policy.path_variables.shorten(path) for path in data],
        unpinned=list(packages.unpinned),
        package=resolved.package,
        env=sorted(expanded.env.keys() - steering.keys()),
        env_values=steering,
        sandbox=policy.sandbox_of(spec.name),
    )


def _pin_packages(packages: InstalledPackages, policy: LaunchPolicy) -> list[FilePin] | str:
    """Return the pins of the packages installed beside what runs, or why they cannot be read."""
    pins: list[FilePin] = []
    for folder in packages.folders:
        try:
            hashed = check_packages(folder, policy.environ, whole=True)
        except OSError as problem:
            return f"{folder} cannot be read: {problem.filename or folder}: {problem.strerror}"
        pins.append(FilePin(path=policy.path_variables.shorten(folder), sha256=hashed.sha256, installed=True))
    return pins


def _data(spec: ChildSpec, policy: LaunchPolicy, more: frozenset[str]) -> list[str]:
    """Return the paths that are approved as data now, and those from before that the arguments still name."""
    before = policy.approvals.find(spec.name, policy.platform)
    approved = map(policy.path_variables.fill, before.approval.data if before is not None else ())
    environ = policy.environment(spec)
    named = {path for word in spec.args for path in possible_paths(word, spec.cwd, environ)}
    named |= set(map(os.path.realpath, named))
    kept = (place for place in approved if any(f"{path}/".startswith(f"{place}/") for path in named))
    paths = [os.path.normpath(os.path.join(spec.cwd, path)) for path in more]
    return sorted({*kept, *paths, *map(os.path.realpath, paths)})


def _argument_flaw(named: NamedPath, policy: LaunchPolicy) -> str:
    """Return why a path in an argument cannot be pinned, or an empty string."""
    inspector = file_inspector.FileInspector()
    if named.kind != "program" and inspector.is_inside(policy.file, named.path):
        return "contains the approvals, which change"
    return inspector.find_tree_flaw(named.path)


def _data_hint(named: NamedPath) -> str:
    hint = f"; if the child runs nothing there, approve with --data {named.path}"
    return "" if named.kind == "program" else hint


def _pin(path: str, variables: PathVariables, names: Sequence[str] = ()) -> FilePin | str:
    try:
        hashed = file_inspector.hash_path(path, names)
    except OSError as problem:
        return f"cannot be read: {problem.filename or path}: {problem.strerror}"
    real = os.path.realpath(path)
    return FilePin(
        path=variables.shorten(path),
        sha256=hashed.sha256,
        real="" if real == path else variables.shorten(real),
        names=list(names),
    )


def pattern(word: str) -> str:
    """Return an argument as a pattern, with `*` for each variable."""
    return "*".join(part.replace("*", "\\*") for part in _REFERENCE.split(word))
