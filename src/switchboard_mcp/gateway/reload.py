"""Reloads the config while Switchboard serves, without losing a call.

Imported after the first response to a host. An unusable config is refused with a log entry and the current one stays in
force; so does a child whose own file has become unreadable. Connected hosts keep working: their views are updated,
their subscriptions moved to the new children, and list changes announced. Calls in flight finish where they began.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.models import RELOAD, SWITCHBOARD_NAME, ChildSpec, Config, Workspace
from switchboard_mcp.config.sections import REVOKED_PROFILE, Token, token_text
from switchboard_mcp.config.watch_paths import config_version, watched_files
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.gateway import prompts_resources
from switchboard_mcp.gateway.factory import (
    Runtime,
    apply_views,
    attach_pipelines,
    enable_switchboard_suite,
    govern_workspace,
    load_middleware,
)
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.notifications import TOOLS_CHANGED, send_list_changed
from switchboard_mcp.gateway.session import Session, SubscribedResource
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.system.file_watch import FileWatcher

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.plugins import LoadedMiddleware

LISTS = {
    "notifications/prompts/list_changed": (prompts_resources.PROMPTS,),
    "notifications/resources/list_changed": (prompts_resources.RESOURCES, prompts_resources.TEMPLATES),
}


class Reloader:
    """Watches the files of a workspace and applies changes.

    `load` reads the workspace from its files, before any policy is applied. `last_refusal` is why the files cannot be
    used now, `restart_only` has the changed settings that the next start will use.
    """

    def __init__(self, runtime: Runtime, load: Callable[[], Workspace], config_file: str | None) -> None:
        self.runtime = runtime
        self._load = load
        self._config_file = config_file
        self._changed = asyncio.Event()
        self._loaded: Workspace | None = None
        self.last_refusal = ""
        self.restart_only: list[str] = []
        self._reloading = asyncio.Lock()
        self._redacted_args = _redacted_args(runtime.workspace.config)
        self._watched: dict[str, frozenset[str]] = {}
        self._watch = FileWatcher(runtime.context.loop, self._changed.set)

    async def run(self) -> None:
        """Run until cancelled. The first pass finds changes made since startup."""
        try:
            while True:
                async with self._reloading:
                    await self._reload()
                await self._changed.wait()
                self._changed.clear()
        finally:
            self._watch.stop()

    async def refresh(self) -> None:
        """Apply the changes made until now, if there are any, before anything else is served."""
        async with self._reloading:
            if self._loaded is None or self._watch.look() or self._changed.is_set():
                self._changed.clear()
                await self._reload()

    async def _reload(self) -> None:
        """Load the workspace and apply it. Files are watched before they are read, so no change is missed."""
        await self._watch_files(self._loaded or self.runtime.workspace)
        version = config_version(self.runtime.workspace.folder, self._config_file)
        try:
            fresh = await asyncio.to_thread(self._load)
            tokens = self.runtime.tokens
            if tokens is not None:  # also if the rest of the config is refused
                tokens.revoke_missing(fresh.config.http.tokens)
            # In governed mode approvals are kept in another file and may have changed too.
            if fresh != self._loaded or self.runtime.workspace.config.governance.mode != "open":
                apply(self.runtime, fresh)
                if tokens is not None:
                    tokens.take_tokens(fresh.config.http.tokens)
                self._warn_restart_needed(fresh)
            self._reload_locks()
            self._loaded, self.last_refusal = fresh, ""
            if not self.restart_only:
                self.runtime.config_version = version
            if await self._watch_files(fresh):
                self._changed.set()  # files may have changed before the new folders were watched
        except SwitchboardError as problem:
            self._log_refusal(problem.failure)
        except OSError as problem:
            self.runtime.context.log.warning("config.refused", problem=str(problem))

    def _reload_locks(self) -> None:
        """Reload the locks at once: a new lock may withdraw a tool."""
        for child in self.runtime.registry.children.values():
            for process in {child, *child.processes()}:
                process.inventory.reload_lock()

    async def _watch_files(self, workspace: Workspace) -> bool:
        """Watch the files of a workspace; return True if their paths have changed."""
        environ = self.runtime.context.environ
        files = await asyncio.to_thread(watched_files, workspace, self._config_file, environ)
        before, self._watched = self._watched, files
        self._watch.watch(files)
        return before != files

    def _warn_restart_needed(self, fresh: Workspace) -> None:
        """Warn once about changed settings that need a restart."""
        names = dict(zip(Config.__struct_fields__, Config.__struct_encode_fields__, strict=True))
        restart_only = [names[name] for name in _restart_only(self.runtime.workspace.config, fresh.config)]
        if self.runtime.context.records is not None and _redacted_args(fresh.config) != self._redacted_args:
            restart_only.append("suites.*.redactArgs for the audit log")
        if restart_only and restart_only != self.restart_only:
            self.runtime.context.log.warning("config.restart_needed", keys=", ".join(restart_only))
        self.restart_only = restart_only

    def _log_refusal(self, problem: Failure) -> None:
        if problem.message != self.last_refusal:  # log each problem once
            self.last_refusal = problem.message
            message = f"{problem.message} {problem.hint}"
            self.runtime.context.log.warning("config.refused", problem=message, kept="the previous config")


def apply(runtime: Runtime, fresh: Workspace) -> None:
    """Apply a new workspace. Raises before anything is changed if it cannot be used."""
    context = runtime.context
    workspace = _keep_restart_only(runtime.workspace, fresh)
    disabled = None
    guard = context.launch_policy
    governed = govern_workspace(workspace, context.environ)
    if governed is not None:
        workspace, disabled, guard = governed.workspace, governed.disabled, governed.launch_policy
    loaded = load_middleware(workspace.config)
    context.launch_policy = guard
    if replace(workspace, written=runtime.workspace.written) == runtime.workspace:
        return
    enable_switchboard_suite(workspace.config, context)
    changed = runtime.registry.apply(workspace)
    before, runtime.workspace = runtime.workspace, workspace
    _replace_children(runtime, changed, loaded, disabled)
    _log_changes(runtime, before, changed)


def isolate(runtime: Runtime, child: str, sole_user: Session | None) -> None:
    """Give each session its own process of a child that was shared, unless the config says otherwise."""
    if not runtime.registry.isolate(child, sole_user):
        return
    governed = govern_workspace(runtime.workspace, runtime.context.environ)
    loaded = load_middleware(runtime.workspace.config)
    disabled = None if governed is None else governed.disabled
    _replace_children(runtime, frozenset((child,)), loaded, disabled)
    reason = "it asks its client outside of a single call"
    runtime.context.log.info("child.isolated", child=child, reason=reason)


def _replace_children(
    runtime: Runtime, changed: frozenset[str], loaded: LoadedMiddleware | None, disabled: Failure | None
) -> None:
    """Give the gateway the children of the registry, and its sessions their new views."""
    gateway, workspace, context = runtime.gateway, runtime.workspace, runtime.context
    old_views = gateway.session_views()
    suites = gateway.replace_children(runtime.registry.children.values(), workspace.config)
    attach_pipelines(suites, workspace.config, context, loaded)
    apply_views(gateway, workspace, context, runtime.profile, disabled)
    migrate_sessions(gateway, old_views, changed)


def _restart_only(current: Config, fresh: Config) -> list[str]:
    """Return the changed settings that only take effect at the next start. Tokens are taken over at once."""
    fresh = replace(fresh, http=replace(fresh.http, tokens=current.http.tokens))
    names = (name for name in Config.__struct_fields__ if "restart" in RELOAD[name])
    return [name for name in names if getattr(fresh, name) != getattr(current, name)]


def _redacted_args(config: Config) -> dict[str, list[str]]:
    """Return the redacted arguments by suite; the audit log keeps those it was opened with."""
    return {name: suite.redact_args for name, suite in config.suites.items() if suite.redact_args}


def _keep_restart_only(current: Workspace, fresh: Workspace) -> Workspace:
    """Return the new workspace with the current values of settings that need a restart."""
    restart_only = _restart_only(current.config, fresh.config)
    config = replace(fresh.config, **{name: getattr(current.config, name) for name in restart_only})
    config = replace(config, http=replace(config.http, tokens=_tokens(current.config, fresh.config)))
    own = [spec for spec in current.children if _needs_restart(spec)]
    children = [spec for spec in fresh.children if not _needs_restart(spec)]
    names = {spec.name for spec in children if not spec.incomplete}
    broken = {
        spec.name: spec
        for spec in current.children
        if not spec.incomplete and spec.name not in names and _is_broken(spec, fresh)
    }
    usable = [spec for spec in children if spec.name not in broken]
    return replace(fresh, config=config, children=[*own, *usable, *broken.values()])


def _tokens(current: Config, fresh: Config) -> dict[str, str | Token]:
    """Return the tokens of the config, and those that it no longer has: their holders see nothing any more."""
    revoked: dict[str, str | Token] = {
        name: Token(token=token_text(written), profile=REVOKED_PROFILE)
        for name, written in current.http.tokens.items()
        if name not in fresh.http.tokens
    }
    return {**revoked, **fresh.http.tokens}


def _needs_restart(spec: ChildSpec) -> bool:
    return spec.kind == "builtin" and spec.name != SWITCHBOARD_NAME


def _is_broken(spec: ChildSpec, fresh: Workspace) -> bool:
    """Return True if a child is missing only because its config has become unreadable."""
    return os.path.exists(spec.source) and any(
        warning.source == spec.source and (not warning.key or warning.key.startswith(spec.key))
        for warning in fresh.warnings
    )


def _log_changes(runtime: Runtime, before: Workspace, changed: frozenset[str]) -> None:
    log = runtime.context.log
    logged = {str(warning) for warning in before.warnings}
    for warning in runtime.workspace.warnings:
        if str(warning) not in logged:
            log.warning("config.warning", problem=warning.with_remedy())
    was, now = ({spec.name for spec in workspace.children} for workspace in (before, runtime.workspace))
    log.info(
        "config.reloaded",
        added=sorted(changed & (now - was)),
        changed=sorted(changed & now & was),
        removed=sorted(changed - now),
    )


def migrate_sessions(gateway: Gateway, old_views: Mapping[Session, View], changed: frozenset[str]) -> None:
    """Give every host the tools of its new view, and announce the lists that changed for it."""
    changed_lists: dict[tuple[int, int], list[str]] = {}
    for session, old in old_views.items():
        view = gateway.view_of(session.viewer)
        session.tools, session.profile = view.tools, view.profile
        key = (id(old), id(view))
        if key not in changed_lists:
            changed_lists[key] = _changed_lists(old, view, changed)
        for method in changed_lists[key]:
            send_list_changed(session, method)
        for subscribed in (session.subscribed, *(listen.subscribed for listen in session.listens.values())):
            _resubscribe(session, view, subscribed, changed)
    gateway.restore_log_levels()


def _changed_lists(old: View, new: View, changed: frozenset[str]) -> list[str]:
    """Return the list-changed notifications to send. A list that is not known yet counts as changed."""
    visible = any(old.shows(child) or new.shows(child) for child in changed)
    families = (False, True)
    differs = any(
        old.tool_list.pages(stateless=stateless) != new.tool_list.pages(stateless=stateless)
        for stateless in families
    )
    exposures = [{name: suite.exposure for name, suite in view.suites.items()} for view in (old, new)]
    differs = differs or exposures[0] != exposures[1]  # a known host may see another list
    notifications = [TOOLS_CHANGED] if visible or differs else []
    for notification, methods in LISTS.items():
        if any(_list_result(old, method) != _list_result(new, method) for method in methods):
            notifications.append(notification)
    return notifications


def _list_result(view: View, method: str) -> bytes:
    return prompts_resources.build_list(view.suites.values(), prompts_resources.KINDS[method], {})


def _resubscribe(
    session: Session, view: View, subscribed: dict[str, SubscribedResource], changed: frozenset[str]
) -> None:
    """Move subscriptions to the new child of the same name; drop those whose child is gone."""
    for uri, resource in list(subscribed.items()):
        suites = {suite.source: suite for suite in view.suites.values()}
        suite = suites.get(resource.child.name)
        if resource.child.name in changed or suite is None:
            del subscribed[uri]
            resource.child.subscriptions.unsubscribe(resource.uri)
            if suite is not None and suite.access.permits_uri(resource.uri):
                suite.child.acquire(ResubscribeWaiter(session, subscribed, uri, resource.uri))


class ResubscribeWaiter(ReadyWaiter):
    """Subscribes to a resource at its new child, once that is ready."""

    __slots__ = ("_own", "_session", "_subscribed", "_uri")

    def __init__(
        self, session: Session, subscribed: dict[str, SubscribedResource], uri: str, own: str
    ) -> None:
        self._session = session
        self._subscribed = subscribed
        self._uri = uri
        self._own = own

    @property
    def owner(self) -> object:
        """The owner of the host's own process, if processes are not shared."""
        return self._session.process_owner

    def on_ready(self, child: Child) -> None:
        """Subscribe, unless the host has subscribed again by itself."""
        if self._uri not in self._subscribed:
            self._subscribed[self._uri] = SubscribedResource(child, self._own)
            child.subscriptions.subscribe(self._own)

    def on_failed(self, problem: Failure) -> None:
        """Ignore it: a child that cannot be started sends no updates either."""
