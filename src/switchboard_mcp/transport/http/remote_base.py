"""Base classes of the transports to remote servers.

`RemoteTransportBase` has what all of them share: tasks that end with the transport, pausing of delivery, and the bytes
not yet sent. `HttpTransport` adds the order in which messages are posted. Neither knows how a message travels: see
`streamable_http`, `sse_transport` and `websocket`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.errors import Failure, SwitchboardError, failure, shell_word
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Oversized
from switchboard_mcp.protocol.http_headers import HeaderMirror
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import OnClosed, OnInvalid, OnMessage, OnResponseLost

if TYPE_CHECKING:
    from anyio import CancelScope

    from switchboard_mcp.transport.http.client import HttpClient

# A longer path segment with digits in it is taken for a key: some services put one into the URL.
MAX_PLAIN_SEGMENT = 20
# Characters of a server's own error text that are put into a failure.
MAX_DETAIL_CHARS = 200
# A server accepts a notification at once; one that takes longer must not hold back the next forever.
POST_TIMEOUT_S = 30.0

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class TransportOptions(TypedDict):
    """Options of every remote transport.

    `note` is called with problems that fail nothing, `on_error` with unexpected exceptions.
    """

    note: Callable[[str], None]
    on_error: Callable[[Exception], None]
    limit: NotRequired[int]
    auth: NotRequired[Any]  # an `httpx2.Auth`, if the configuration has no authorization of its own


class RemoteServer(Struct, frozen=True, kw_only=True):
    """The server at the other end. `redact` masks secrets in what it returns."""

    name: str
    url: str
    headers: dict[str, str] = {}
    redact: Callable[[str], str] = str

    @property
    def display_url(self) -> str:
        """The URL without user, query, or anything that looks like a key."""
        return self.redact(redacted_url(self.url))

    @property
    def login_hint(self) -> str:
        """The hint for a missing login."""
        return f"Run `switchboard login {shell_word(self.name)}` in a terminal, then try again."

    def failure(
        self,
        code: str,
        what: str,
        *,
        detail: str = "",
        hint: str = "",
        retry_after_ms: int | UnsetType = UNSET,
    ) -> Failure:
        """Return a failure that names the child and its URL, with the server's own text if there is one."""
        text = " ".join(self.redact(detail).split())[:MAX_DETAIL_CHARS]
        message = f"Child '{self.name}' at {self.display_url} {what}."
        return failure(
            code,
            f"{message} It said: {text}" if text else message,
            child=self.name,
            hint=hint,
            retry_after_ms=retry_after_ms,
        )


