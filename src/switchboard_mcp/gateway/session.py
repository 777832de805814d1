"""One connected host: its link, what it negotiated, and its requests under way."""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.core import jsonrpc
from switchboard_mcp.core.eras import LATEST_HANDSHAKE
from switchboard_mcp.errors import Failure, rpc_error
from switchboard_mcp.transport.link import Link

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Cancellable(Protocol):
    """A request under way that the host may cancel."""

    def cancel(self, reason: str) -> None:
        """Stop; no answer is sent."""


class Session:
    """See the module."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.version = LATEST_HANDSHAKE
        self.log_level = ""
        self.under_way: dict[bytes, Cancellable] = {}

    def answer(self, id: Raw | bytes, result: Raw | bytes) -> None:
        """Answer a request with a result."""
        self.link.send(jsonrpc.result(id, result))

    def refuse(self, id: Raw | bytes, code: int, message: str) -> None:
        """Answer a request with a JSON-RPC error."""
        self.link.send(jsonrpc.error(id, code, message))

    def fail(self, id: Raw | bytes, problem: Failure) -> None:
        """Answer a request outside a suite call with a failure of ours."""
        self.link.send(jsonrpc.error_body(id, rpc_error(problem)))

    def notify(self, method: str, params: bytes | Raw | None = None) -> None:
        """Send a notification."""
        self.link.send(jsonrpc.notification(method, params))

    def wants_log(self, level: str) -> bool:
        """Whether a log message of this level may be sent; before the host says, the child decides."""
        if not self.log_level or level not in LEVELS:
            return True
        return LEVELS.index(level) >= LEVELS.index(self.log_level)

    def cancel(self, id: Raw | UnsetType, reason: str) -> None:
        """The host no longer wants the answer to one of its requests."""
        request = self.under_way.pop(bytes(id), None) if id is not UNSET else None
        if request is not None:
            request.cancel(reason)
