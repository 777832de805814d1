"""Wrapped children in governed mode: whether a model may plan their calls, and how the wrapper is run.

A wrapper is Switchboard itself, so there is no program to approve: the command in its file is ignored. The approval
states that the child accepts natural language, which models may plan, and the role text they get. Every planned call
is made like any host's call, under the approval, the lock and the audit log of the child itself.
"""

from __future__ import annotations

import os
import sys

from msgspec.structs import replace

from switchboard_mcp.config.files.approvals import Approval, AskApproval
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.config.wrapped_children import ROLE_FILE
from switchboard_mcp.policy.launch import file_inspector
from switchboard_mcp.policy.launch.text_rules import address_flaw, origin_of

HOST = "host"
ANTHROPIC = "https://api.anthropic.com"


def planners(settings: AskSettings) -> list[str]:
    """Return the models that may plan, by the settings: the host's own, or an API by its origin."""
    api = origin_of(settings.base_url or ANTHROPIC)
    return {"host": [HOST], "api": [api], "auto": [HOST, api]}[settings.backend]


def governed(settings: AskSettings) -> AskSettings:
    """Return the settings with an explicit base URL. Without one, the library would read it from the environment."""
    return replace(settings, base_url=settings.base_url or ANTHROPIC)


def settings_flaw(settings: AskSettings) -> str:
    """Return why the settings are not allowed in governed mode, or an empty string."""
    if settings.confirm == "never":
        return "ask.confirm is `never`, so destructive calls would not be confirmed"
    if settings.passthrough:
        return "ask.passthrough is set; in governed mode a wrapped child has only `natural_language`"
    problem = address_flaw(settings.base_url) if settings.base_url else ""
    return f"ask.baseUrl {problem}" if problem else ""


def propose_ask(child: str, settings: AskSettings, folder: str) -> AskApproval:
    """Return the approval of natural language for the current settings. `folder` is the wrapper's."""
    try:
        role = _role_hash(folder)
    except OSError:
        role = ""  # never matches: `find_flaw` says why
    return AskApproval(
        models=planners(settings),
        confirm="writes" if settings.confirm == "writes" else "destructive",
        trust=sorted(settings.trust.get(child, [])),
        role=role,
    )


def find_flaw(child: str, approval: Approval, settings: AskSettings, folder: str) -> str:
    """Return why a child may not be asked in natural language, or an empty string."""
    if approval.ask is None:
        return "its approval does not let a model plan its calls"
    problem = settings_flaw(settings)
    if problem:
        return problem
    unapproved = [name for name in planners(settings) if name not in approval.ask.models]
    if unapproved:
        return f"`ask` in the config lets {' or '.join(unapproved)} plan, which is not approved"
    if settings.confirm != "writes" and approval.ask.confirm == "writes":
        return f"ask.confirm is `{settings.confirm}`, but `writes` was approved"
    trusted = [name for name in settings.trust.get(child, []) if name not in approval.ask.trust]
    if trusted:
        return f"ask.trust.{child} names {', '.join(trusted)}, which the approval requires to be confirmed"
    try:
        same = _role_hash(folder) == approval.ask.role
    except OSError as error:
        return f"{os.path.join(folder, ROLE_FILE)}: {error.strerror}"
    return "" if same else f"{os.path.join(folder, ROLE_FILE)} is not what was approved"


def _role_hash(folder: str) -> str:
    """Return the hash of the role file, or an empty string without one."""
    path = os.path.join(folder, ROLE_FILE)
    return file_inspector.hash_path(path).sha256 if os.path.lexists(path) else ""


def argv(child: str, workspace: str, config: str) -> list[str]:
    """Return the command of the wrapper: this program, without the working folder in the module path."""
    config_args = ["--config", config] if config else []
    return [
        # Always governed: the config file may have changed since it was read.
        *(sys.executable, "-P", "-m", "switchboard_mcp", "wrapper", child, "--governed"),
        *("--workspace", workspace, *config_args, "--log-level", "info"),
    ]


def interpreter_files() -> tuple[file_inspector.FileIdentity, ...]:
    """Return the identity of the interpreter that runs the wrapper."""
    path = os.path.realpath(sys.executable)
    return (file_inspector.identify(path, os.stat(path)),)
