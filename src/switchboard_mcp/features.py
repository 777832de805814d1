"""Creates the optional features: the lock, mail, the audit log, telemetry, the bus.

A feature is created, and its code imported, only if the config or an existing file enables it. How the parts are
connected is `app`'s concern.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import EVENT_LOG, AuditSettings, resolve_bus
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.gateway.factory import Runtime
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.children.locking.pinning import Pins
    from switchboard_mcp.gateway.programs.program_server import ProgramServer
    from switchboard_mcp.gateway.telemetry import Telemetry
    from switchboard_mcp.mail.server import MailServer
    from switchboard_mcp.observability.audit.audit_log import AuditLog

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def open_pins(workspace: Workspace, log: Log) -> Pins | None:
    """Load the lock. Return None in open mode without a lock file."""
    governed = workspace.config.governance.mode == "governed"
    if not governed and not os.path.lexists(os.path.join(workspace.folder, "switchboard.lock.json")):
        return None
    from switchboard_mcp.children.locking.pinning import load_pins

    return load_pins(workspace.folder, log, governed=governed)


def open_mail(workspace: Workspace, log: Log, start_task: StartTask) -> MailServer | None:
    """Create the mail server, if mail is enabled."""
    if not workspace.config.mail.enabled:
        return None
    from switchboard_mcp.mail.server import MailServer

    config = workspace.config
    server = MailServer(workspace.folder, config.mail, log, start_task, config.http.tokens, config.database)
    if os.path.isdir(os.path.join(workspace.folder, ".switchboard", "inbox")):
        start_task(server.serve_files())
    return server


def open_programs(workspace: Workspace, context: ChildContext) -> ProgramServer | None:
    """Create the program suite, if it is enabled."""
    if not workspace.config.programs.enabled:
        return None
    from switchboard_mcp.gateway.programs.program_server import ProgramServer

    server = ProgramServer(workspace, context)
    context.builtin_apps = {**context.builtin_apps, server.name: server}
    return server


def audit_folder(workspace: Workspace) -> str:
    """Return the folder of the audit log; empty if it is off."""
    settings, governed = workspace.config.audit, workspace.config.governance.mode == "governed"
    enabled = governed if settings.enabled is None else settings.enabled
    return os.path.join(workspace.folder, settings.path) if enabled else ""


def open_audit(workspace: Workspace, log: Log, redactor: Redactor) -> AuditLog | None:
    """Open the audit log, if it is enabled."""
    settings, governed = workspace.config.audit, workspace.config.governance.mode == "governed"
    if not audit_folder(workspace):
        return None
    deny = governed if settings.on_error is None else settings.on_error == "deny"

    def warn(problem: Failure) -> None:
        log.warning("audit.failed", problem=problem.message, calls="refused" if deny else "go on")

    return _start_log(settings, workspace, redactor, warn, fail_closed=deny)


def _start_log(
    settings: AuditSettings,
    workspace: Workspace,
    redactor: Redactor,
    warn: Callable[[Failure], None],
    *,
    fail_closed: bool,
) -> AuditLog:
    from switchboard_mcp.observability.audit.audit_log import AuditLog

    masks = {name: suite.redact_args for name, suite in workspace.config.suites.items() if suite.redact_args}
    log = AuditLog(settings, workspace.folder, redactor, masks=masks, fail_closed=fail_closed, warn=warn)
    log.start()
    return log


def open_telemetry(workspace: Workspace, log: Log) -> Telemetry | None:
    """Start metrics and tracing, if enabled."""
    settings = workspace.config.telemetry
    if not settings.is_on:
        return None
    from switchboard_mcp.gateway.telemetry import start

    return start(settings, os.environ, workspace.source, log)


def observe_requests(gateway: Gateway, telemetry: Telemetry, loop: asyncio.AbstractEventLoop) -> None:
    """Observe all requests to children, and export the counters if OpenTelemetry is enabled."""
    gateway.telemetry = telemetry
    telemetry.observe(gateway.all_suites.values())
    if telemetry.otel is not None:
        from switchboard_mcp.server.http.metrics_endpoint import collect

        began = loop.time()
        telemetry.report(lambda: collect(gateway, loop.time() - began), loop)


def open_event_log(workspace: Workspace, log: Log, redactor: Redactor) -> AuditLog | None:
    """Open the log of events to publish, if a bus is configured. It replaces an audit log that is off."""
    if not resolve_bus(workspace.config.bus, os.environ).enabled:
        return None

    def warn(problem: Failure) -> None:
        log.warning("events.failed", problem=problem.message, note="nothing is published until it is written")

    return _start_log(EVENT_LOG, workspace, redactor, warn, fail_closed=False)


def record_decision(workspace: Workspace, kind: str, child: str, outcome: str) -> None:
    """Write a decision made on the command line to the audit log or the event log, if there is one."""
    log, redactor = Log(level="warning"), Redactor()
    records = open_audit(workspace, log, redactor) or open_event_log(workspace, log, redactor)
    if records is not None:
        records.record(CallRecord(kind, "command line", child, outcome=outcome))
        records.close()


def start_bridges(switchboard: Runtime, log: Log, redactor: Redactor) -> asyncio.Task[None] | None:
    """Start exchanging events and mail over a bus, if one is configured, and return its task."""
    settings = resolve_bus(switchboard.workspace.config.bus, os.environ, switchboard.workspace.folder)
    if not settings.enabled:
        return None
    try:
        from switchboard_mcp.bus.service import prepare_relay
    except SwitchboardError as problem:
        log.error("bus.off", problem=str(problem), note="no events are published")
        return None
    workspace, context = switchboard.workspace, switchboard.context
    audit = audit_folder(workspace) if context.audit else ""
    mail_server = context.builtin_apps.get("mail")
    relay = prepare_relay(workspace.folder, mail_server, settings, log, redactor.register, audit)
    return context.start_task(relay)
