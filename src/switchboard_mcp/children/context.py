"""What every child shares with the others: loop, launcher, logs, memory of earlier runs."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from switchboard_mcp.children.catalog import Catalog
from switchboard_mcp.errors import Failure
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.process.launcher import Launcher
from switchboard_mcp.transport.rpc import Peer
from switchboard_mcp.transport.stdio import Cork

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.children.pinning import Pins
    from switchboard_mcp.children.recent_errors import RecentErrors
    from switchboard_mcp.children.replica_types import Replicas
    from switchboard_mcp.inprocess.server_app import ServerApp, ToolTable
    from switchboard_mcp.observability.audit.audit_log import AuditLog
    from switchboard_mcp.observability.audit.writer_process import Record
    from switchboard_mcp.policy.launch.rules import LaunchPolicy


class ChildEvents(Protocol):
    """Who hears what children say without being asked: the gateway."""

    def child_said(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A notification that is no progress and no change of a list."""

    def child_asked(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A request to the child's client."""

    def child_changed(self, child: str, notification: str, *, first: bool = False) -> None:
        """What the child offers is another now, or known for the first time; the host should look again."""


class CallRecorder(Protocol):
    """Who takes down how calls end: the audit record, or what stands before it. Where `record` is too dear, a tuple is
    put into `pending` by hand, with a `rouse` for the first.
    """

    @property
    def pending(self) -> list[Record]:
        """What was not looked at yet."""

    @property
    def trouble(self) -> Failure | None:
        """Why nothing can be written now."""

    @property
    def deny(self) -> bool:
        """Whether nothing may be done then."""

    @property
    def clock(self) -> Callable[[], float]:
        """The time of day."""

    @property
    def rouse(self) -> Callable[[], None]:
        """Something is pending."""

    def record(
        self,
        kind: str,
        who: str = "",
        child: str = "",
        subtool: str = "",
        args: bytes = b"",
        outcome: str = "",
        seconds: float = -1.0,
    ) -> None:
        """Note one call or decision."""

    def close(self) -> None:
        """The end: nothing is lost."""


class ChildContext(Struct, kw_only=True):
    """The shared parts."""

    loop: AbstractEventLoop
    launcher: Launcher
    cork: Cork
    log: Log
    redactor: Redactor
    catalog: Catalog
    environ: Mapping[str, str]
    workspace: str
    start_task: Callable[[Coroutine[Any, Any, None]], Task[None]]
    audience: ChildEvents | None = None
    # What children are told their client can do, where they serve several hosts; else it is the one host's own.
    shared_capabilities: bytes = b""
    # In governed mode: who approves each launch, and why nothing is routed while the switch is off.
    guard: LaunchPolicy | None = None
    disabled: Failure | None = None
    pins: Pins | None = None  # where there is a lock, or governed mode
    recent: RecentErrors | None = None  # as below
    replicas: Replicas | None = None  # where this is one of several servers behind one address
    audit: AuditLog | None = None  # where nothing is recorded, nothing is loaded for it
    unnamed: str = "stdio"  # what the record calls a host that has no name: how it came
    recorder: CallRecorder | None = None  # what calls are told to in its place
    valve: FlowControl = field(
        default_factory=FlowControl
    )  # shut while the host does not take what children say
    # Children that are part of Switchboard, by name, and what they offer, written when it is first needed.
    programs: Mapping[str, ServerApp] = {}
    menus: dict[str, ToolTable] = {}
