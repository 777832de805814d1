"""What every child shares with the others: loop, launcher, logs, memory of earlier runs."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from switchboard_mcp.children.catalog import Catalog
from switchboard_mcp.core.jsonrpc import Message
from switchboard_mcp.core.redaction import Redactor
from switchboard_mcp.observe.log import Log
from switchboard_mcp.transport.pipes import Cork
from switchboard_mcp.transport.process import Launcher
from switchboard_mcp.transport.valve import Valve


class Audience(Protocol):
    """Who hears what children say without being asked: the gateway."""

    def child_said(self, child: str, message: Message) -> None:
        """A notification that is no progress."""

    def child_changed(self, child: str) -> None:
        """What the child offers is known now, or has changed; the host should look again."""


class Services(Struct, kw_only=True):
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
    audience: Audience | None = None
    valve: Valve = field(default_factory=Valve)  # shut while the host does not take what children say
