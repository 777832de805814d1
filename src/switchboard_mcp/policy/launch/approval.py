"""Making the approval of a child: what it really runs, with the checksums of now.

Owns what is written down for later. Judged by the same rules as a launch, so that nothing is approved which would be
refused at its start. Used by `switchboard approve` only.
"""

from __future__ import annotations

import os
import re

from msgspec import structs

from switchboard_mcp.config.approvals import Approval, Approvals, FilePin, PathVariables
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.variables import expand, used_variables
from switchboard_mcp.config.wrapped_children import wrapper_folder
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.policy.launch import file_inspector
from switchboard_mcp.policy.launch.programs import Unresolved
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.policy.launch.runners import resolve
from switchboard_mcp.policy.launch.text_rules import (
    STEERING,
    LaunchFault,
    argument_key,
    command_key,
    origin_of,
    text_fault,
    variable_key,
)
from switchboard_mcp.policy.launch.wrappers import asking
from switchboard_mcp.redaction.redactor import Redactor, is_secret_name

_REFERENCE = re.compile(r"\$\{[^}]*\}")


def propose(
    spec: ChildSpec, guard: LaunchPolicy, allow_env: frozenset[str], *, ask: bool = False
) -> Approval | Failure:
    """The approval that lets this child run as it is now, and with `ask` be asked in sentences.

    `spec` is as written, variables not filled in.
    """
    filled = expand(spec, guard.environ)
    if isinstance(filled, Failure):
        return filled
    fault = text_fault(filled) or _steering_fault(filled, allow_env) or _secret_fault(spec)
    if fault is not None:
        return guard.refusal(filled, fault)
    approval = _remote(filled) if filled.kind != "stdio" else _local(spec, filled, guard)
    if isinstance(approval, Failure):
        return approval
    approval = structs.replace(approval, variables=sorted({asked.variable for asked in used_variables(spec)}))
    if ask:
        folder = wrapper_folder(guard.workspace, spec)
        approval = structs.replace(approval, ask=asking(spec.name, guard.ask, folder))
    judge = structs.replace(guard, approvals=Approvals().adding(spec.name, guard.platform, approval))
    outcome = judge.approve(filled)
    if isinstance(outcome, Failure):
        return outcome
    return (judge.may_be_asked(spec) if ask else None) or approval


def _steering_fault(spec: ChildSpec, allow_env: frozenset[str]) -> LaunchFault | None:
    for name in spec.env:
        if not STEERING.fullmatch(name):
            continue
        if is_secret_name(name):
            return LaunchFault(
                variable_key(spec, name), "changes what runs and may be a secret; it cannot be approved"
            )
        if name not in allow_env:
            told = f"changes what runs; if that is meant, approve with --allow-env {name}"
            return LaunchFault(variable_key(spec, name), told)
    return None


def _secret_fault(spec: ChildSpec) -> LaunchFault | None:
    """An approval is kept in git, and has the arguments as they are written."""
    mask = Redactor().redact_text
    for place, word in enumerate(spec.args):
        literal = _REFERENCE.sub("", word)
        flag = f"{spec.args[place - 1]} " if place else ""
        if literal and (mask(literal) != literal or mask(flag + literal) != mask(flag) + literal):
            told = "looks like a secret, and approvals are kept in git; write it as ${VAR}"
            return LaunchFault(argument_key(spec, place), told)
    return None


def _remote(spec: ChildSpec) -> Approval:
    assert spec.kind in ("http", "sse", "ws")
    return Approval(kind=spec.kind, origin=origin_of(spec.url))


def _local(spec: ChildSpec, filled: ChildSpec, guard: LaunchPolicy) -> Approval | Failure:
    resolved = resolve(filled, {**guard.environ, **filled.env})
    if isinstance(resolved, Unresolved):
        where = f"{spec.source}: {command_key(spec)}"
        told = f"Child '{spec.name}' cannot be approved: {where}: {resolved.why}."
        return failure("launch_unresolved", told, child=spec.name, hint=resolved.hint)
    pins: list[FilePin] = []
    for path in dict.fromkeys(resolved.files):
        problem = file_inspector.flaw(path)
        pin = problem or _pin(path, guard.words)
        if isinstance(pin, str):
            return guard.refusal(spec, LaunchFault(command_key(spec), f"{path} {pin}"))
        pins.append(pin)
    steering = {name: value for name, value in sorted(filled.env.items()) if STEERING.fullmatch(name)}
    return Approval(
        command=guard.words.shorten(filled.command),
        args=[pattern(word) for word in spec.args],
        launch=[guard.words.shorten(word) for word in resolved.argv],
        replaces=resolved.replaces,
        files=pins,
        package=resolved.package,
        env=sorted(filled.env.keys() - steering.keys()),
        env_values=steering,
    )


def _pin(path: str, words: PathVariables) -> FilePin | str:
    try:
        sealed = file_inspector.seal(path)
    except OSError as problem:
        return f"cannot be read: {problem.filename or path}: {problem.strerror}"
    real = os.path.realpath(path)
    return FilePin(
        path=words.shorten(path), sha256=sealed.sha256, real="" if real == path else words.shorten(real)
    )


def pattern(word: str) -> str:
    """The argument as a pattern: itself, with anything in the place of a variable."""
    return "*".join(part.replace("*", "\\*") for part in _REFERENCE.split(word))
