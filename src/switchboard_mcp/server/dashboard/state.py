"""The data behind the dashboard. Figures are collected from the start of the server; mail is open while it is viewed.

Not aware of HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
from msgspec.structs import replace

from switchboard_mcp.bus import relay_status
from switchboard_mcp.bus.relay_status import BusStatus
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sections import resolve_bus
from switchboard_mcp.gateway.status import ChildUse, SessionStatus, child_uses, session_statuses
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.server.dashboard.attention import AttentionItem, ServerFacts, attention
from switchboard_mcp.server.dashboard.call_details import CallDetails
from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.history import HistoryRecorder
from switchboard_mcp.server.dashboard.mail_view import MailView
from switchboard_mcp.server.dashboard.resource_use import ResourceHistory
from switchboard_mcp.server.dashboard.savings_history import SavingsHistory, SavingsPoint
from switchboard_mcp.system.processes import started_at

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.config.models import Workspace
    from switchboard_mcp.gateway.factory import Runtime
    from switchboard_mcp.gateway.gate.call_gate import CallGate
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.mail.server import MailServer

# Enough to scroll through.
MAX_SESSIONS = 200


class SwitchChild(Protocol):
    """Enables or disables a child in the file that defines it."""

    def __call__(self, spec: ChildSpec, *, disabled: bool) -> bool:
        """Return False if it is so already."""


class DashboardState:
    """Provides the dashboard's data. `hosts_served` and `sessions` return the server's counts."""

    def __init__(
        self,
        runtime: Runtime,
        call_log: CallLog,
        savings: SavingsHistory,
        hosts_served: Callable[[], int],
        sessions: Callable[[], int],
        switch_child: SwitchChild | None = None,
        history: HistoryRecorder | None = None,
    ) -> None:
        self._runtime = runtime
        self.gateway: Gateway = runtime.gateway
        self.services: ChildContext = runtime.context
        self.hosts_served = hosts_served
        self.sessions = sessions
        self.started_ms = savings.points[0].at
        self.call_log = call_log
        self.savings = savings
        self.switch_child = switch_child
        self.history = history
        self.resources = ResourceHistory()
        self._mail: MailView | None = None
        settings = runtime.workspace.config.dashboard
        self.details_setting = settings.call_details
        self.details: CallDetails | None = None
        if self.details_setting != "off":
            redactor = self.services.redactor
            self.details = CallDetails(settings.call_details_bytes, redactor, lambda: call_log.seq)

    @property
    def mail_server(self) -> MailServer | None:
        """Return the mail server, if mail is on."""
        return cast("MailServer | None", self.services.builtin_apps.get("mail"))

    @property
    def approvals(self) -> int:
        """Return the number of calls of this server that wait for a decision."""
        gate = cast("CallGate | None", self.services.gate)
        return len(gate.questions.all()) if gate is not None else 0

    @property
    def mail(self) -> MailView:
        """Return the read-only view of all mail, opened on first use."""
        if self._mail is None:
            assert self.mail_server is not None  # Whoever asks has checked that mail is on.
            self._mail = MailView(self.mail_server, self.services.redactor.redact_uncut)
        return self._mail

    @property
    def workspace(self) -> Workspace:
        """Return the current workspace, which a reload replaces."""
        return self._runtime.workspace

    def open_details(self) -> None:
        """Keep details of calls from now on, if the settings say so."""
        if self.details is not None:
            self.call_log.watch = self.details.watch

    def close_details(self) -> None:
        """Forget details of calls: nobody views the dashboard any more."""
        if self.details is not None and self.details_setting != "always":
            self.call_log.watch = None
            self.details.clear()

    def attention(self, rows: list[dict[str, object]]) -> list[AttentionItem]:
        """Return what needs attention, the most urgent first; `rows` are those of the children."""
        services, redactor = self.services, self.services.redactor
        problem = services.audit.write_failure if services.audit is not None else None
        facts = ServerFacts(
            disabled=services.disabled,
            audit=redactor.redact_failure(problem) if problem is not None else None,
            approvals=self.approvals,
            warnings=[redactor.redact_text(str(warning)) for warning in self.workspace.warnings],
        )
        status = self.bus_status
        if self._has_bus:
            facts.bus = redactor.redact_text(relay_status.describe_problem(status))
            facts.bus_hint = status.remedy if status is not None else ""
        return attention(rows, facts)

    @property
    def _has_bus(self) -> bool:
        """Return True if the config or the environment names a bus."""
        return resolve_bus(self.workspace.config.bus, os.environ).enabled

    @property
    def bus_status(self) -> BusStatus | None:
        """Return the last status of the relay; None if there is no bus."""
        return relay_status.read(self.workspace.folder) if self._has_bus else None

    def connections(self) -> dict[str, object]:
        """Return the health of the bus; None without one."""
        return {"bus": self._bus_health() if self._has_bus else None}

    def _bus_health(self) -> dict[str, object]:
        status, text = self.bus_status, self.services.redactor.redact_text
        problem = text(relay_status.describe_problem(status))
        if status is None:
            return {"state": "absent", "problem": problem}
        shown = {**msgspec.to_builtins(status), "url": text(status.url), "problem": problem}
        return {**shown, "state": "down"} if relay_status.is_stale(status) else shown

    async def close_mail(self) -> None:
        """Close mail: nobody views the dashboard any more."""
        self._mail = None

    def child_names(self) -> set[str]:
        """Return the names of the children that hosts see."""
        return {suite.child.name for suite in self.gateway.all_suites.values()}

    def pids(self) -> dict[str, int]:
        """Return the running processes of children by the id of their row."""
        return {
            f"{child.name}#{index}" if index else child.name: child.pid
            for suite in self.gateway.all_suites.values()
            for index, child in enumerate(suite.child.processes() or [suite.child])
            if child.pid
        }

    def rows(self) -> list[dict[str, object]]:
        """Return one row per child, or per process of a child that has several."""
        rows: list[dict[str, object]] = []
        for suite in list(self.gateway.all_suites.values()):
            processes = suite.child.processes() or [suite.child]
            uses = child_uses([suite], self.call_log.timelines, {})
            rows += [self._row(suite, child, use) for child, use in zip(processes, uses, strict=True)]
        rows += [
            {
                "id": name,
                "suite": name,
                "child": str(problem.child or name),
                "state": "absent",
                "health": "absent",
                "trouble": problem,
            }
            for name, problem in self.gateway.absent.items()
        ]
        shown = {row["id"] for row in rows}
        rows += [
            {
                "id": spec.name,
                "suite": spec.name,
                "child": spec.name,
                "kind": spec.kind,
                "source": spec.source,
                "state": "disabled",
                "health": "disabled",
            }
            for spec in self.workspace.disabled
            if spec.name not in shown
        ]
        return rows

    def session_list(self) -> list[SessionStatus]:
        """Return the oldest connected sessions, with texts of their hosts redacted."""
        text = self.services.redactor.redact_text
        return [
            replace(session, client=text(session.client), version=text(session.version))
            for session in session_statuses(self.gateway.sessions[:MAX_SESSIONS])
        ]

    def _row(self, suite: ChildSuite, child: Child, use: ChildUse) -> dict[str, object]:
        row: dict[str, object] = msgspec.to_builtins(use)
        text = self.services.redactor.redact_text
        row["users"] = [{"client": text(user.client), "pid": user.pid} for user in use.users]
        row["description"] = suite.description
        if child.pid:
            row["startedAt"] = started_at(child.pid)
        problem = child.last_failure
        if problem is not None and "lastFailure" in row:
            row["trouble"] = child.redact(problem)
        row.pop("lastFailure", None)
        changes = child.inventory.drift()
        if changes:
            row["drift"] = len(changes)
        unusable = child.inventory.blocked_reason()
        if unusable is not None:
            row["lockTrouble"] = row["trouble"] = unusable
        return row

    def sample_savings(self) -> SavingsPoint | None:
        """Sample the savings. Return the new point, or None if nothing has changed."""
        return self.savings.sample(self.gateway, self.call_log)