def redacted_url(url: str) -> str:
    """Return a URL in the form in which it may be shown."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an invalid URL"
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    path = "/".join("…" if _is_key(segment) else segment for segment in parts.path.split("/"))
    return f"{parts.scheme}://{host}{port}{path}"


def _is_key(segment: str) -> bool:
    return len(segment) > MAX_PLAIN_SEGMENT and any(character.isdigit() for character in segment)


def describe_error(error: BaseException) -> str:
    """Describe an exception by its innermost cause that has a text, such as the system's or TLS's error."""
    reason = error
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, OSError) and str(inner):
            reason = inner
        inner = inner.__cause__ or inner.__context__
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})"
    if isinstance(reason, socket.gaierror):
        return "its host name cannot be resolved"
    if isinstance(reason, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__


class FirstRequest(Struct, frozen=True):
    """A request with which a client may begin."""

    method: str
    headers: dict[str, str]
    body: bytes | None = None


class LoginPrompt(Struct, frozen=True):
    """Lets a person log in.

    `open_url` shows them a URL; `wait_for_callback` returns the query of the request to `redirect_uri`.
    """

    redirect_uri: str
    open_url: Callable[[str], Awaitable[None]]
    wait_for_callback: Callable[[], Awaitable[dict[str, str]]]


class QueuedMessage:
    """An outgoing message. It counts as buffered until it has been sent or dropped."""

    __slots__ = ("_transport", "data")

    def __init__(self, transport: RemoteTransportBase, data: bytes) -> None:
        self.data = data
        self._transport: RemoteTransportBase | None = transport
        transport.write_buffer_size += len(data)

    @property
    def is_sent(self) -> bool:
        """True if the other side may have received it."""
        return self._transport is None

    def mark_sent(self) -> None:
        """Stop counting it as buffered. Further calls have no effect."""
        if self._transport is not None:
            self._transport.write_buffer_size -= len(self.data)
            self._transport = None


class TransportTask:
    """A task that ends with its transport.

    With `scoped` it is cancelled through an anyio scope: the HTTP libraries clean up when a scope is cancelled, but not
    when a task is.
    """

    __slots__ = ("_pending", "_scope", "task")

    def __init__(self, start_task: StartTask, work: Coroutine[Any, Any, None], *, scoped: bool) -> None:
        self._scope: CancelScope | None = None
        self._pending = work if scoped else None
        self.task = start_task(self._run_in_scope(work) if scoped else work)

    async def _run_in_scope(self, work: Coroutine[Any, Any, None]) -> None:
        from anyio import CancelScope

        self._pending = None
        # Created here, since a scope can only be created inside a task.
        with CancelScope() as self._scope:
            await work

    def cancel(self) -> None:
        """Stop it at its next await. Work that has not begun has nothing to clean up."""
        if self._scope is not None:
            self._scope.cancel()
            return
        self.task.cancel()
        if self._pending is not None:
            self._pending.close()


class RemoteTransportBase(ABC):
    """Base of all transports to remote servers, see `MessageTransport`.

    `mirrors` maps tools to the arguments that headers repeat. `problem` is the reason why the transport has ended by
    itself. `scoped` is True if its tasks use the HTTP library, see `TransportTask`.
    """

    scoped = False

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        self.server = server
        self.mirrors: Mapping[str, tuple[HeaderMirror, ...]] = {}
        self.limit = options.get("limit", MAX_MESSAGE_BYTES)
        self.note = options["note"]
        self.problem: Failure | None = None
        self.ended = False
        self.paused = False
        self.write_buffer_size = 0
        self.related = b""  # id of the request that the message being delivered belongs to, if known
        self.over = False  # nothing is sent or delivered any more
        self.sending_closed = asyncio.Event()
        self.on_error = options["on_error"]
        self._start_task = start_task
        self._tasks: dict[asyncio.Task[None], TransportTask] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._closing: asyncio.Task[None] | None = None
        self._on_message: OnMessage
        self._on_closed: OnClosed
        self._on_invalid: OnInvalid
        self._on_response_lost: OnResponseLost

    def watch(self, on_response_lost: OnResponseLost) -> None:
        """Set the callback for requests whose response is lost."""
        self._on_response_lost = on_response_lost

    def start(self, on_message: OnMessage, on_closed: OnClosed, on_invalid: OnInvalid) -> None:
        """Start delivering."""
        self._on_message, self._on_closed, self._on_invalid = on_message, on_closed, on_invalid
        self.open()

    def open(self) -> None:  # noqa: B027 - optional
        """Connect, if the transport does not wait for the first message."""

    def pause(self) -> None:
        """Stop delivering, and with it reading."""
        self.paused = True
        self._flowing.clear()

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False
        self._flowing.set()

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Queue one message."""

    @abstractmethod
    def close_sending(self) -> None:
        """Signal the end of the stream; `sending_closed` is set when the other side has been notified."""

    def close(self) -> None:
        """Close both directions now."""
        self.over = True
        if self._closing is None:
            self._closing = self._start_task(self._close())

    async def aclose(self) -> None:
        """Close both directions and wait until nothing is left open."""
        self.close()
        assert self._closing is not None
        await asyncio.wait([self._closing])

    async def _close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait([task.task for task in tasks])
        await self.release()
        self.sending_closed.set()

    async def release(self) -> None:  # noqa: B027 - optional
        """Release resources after all tasks have ended."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> TransportTask:
        """Start a task that ends with the transport."""
        task = TransportTask(self._start_task, work, scoped=self.scoped)
        self._tasks[task.task] = task
        task.task.add_done_callback(self._tasks.pop)
        return task

    def connection_lost(self, problem: Failure) -> None:
        """End the transport because the other side is gone."""
        if not self.over:
            self.problem = problem
            self.ended = True
            self.close()
            self._on_closed()

    async def deliver(self, message: bytes, related: bytes = b"") -> None:
        """Deliver one message unless paused; `related` is the id of the request over whose response it came."""
        await self._deliver(self._on_message, message, related)

    async def deliver_oversized(self, frame: Oversized) -> None:
        """Report a message beyond the size limit."""
        await self._deliver(self._on_invalid, frame)

    async def _deliver(self, callback: Callable[[Any], None], value: object, related: bytes = b"") -> None:
        while self.paused:
            await self._flowing.wait()
        if self.over:
            return
        self.related = related
        try:
            callback(value)
        except Exception as problem:  # noqa: BLE001 - an error in one message must not hold back later ones
            self.on_error(problem)
        finally:
            self.related = b""

    def fail_request(self, id: bytes, problem: Failure) -> None:
        """Report that no response will come for a request."""
        if self.over:
            return
        try:
            self._on_response_lost(id, problem)
        except Exception as surprise:  # noqa: BLE001 - as above
            self.on_error(surprise)


class HttpTransport(RemoteTransportBase):
    """Base of the transports that post every message.

    Requests are sent concurrently; notifications and responses must not overtake each other, so each is posted after
    the previous one has been accepted. `initialized` is cleared until the server has accepted
    `notifications/initialized`. Not aware of where a message is posted or how a response arrives.
    """

    scoped = True

    def __init__(
        self,
        client: HttpClient,
        server: RemoteServer,
        start_task: StartTask,
        **options: Unpack[TransportOptions],
    ) -> None:
        super().__init__(server, start_task, **options)
        self.client = client
        self.initialized = asyncio.Event()
        self.initialized.set()
        self._finishing = False
        self._queue: deque[tuple[QueuedMessage, Callable[[], object] | None]] = deque()
        self._queue_empty = asyncio.Event()
        self._queue_empty.set()

    def send(self, message: bytes) -> None:
        """Send one message: a request at once, anything else in order."""
        if self.over or self._finishing:
            return
        envelope = jsonrpc.parse(message)
        if isinstance(envelope, Malformed):
            return
        queued = QueuedMessage(self, message)
        if envelope.method is not UNSET and envelope.id is not UNSET:
            self.send_request(envelope, queued)
        elif envelope.method == "notifications/cancelled":
            self.send_cancel(envelope, queued)
        elif envelope.method == "notifications/initialized":
            self.initialized.clear()
            self.enqueue(queued, self.on_initialized)
        else:
            self.enqueue(queued)

    @abstractmethod
    def send_request(self, message: RpcMessage, queued: QueuedMessage) -> None:
        """Send a request and see to its response."""

    def send_cancel(self, message: RpcMessage, queued: QueuedMessage) -> None:
        """Cancel a request, by a message like any other."""
        self.enqueue(queued)

    def on_initialized(self) -> None:
        """Release waiting requests: the server has accepted `notifications/initialized`."""
        self.initialized.set()

    @abstractmethod
    async def post(self, queued: QueuedMessage) -> None:
        """Post a message that is not a request. Raises if it is not accepted."""

    def on_post_failed(self, problem: Failure) -> None:
        """Report that such a message was not accepted."""
        self.note(problem.message)

    def enqueue(self, queued: QueuedMessage, then: Callable[[], object] | None = None) -> None:
        """Post after the messages before; `then` is called when it has been accepted or has failed."""
        self._queue.append((queued, then))
        if self._queue_empty.is_set():
            self._queue_empty.clear()
            self.spawn(self._post_queued())

    async def _post_queued(self) -> None:
        try:
            while self._queue:
                queued, then = self._queue.popleft()
                try:
                    async with asyncio.timeout(POST_TIMEOUT_S):
                        await self.post(queued)
                except TimeoutError:
                    self.on_post_failed(
                        self.server.failure("child_timeout", "did not accept a message in time")
                    )
                except SwitchboardError as problem:
                    self.on_post_failed(problem.failure)
                finally:
                    queued.mark_sent()
                if then is not None:
                    then()
        finally:
            while self._queue:  # the transport has been closed
                self._queue.popleft()[0].mark_sent()
            self._queue_empty.set()

    def close_sending(self) -> None:
        """Finish once everything has been posted."""
        if not self._finishing and not self.over:
            self._finishing = True
            self.spawn(self._finish_sending())

    async def _finish_sending(self) -> None:
        await self.finish_sending()
        self.sending_closed.set()

    async def finish_sending(self) -> None:
        """Wait until everything has been posted; closing the connections is all a server needs."""
        await self._queue_empty.wait()

    async def release(self) -> None:
        """Close the connections."""
        await self.client.aclose()
