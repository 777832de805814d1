"""A child's request to its client, and the interfaces between a host's request and the broker.

`client_request_broker` and `suspended_requests` implement the interfaces; sessions and requests only know these.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw, Struct, UnsetType

from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.base import MessageTransport

if TYPE_CHECKING:
    from switchboard_mcp.gateway.incoming import IncomingRequest
    from switchboard_mcp.gateway.issued_ids import IssuedIds
    from switchboard_mcp.gateway.session import ReplyChannel, Session

Encode = Callable[[bytes, Raw | bytes], bytes]


class ChildRequest(Struct, frozen=True):
    """A request from a child, to be answered over the transport it came from."""

    link: MessageTransport
    id: bytes

    def answer(self, result: Raw | bytes) -> None:
        """Send the child a result."""
        self.link.send(jsonrpc.result(self.id, result))

    def refuse(self, code: int, message: str) -> None:
        """Send the child an error."""
        self.link.send(jsonrpc.error(self.id, code, message))


class InputOrigin(Protocol):
    """What input of a host is for: the request of a child, or a round of a stateless one."""

    def answer(self, result: Raw | bytes) -> None:
        """Pass the input on."""

    def refuse(self, code: int, message: str) -> None:
        """Report that there is none."""


class PendingClientRequest(Struct):
    """A client request that a legacy host has not answered yet."""

    on_response: Callable[[RpcMessage], None]
    request: OpenRequest | None
    timer: TimerHandle
    origin: ChildRequest | None = None
    token: Raw | None = None  # the child's own, for progress


class ResumeResult(Enum):
    """Outcome of an attempt to resume a request by its state."""

    HANDLED = "dealt with"
    FRESH = "fresh"  # to be served as a new request
    FOREIGN = "foreign"  # the state was not issued by this process


class KeptAnswer(Protocol):
    """Holds the answer of a suspended request until its host resumes it."""

    outcome: tuple[Encode, Raw | bytes] | None


class OpenRequest(Protocol):
    """A host's request that a child is working on, as the broker sees it."""

    session: Session
    channel: ReplyChannel
    host_id: bytes
    timeout_s: float
    suspended: KeptAnswer  # unset unless the request has been suspended

    @property
    def is_awaited(self) -> bool:
        """True while the host waits for the answer."""

    def restore_deadline(self) -> None:
        """Give the child its ordinary time again, from now."""

    def extend_deadline(self, seconds: float) -> None:
        """Give the child this many seconds from now."""

    def fingerprint(self) -> bytes:
        """Return the part that must be identical when a stateless host resumes the request."""

    def resume_as(self, inbound: IncomingRequest) -> None:
        """Continue a suspended request under the host's new one."""

    def cancel(self, reason: str) -> None:
        """Tell the child to stop, or leave its start queue."""


class SuspendedStore(Protocol):
    """The suspended requests, as the requests themselves and those that resume them see it."""

    def request_urls(self, request: OpenRequest, input_requests: dict[str, dict[str, object]]) -> bool:
        """Ask the host to visit URLs before the child is called again; return False if there are too many suspended."""

    def resume(
        self,
        inbound: IncomingRequest,
        fingerprint: Callable[[], bytes],
        request_state: Raw | UnsetType,
        input: Raw | UnsetType,
    ) -> ResumeResult:
        """Resume a suspended request if a stateless host brings its state, with its input."""

    def is_asking(self, request: OpenRequest) -> bool:
        """Return True if a request is about to be answered with a request for input."""

    def forget(self, request: OpenRequest) -> None:
        """Release a request that will not be resumed."""


class KeptResults(Protocol):
    """The results that hosts have seen a part of, as resources. Implemented by `gateway.results.handles`."""

    def resource_entries(self, session: Session) -> list[dict[str, Raw]]:
        """Return the results that the session may read as entries of `resources/list`."""

    def answers_read(self, inbound: IncomingRequest, uri: str) -> bool:
        """Answer a request for the resource of a result; return False if the host may not read it."""


class ClientRequests(Protocol):
    """The broker of client requests, as a session and its requests see it."""

    results: KeptResults | None  # None until there is one

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop of the gateway."""

    @property
    def issued(self) -> IssuedIds:
        """The ids that hosts have received from children."""

    @property
    def suspended(self) -> SuspendedStore:
        """The requests that wait for their hosts."""

    def suspend_run(
        self, call: OpenRequest, run: OpenRequest, origin: InputOrigin, method: str, params: Raw | UnsetType
    ) -> None:
        """Request input for the call of a program in the answer to the request that runs it."""

    def send(
        self,
        session: Session,
        request: OpenRequest | None,
        method: str,
        params: bytes,
        on_response: Callable[[RpcMessage], None],
    ) -> None:
        """Send a request to a legacy host, on the channel of the request it belongs to."""

    def on_host_response(self, session: Session, message: RpcMessage) -> None:
        """Handle a host's response to a client request."""

    def request_ended(self, request: OpenRequest, reason: str) -> None:
        """Cancel the client requests of a request that has ended."""
