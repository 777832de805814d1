"""Assembles a gateway from the config: pipelines, views and built-in suites.

Runs once at startup, and again for new suites after a config reload. Features that are not configured are not imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.registry import ChildRegistry
from switchboard_mcp.config.gate import gate_settings
from switchboard_mcp.config.models import APPROVALS_FILE, SWITCHBOARD_NAME, Config, Workspace
from switchboard_mcp.config.sections import NO_LIMITS, PROGRAM_NAME, Token, token_profiles
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.suites.child_suite import ChildSuite

if TYPE_CHECKING:
    from switchboard_mcp.config.watch_paths import ConfigVersion
    from switchboard_mcp.gateway.gate.call_gate import CallGate
    from switchboard_mcp.gateway.pipeline.plugins import LoadedMiddleware
    from switchboard_mcp.gateway.programs.program_server import ProgramServer
    from switchboard_mcp.gateway.suites.switchboard_suite import SwitchboardServer
    from switchboard_mcp.observability.call_record import CallObserver
    from switchboard_mcp.policy.governance import GovernedWorkspace


class TokenReader(Protocol):
    """A server whose clients have named tokens."""

    def revoke_missing(self, configured: Mapping[str, str | Token]) -> None:
        """Revoke the tokens that the config no longer has, and end the sessions of their holders."""

    def take_tokens(self, configured: Mapping[str, str | Token]) -> None:
        """Accept the tokens of the config from now on, and no others. Raises if one is unusable."""


class Runtime(Struct):
    """The running components. `profile` applies to every client that has no other.

    `config_version` is that of the files whose settings are all applied. `tokens` is the HTTP server, if there is one.
    """

    workspace: Workspace
    registry: ChildRegistry
    gateway: Gateway
    context: ChildContext
    profile: str = ""
    config_version: ConfigVersion = ()
    tokens: TokenReader | None = None


def govern_workspace(workspace: Workspace, environ: Mapping[str, str]) -> GovernedWorkspace | None:
    """Apply governed mode to a workspace. Return None in open mode.

    Raises `settings_not_approved` if the config leaves governed mode although it is approved.
    """
    is_open = workspace.config.governance.mode == "open"
    if is_open and not os.path.lexists(os.path.join(workspace.folder, APPROVALS_FILE)):
        return None
    from switchboard_mcp.policy.governance import govern, require_open

    if is_open:
        require_open(workspace)
        return None
    return govern(workspace, environ)


def load_middleware(config: Config) -> LoadedMiddleware | None:
    """Import the middleware that the config names, before anything runs."""
    if not config.middleware and not any(suite.middleware for suite in config.suites.values()):
        return None
    from switchboard_mcp.gateway.pipeline.plugins import load_middleware

    return load_middleware(config)


def attach_pipelines(
    suites: Mapping[str, ChildSuite], config: Config, context: ChildContext, loaded: LoadedMiddleware | None
) -> None:
    """Attach a call pipeline to the suites that need one."""
    own = any(suite.limits or suite.cache for suite in config.suites.values())
    observed = context.recorder or context.records
    gate = open_gate(config, context)
    programs = cast("ProgramServer | None", context.builtin_apps.get(PROGRAM_NAME))
    if loaded or own or observed or gate or programs or config.limits != NO_LIMITS:
        own_gates = {} if programs is None else {PROGRAM_NAME: programs.gate(cast("CallGate", context.gate))}
        _pipelines().attach_pipelines(suites, config, context, loaded, gate, own_gates)


def observe_calls(runtime: Runtime, recorder: CallObserver | None) -> None:
    """Let a recorder receive the records of all calls from now on, or no recorder any more."""
    runtime.context.recorder = recorder
    suites = [suite for view in runtime.gateway.all_views() for suite in view.suites.values()]
    _pipelines().observe([*runtime.gateway.all_suites.values(), *suites], runtime.context)


def _pipelines() -> ModuleType:
    """Load the code of pipelines, which not every Switchboard needs."""
    from switchboard_mcp.gateway.pipeline import pipeline

    return pipeline


def open_gate(config: Config, context: ChildContext) -> CallGate | None:
    """Return the gate of the workspace, if any rule can refuse a call or ask about it.

    It stays the same while its rules do, with the answers of the user. A call that waits in an earlier one is refused.
    Without rules there is one that asks about programs alone.
    """
    settings = gate_settings(config.gate)
    if not settings.enabled and PROGRAM_NAME not in context.builtin_apps:
        context.gate = None
        return None
    from switchboard_mcp.gateway.gate.call_gate import CallGate

    gate = context.gate
    if not isinstance(gate, CallGate) or gate.settings != settings:
        context.gate = gate = CallGate(settings, context)
    return gate if settings.enabled else None


def enable_switchboard_suite(config: Config, context: ChildContext) -> None:
    """Add the switchboard suite, and its record of recent errors, if enabled."""
    if config.find.enabled:
        from switchboard_mcp.gateway.suites.switchboard_suite import SwitchboardServer

        SwitchboardServer.attach(context)


def apply_views(
    gateway: Gateway, workspace: Workspace, context: ChildContext, profile: str, disabled: Failure | None
) -> None:
    """Build the view of each client, without the suites that governed mode blocks."""
    config = workspace.config
    of_principal = token_profiles(config.http.tokens)
    if profile or of_principal or gateway.serves_profiles:
        from switchboard_mcp.gateway.suites import profile_suite

        user = workspace.user.profiles if workspace.user is not None else {}
        profile_suite.apply_profiles(gateway, config.profiles, of_principal, profile, context.log, user)
    if config.governance.mode == "governed":
        from switchboard_mcp.gateway.suites.refused_suite import govern

        govern(gateway, config, workspace.absent, disabled)
    server = cast("SwitchboardServer | None", context.builtin_apps.get(SWITCHBOARD_NAME))
    programs = cast("ProgramServer | None", context.builtin_apps.get(PROGRAM_NAME))
    if programs is not None:
        programs.gateway = gateway
    if server is not None:
        server.gateway = gateway
        server.kept = None if programs is None else programs.kept
