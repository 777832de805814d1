"""The services that all children share: event loop, launcher, log, catalog, audit."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct, field

from switchboard_mcp.children.catalog import Catalog, Tool
from switchboard_mcp.children.roots_question import RootsQuestion
from switchboard_mcp.errors import Failure
from switchboard_mcp.observability.call_record import CallObserver, CallRecord
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.process.launcher import Launcher
from switchboard_mcp.transport.rpc import Peer
from switchboard_mcp.transport.stdio import Cork

if TYPE_CHECKING:
    from switchboard_mcp.children.locking.pinning import Pins
    from switchboard_mcp.config.models import ChildSpec
    from switchboard_mcp.inprocess.server_app import ServerApp, ToolTable
    from switchboard_mcp.observability.audit.audit_log import AuditLog
    from switchboard_mcp.observability.recent_errors import RecentErrors
    from switchboard_mcp.policy.launch.rules import LaunchPolicy
    from switchboard_mcp.sandbox.runner import SandboxRunner


class ChildHandle(Protocol):
    """A child as the receiver of its messages sees it."""

    spec: ChildSpec
    owner: object
    last_session: object
    peer: Peer | None
    roots: RootsQuestion

    def waiters(self) -> Sequence[object]:
        """The calls that wait for the child."""

    @property
    def name(self) -> str:
        """The name of the child in the config."""

    @property
    def is_shared(self) -> bool:
        """True if the process is not kept for one session or principal."""

    def sole_user(self) -> object:
        """The session that this run was started for, as long as no other has used it or waits; or None."""


class ChildEvents(Protocol):
    """Receives the messages that children send on their own. Implemented by the gateway."""

    def on_child_notification(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        """Handle a notification, except progress and list changes."""

    def on_child_request(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        """Handle a request to the child's client."""

    def on_list_changed(self, child: str, notification: str, *, first: bool = False) -> None:
        """Handle a change of a child's inventory, or its `first` appearance."""


class ResultTypes(Protocol):
    """The types of results that were learned: `programs.learned_types.LearnedTypes`."""

    def text(self, spec: ChildSpec, subtool: str) -> str:
        """Return the type of a subtool's result and how often it was seen, or an empty text."""

    @property
    def skips(self) -> dict[tuple[str, str], int]:
        """The number of results that need not be looked at before the next one, by child and subtool."""

    def sample(self, spec: ChildSpec, tool: Tool, result: Raw | bytes) -> None:
        """Learn from a result that a host gets, and set how many are skipped then."""


class ChildContext(Struct, kw_only=True):
    """The dependencies passed to every child."""

    loop: AbstractEventLoop
    launcher: Launcher
    cork: Cork
    log: Log
    redactor: Redactor
    catalog: Catalog
    environ: Mapping[str, str]
    workspace: str
    start_task: Callable[[Coroutine[Any, Any, None]], Task[None]]
    events: ChildEvents | None = None
    # Client capabilities announced to children that serve several hosts; empty if there is only one host.
    shared_capabilities: bytes = b""
    # Hosts may connect that know nothing of each other, over stdio.
    several_hosts: bool = False
    config_file: str = ""  # the config that wrappers read
    reads_pages: bool = False  # the pages of apps are read with the lists, to be locked
    # Those announced to every child, if its tools must not depend on the host; empty if they may.
    full_capabilities: bytes = b""
    # Governed mode only: approves each launch; the reason nothing is routed while the kill switch is off.
    launch_policy: LaunchPolicy | None = None
    disabled: Failure | None = None
    # The rest is None unless its feature is configured, so its code is not imported.
    pins: Pins | None = None
    recent_errors: RecentErrors | None = None
    sandboxes: SandboxRunner | None = None
    # The files that decide what the workspace runs, as it is now; no child in a sandbox may change them.
    find_decisive: Callable[[], list[str]] = list
    audit: AuditLog | None = None
    records: AuditLog | None = (
        None  # receives call records: `audit`, or without it the log of events to publish
    )
    default_principal: str = "stdio"  # how the audit log names a host without a name
    recorder: CallObserver | None = None  # receives call records in place of `records`
    flow_control: FlowControl = field(
        default_factory=FlowControl
    )  # pauses children while the host reads nothing
    result_types: ResultTypes | None = None  # if programs are enabled
    gate: object | None = None  # decides single calls: the current `CallGate`, if there are rules
    # Servers that are part of Switchboard, by name, and their tool tables, built on first use.
    builtin_apps: Mapping[str, ServerApp] = {}
    builtin_tools: dict[str, ToolTable] = {}

    def audit_child(self, child: str, outcome: str, seconds: float = -1.0) -> None:
        """Record a lifecycle event of a child, if records are kept."""
        if self.records is not None:
            self.records.record(CallRecord("child", child=child, outcome=outcome, duration_s=seconds))
