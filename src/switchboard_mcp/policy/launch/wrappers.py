"""Wrapped children in governed mode: whether a model may plan their calls, and what is run for the wrapper.

A wrapper is Switchboard itself, so there is no program to approve: what its file names as a command has no say here.
Approved is that the child may be asked in sentences, who plans, and what the model is told of it. Every call that
comes of it is made in the wrapper as any host's is, under the approval, the lock and the record of the child itself.
"""

from __future__ import annotations

import os
import sys

from msgspec.structs import replace

from switchboard_mcp.config.approvals import Approval, AskApproval
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.config.wrapped_children import ROLE_FILE
from switchboard_mcp.policy.launch import file_inspector
from switchboard_mcp.policy.launch.text_rules import address_flaw, origin_of

HOST = "host"
ANTHROPIC = "https://api.anthropic.com"


def planners(settings: AskSettings) -> list[str]:
    """Who may be asked for a plan, by the settings: the host's own model, an API by its origin."""
    api = origin_of(settings.base_url or ANTHROPIC)
    return {"host": [HOST], "api": [api], "auto": [HOST, api]}[settings.backend]


def governed(settings: AskSettings) -> AskSettings:
    """The settings with an address in any case: where there is none, the library looks for one in the environment."""
    return replace(settings, base_url=settings.base_url or ANTHROPIC)


def settings_flaw(settings: AskSettings) -> str:
    """What governed mode does not let be set, or an empty string."""
    if settings.confirm == "never":
        return "ask.confirm is `never`, so that nobody would be asked before something is destroyed"
    if settings.passthrough:
        return "ask.passthrough is set; in governed mode a wrapped child has `natural_language` alone"
    problem = address_flaw(settings.base_url) if settings.base_url else ""
    return f"ask.baseUrl {problem}" if problem else ""


def asking(child: str, settings: AskSettings, folder: str) -> AskApproval:
    """The approval of sentences, as everything is now. `folder` is that of the wrapper."""
    try:
        role = _role(folder)
    except OSError:
        role = ""  # which nobody may be asked with: `flaw` says why
    return AskApproval(
        models=planners(settings),
        confirm="writes" if settings.confirm == "writes" else "destructive",
        trust=sorted(settings.trust.get(child, [])),
        role=role,
    )


def flaw(child: str, approval: Approval, settings: AskSettings, folder: str) -> str:
    """Why a child may not be asked in sentences, or an empty string."""
    if approval.ask is None:
        return "its approval does not let a model plan its calls"
    problem = settings_flaw(settings)
    if problem:
        return problem
    strange = [name for name in planners(settings) if name not in approval.ask.models]
    if strange:
        return f"by the settings under `ask` {' or '.join(strange)} would plan, which is not approved"
    if settings.confirm != "writes" and approval.ask.confirm == "writes":
        return f"ask.confirm is `{settings.confirm}` where `writes` was approved"
    unasked = [name for name in settings.trust.get(child, []) if name not in approval.ask.trust]
    if unasked:
        return f"ask.trust.{child} names {', '.join(unasked)}, about which somebody must be asked by the approval"
    try:
        same = _role(folder) == approval.ask.role
    except OSError as trouble:
        return f"{os.path.join(folder, ROLE_FILE)}: {trouble.strerror}"
    return "" if same else f"{os.path.join(folder, ROLE_FILE)} is not what was approved"


def _role(folder: str) -> str:
    """The checksum of what the model is told of the child; empty where nobody wrote anything."""
    path = os.path.join(folder, ROLE_FILE)
    return file_inspector.seal(path).sha256 if os.path.lexists(path) else ""


def argv(child: str, workspace: str, config: str) -> list[str]:
    """What is run: this program. Without the working folder among the places where Python looks for modules."""
    named = ["--config", config] if config else []
    return [
        # Governed in any case: the config may be another by now than the one that we go by.
        *(sys.executable, "-P", "-m", "switchboard_mcp", "wrapper", child, "--governed"),
        *("--workspace", workspace, *named, "--log-level", "info"),
    ]


def marks() -> tuple[file_inspector.FileIdentity, ...]:
    """By which the process is known to be what was started."""
    path = os.path.realpath(sys.executable)
    return (file_inspector.mark(path, os.stat(path)),)
