"""A config that changes while Switchboard serves: what is new is taken over, and no call is lost.

Loaded when the first host has its answer. Owns when to look, what is kept as it was, and what hosts are told. A config
that cannot be used is refused with a line in the log, and all stays as it was; so does a child whose own file has
become unreadable. Calls under way end where they began.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from msgspec.structs import replace

from switchboard_mcp.config.models import HOUSE_NAME, ChildSpec, Config, Workspace
from switchboard_mcp.config.sections import NOBODY, Token, token_profiles, token_text
from switchboard_mcp.config.watch_paths import places
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.gateway.factory import Parts, arrange, attach_pipelines, load_middleware, open_house
from switchboard_mcp.gateway.session_migration import move_in
from switchboard_mcp.system.file_watch import FileWatch

# What can be another from one moment to the next; the rest counts from the next start on.
HOT = frozenset(
    {
        "discover_globs",
        "mcp_servers",
        "suites",
        "timeouts",
        "introspection",
        "limits",
        "middleware",
        "health",
        "find",
        "profiles",
    }
)


class Reloader:
    """Watches the files of a workspace, and brings what they say into force.

    `load` reads the workspace as its files are, before any policy.
    """

    def __init__(self, parts: Parts, load: Callable[[], Workspace], config_file: str | None) -> None:
        self.parts = parts
        self._load = load
        self._config_file = config_file
        self._changed = asyncio.Event()
        self._seen: Workspace | None = None
        self._refused = ""
        self._cold: list[str] = []
        self._masks = _masks(parts.workspace.config)
        self._places: dict[str, frozenset[str]] = {}
        self._watch = FileWatch(parts.services.loop, self._changed.set)

    async def run(self) -> None:
        """Until cancelled. The first look finds what has changed since the start."""
        try:
            while True:
                await self._look()
                await self._changed.wait()
                self._changed.clear()
        finally:
            self._watch.stop()

    async def _look(self) -> None:
        """Watch first, then read: what comes between is told."""
        await self._look_at(self._seen or self.parts.workspace)
        try:
            fresh = await asyncio.to_thread(self._load)
            # What is approved stands elsewhere.
            if fresh != self._seen or self.parts.workspace.config.governance.mode != "open":
                renew(self.parts, fresh)
                self._tell_cold(fresh)
            self._look_at_lock()
            self._seen, self._refused = fresh, ""
            if await self._look_at(fresh):
                self._changed.set()  # what came before the new folders were watched
        except SwitchboardError as problem:
            self._refuse(problem.failure)
        except OSError as problem:
            self.parts.services.log.warning("config.refused", problem=str(problem))

    def _look_at_lock(self) -> None:
        """Another lock counts at once: it may take something away."""
        for child in self.parts.supervisor.children.values():
            for one in {child, *child.processes()}:
                one.inventory.reload_lock()

    async def _look_at(self, workspace: Workspace) -> bool:
        """Watch where the files of a workspace are; whether that is somewhere else than before."""
        environ = self.parts.services.environ
        found = await asyncio.to_thread(places, workspace, self._config_file, environ)
        before, self._places = self._places, found
        self._watch.look_at(found)
        return before != found

    def _tell_cold(self, fresh: Workspace) -> None:
        """Say once what will count at the next start."""
        names = dict(zip(Config.__struct_fields__, Config.__struct_encode_fields__, strict=True))
        cold = [names[name] for name in _cold(self.parts.workspace.config, fresh.config)]
        if self.parts.services.audit is not None and _masks(fresh.config) != self._masks:
            cold.append("suites.*.redactArgs for the audit record")
        if cold and cold != self._cold:
            self.parts.services.log.warning("config.restart_needed", keys=", ".join(cold))
        self._cold = cold

    def _refuse(self, problem: Failure) -> None:
        if problem.message != self._refused:  # told once, however often it is looked at
            self._refused = problem.message
            told = f"{problem.message} {problem.hint}"
            self.parts.services.log.warning("config.refused", problem=told, kept="what was in force before")


def renew(parts: Parts, fresh: Workspace) -> None:
    """Bring another workspace into force. Raises before anything is changed where it cannot be used."""
    services, gateway = parts.services, parts.gateway
    workspace = _kept(parts.workspace, fresh)
    disabled = None
    guard = services.launch_policy
    if workspace.config.governance.mode != "open":
        from switchboard_mcp.policy.governance import take_posture

        posture = take_posture(workspace, services.environ)
        workspace, disabled, guard = posture.workspace, posture.disabled, posture.guard
    loaded = load_middleware(workspace.config)
    services.launch_policy = guard
    if workspace == parts.workspace:
        return
    open_house(workspace.config, services)
    changed = parts.supervisor.adopt(workspace)
    suites = gateway.adopt(parts.supervisor.children.values(), workspace.config)
    attach_pipelines(suites, workspace.config, services, loaded)
    if gateway.telemetry is not None:
        gateway.telemetry.watch(suites.values())
    arrange(gateway, workspace, services, parts.profile, disabled)
    move_in(gateway, changed)
    before, parts.workspace = parts.workspace, workspace
    _tell(parts, before, changed)


def _cold(current: Config, fresh: Config) -> list[str]:
    """The names of settings that are others now and only count at a start."""
    names = (name for name in Config.__struct_fields__ if name not in HOT)
    return [name for name in names if getattr(fresh, name) != getattr(current, name)]


def _masks(config: Config) -> dict[str, list[str]]:
    """What the audit record was begun with."""
    return {name: suite.redact_args for name, suite in config.suites.items() if suite.redact_args}


def _kept(current: Workspace, fresh: Workspace) -> Workspace:
    """The new workspace, with what only counts at a start as it was."""
    cold = _cold(current.config, fresh.config)
    config = replace(fresh.config, **{name: getattr(current.config, name) for name in cold})
    if "http" in cold:
        config = replace(config, http=replace(config.http, tokens=_tokens(current.config, fresh.config)))
    own = [spec for spec in current.children if _counts_at_start(spec)]
    children = [spec for spec in fresh.children if not _counts_at_start(spec)]
    names = {spec.name for spec in children}
    broken = [spec for spec in current.children if spec.name not in names and _is_broken(spec, fresh)]
    return replace(fresh, config=config, children=[*own, *children, *broken])


def _tokens(current: Config, fresh: Config) -> dict[str, str | Token]:
    """The tokens that are in force, each with the profile it has now; one that was taken away shows nothing more."""
    profiles = token_profiles(fresh.http.tokens)
    kept: dict[str, str | Token] = {}
    for name, written in current.http.tokens.items():
        text = token_text(written)
        profile = profiles.get(name, "") if name in fresh.http.tokens else NOBODY
        kept[name] = Token(token=text, profile=profile) if profile else text
    return kept


def _counts_at_start(spec: ChildSpec) -> bool:
    return spec.kind == "builtin" and spec.name != HOUSE_NAME


def _is_broken(spec: ChildSpec, fresh: Workspace) -> bool:
    """Whether a child is missing only since what says of it cannot be read."""
    return os.path.exists(spec.source) and any(
        warning.source == spec.source and (not warning.key or warning.key.startswith(spec.key))
        for warning in fresh.warnings
    )


def _tell(parts: Parts, before: Workspace, changed: frozenset[str]) -> None:
    log = parts.services.log
    told = {str(warning) for warning in before.warnings}
    for warning in parts.workspace.warnings:
        if str(warning) not in told:
            log.warning("config.warning", problem=str(warning))
    was, now = ({spec.name for spec in one.children} for one in (before, parts.workspace))
    log.info(
        "config.reloaded",
        added=sorted(changed & (now - was)),
        changed=sorted(changed & now & was),
        removed=sorted(changed - now),
    )
