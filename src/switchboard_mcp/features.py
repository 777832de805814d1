"""What a workspace may switch on: governed mode, the lock, mail, the audit record, telemetry, the bus.

Each is made here where the config, or a file that is there, asks for it; elsewhere nothing of it is loaded. Does not
know how the parts are put together: that is `app`'s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import resolve_bus
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.gateway.factory import Runtime
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor

if TYPE_CHECKING:
    from switchboard_mcp.bus.replicas.replicas import RedisReplicas
    from switchboard_mcp.children.pinning import Pins
    from switchboard_mcp.gateway.telemetry import Telemetry
    from switchboard_mcp.mail.server import MailServer
    from switchboard_mcp.observability.audit.audit_log import AuditLog
    from switchboard_mcp.policy.governance import GovernedWorkspace

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def governed_workspace(workspace: Workspace) -> GovernedWorkspace | None:
    """What governed mode makes of a workspace; None in open mode."""
    if workspace.config.governance.mode == "open":
        return None
    from switchboard_mcp.policy.governance import take_posture

    return take_posture(workspace, os.environ)


def open_pins(workspace: Workspace, log: Log) -> Pins | None:
    """What children were locked to; None where there is no lock and nothing is governed."""
    governed = workspace.config.governance.mode == "governed"
    if not governed and not os.path.lexists(os.path.join(workspace.folder, "switchboard.lock.json")):
        return None
    from switchboard_mcp.children.pinning import load_pins

    return load_pins(workspace.folder, log, governed=governed)


def open_mail(workspace: Workspace, log: Log, start_task: StartTask) -> MailServer | None:
    """The message desk, where it is on."""
    if not workspace.config.mail.enabled:
        return None
    from switchboard_mcp.mail.server import MailServer

    return MailServer(workspace.folder, workspace.config.mail, log, start_task, workspace.config.http.tokens)


def open_audit(workspace: Workspace, log: Log, redactor: Redactor) -> AuditLog | None:
    """The audit record, where it is on."""
    settings, governed = workspace.config.audit, workspace.config.governance.mode == "governed"
    if not (governed if settings.enabled is None else settings.enabled):
        return None
    from switchboard_mcp.observability.audit.audit_log import AuditLog

    deny = governed if settings.on_error is None else settings.on_error == "deny"

    def warn(problem: Failure) -> None:
        log.warning("audit.failed", problem=problem.message, calls="refused" if deny else "go on")

    masks = {name: suite.redact_args for name, suite in workspace.config.suites.items() if suite.redact_args}
    audit = AuditLog(settings, workspace.folder, redactor, masks=masks, fail_closed=deny, warn=warn)
    audit.start()
    return audit


def open_telemetry(workspace: Workspace, log: Log) -> Telemetry | None:
    """What is measured from outside, where anything is."""
    settings = workspace.config.telemetry
    if not settings.is_on:
        return None
    from switchboard_mcp.gateway.telemetry import start

    return start(settings, os.environ, workspace.source, log)


def observe_requests(gateway: Gateway, telemetry: Telemetry, loop: asyncio.AbstractEventLoop) -> None:
    """Watch all requests to children, and report what is counted anyway where somebody wants reports."""
    gateway.telemetry = telemetry
    telemetry.observe(gateway.all_suites.values())
    if telemetry.otel is not None:
        from switchboard_mcp.server.http.metrics_endpoint import collect

        began = loop.time()
        telemetry.report(lambda: collect(gateway, loop.time() - began), loop)


def record_decision(workspace: Workspace, kind: str, child: str, outcome: str) -> None:
    """Record what somebody decided with a command, where a record is kept."""
    audit = open_audit(workspace, Log(level="warning"), Redactor())
    if audit is not None:
        audit.record(kind, "command line", child, outcome=outcome)
        audit.close()


def join_bus(switchboard: Runtime, log: Log, redactor: Redactor) -> asyncio.Task[None] | None:
    """Carry mail between machines, where there is a bus."""
    settings = resolve_bus(switchboard.workspace.config.bus, os.environ, switchboard.workspace.folder)
    mail_server = switchboard.services.builtin_apps.get("mail")
    if not settings.enabled or mail_server is None:
        return None
    try:
        from switchboard_mcp.bus.connection_url import hide
        from switchboard_mcp.bus.service import run_relay
    except SwitchboardError as problem:
        log.error("bus.off", problem=str(problem))
        return None
    hide(settings.url, redactor.register)
    workspace = switchboard.workspace
    record = os.path.join(workspace.folder, workspace.config.audit.path) if switchboard.services.audit else ""
    return switchboard.services.start_task(run_relay(mail_server, settings, log, record))


def open_replicas(workspace: Workspace, log: Log, redactor: Redactor) -> RedisReplicas | None:
    """The other servers behind the same address, where this one says that it is one of several and there is a bus."""
    from switchboard_mcp.server.http.sessions import REPLICA

    name, settings = (
        os.environ.get(REPLICA, ""),
        resolve_bus(workspace.config.bus, os.environ, workspace.folder),
    )
    if name and not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
        # It begins the ids of sessions, which go through headers and addresses.
        message = f"{REPLICA} is {name!r}, and may hold letters, digits, _ and - alone."
        raise refused("config_invalid", message)
    if not name or not settings.enabled:
        return None
    try:
        from switchboard_mcp.bus.connection_url import hide
        from switchboard_mcp.bus.replicas.counters import ReplicaCounters
        from switchboard_mcp.bus.replicas.replicas import RedisReplicas

        hide(settings.url, redactor.register)
        return RedisReplicas(name, ReplicaCounters(settings), log)
    except SwitchboardError as problem:
        log.error("replicas.off", problem=str(problem))
        return None
