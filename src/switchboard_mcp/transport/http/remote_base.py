"""What links to remote servers have in common.

Who is at the other end and how its failures read; tasks that end with the link; holding back what is delivered; and the
order in which messages leave. Does not know how a message travels: see `streamable`, `events` and `websocket`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Oversized
from switchboard_mcp.protocol.http_headers import HeaderMirror
from switchboard_mcp.transport.base import OnClosed, OnInvalid, OnMessage, OnResponseLost

if TYPE_CHECKING:
    from anyio import CancelScope

# Beyond this a part of a path that has digits in it is taken for a key: some services put one into the address.
LONGEST_PLAIN_SEGMENT = 20
# Of what a server says besides the protocol, as much goes into a message.
SAID_CHARS = 200

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class TransportOptions(TypedDict):
    """What every remote link is told: whom to tell of small and of unforeseen troubles, the longest message."""

    note: Callable[[str], None]
    on_error: Callable[[Exception], None]
    limit: NotRequired[int]
    auth: NotRequired[Any]  # of the HTTP client's, where the entry has no authorisation of its own


class RemoteServer(Struct, frozen=True, kw_only=True):
    """Who is at the other end. `redact` masks secrets in what it says."""

    name: str
    url: str
    headers: dict[str, str] = {}
    redact: Callable[[str], str] = str

    @property
    def display_url(self) -> str:
        """The address without user, query, or anything that looks like a key."""
        return self.redact(redacted_url(self.url))

    @property
    def login_hint(self) -> str:
        """What to do about a login that is missing."""
        return f"Run `switchboard login {self.name}` in a terminal, then try again."

    def failure(
        self,
        code: str,
        what: str,
        *,
        detail: str = "",
        hint: str = "",
        retry_after_ms: int | UnsetType = UNSET,
    ) -> Failure:
        """A failure that names the child and its address, with what the server said where that may help."""
        words = " ".join(self.redact(detail).split())[:SAID_CHARS]
        message = f"Child '{self.name}' at {self.display_url} {what}."
        return failure(
            code,
            f"{message} It said: {words}" if words else message,
            child=self.name,
            hint=hint,
            retry_after_ms=retry_after_ms,
        )


def redacted_url(url: str) -> str:
    """An address as it may be shown."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    path = "/".join("…" if _is_key(segment) else segment for segment in parts.path.split("/"))
    return f"{parts.scheme}://{host}{port}{path}"


def _is_key(segment: str) -> bool:
    return len(segment) > LONGEST_PLAIN_SEGMENT and any(character.isdigit() for character in segment)


def describe_error(problem: BaseException) -> str:
    """The innermost reason that says something: what the system or TLS had to say."""
    found = problem
    seen: set[int] = set()
    inner: BaseException | None = problem
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, OSError) and str(inner):
            found = inner
        inner = inner.__cause__ or inner.__context__
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({found.verify_message})"
    if isinstance(found, socket.gaierror):
        return "its host name is not known"
    if isinstance(found, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(found, OSError) and found.strerror:
        return found.strerror
    return str(found) or type(found).__name__


class QueuedMessage:
    """A message on its way out. It counts as backlog until the other side has taken it, or nobody sends it."""

    __slots__ = ("_link", "data")

    def __init__(self, link: RemoteTransportBase, data: bytes) -> None:
        self.data = data
        self._link: RemoteTransportBase | None = link
        link.write_buffer_size += len(data)

    @property
    def is_gone(self) -> bool:
        """Whether the other side may have it."""
        return self._link is None

    def taken(self) -> None:
        """It is out of our hands. Told twice, it counts once."""
        if self._link is not None:
            self._link.write_buffer_size -= len(self.data)
            self._link = None


class TransportTask:
    """A task that ends with its link. The HTTP libraries tidy up when a scope of theirs is cancelled, not a task."""

    __slots__ = ("_scope", "_waiting", "task")

    def __init__(self, start_task: StartTask, work: Coroutine[Any, Any, None], *, scoped: bool) -> None:
        self._scope: CancelScope | None = None
        self._waiting = work if scoped else None
        self.task = start_task(self._within(work) if scoped else work)

    async def _within(self, work: Coroutine[Any, Any, None]) -> None:
        from anyio import CancelScope

        self._waiting = None
        # Made here, since a scope can be made inside a task only.
        with CancelScope() as self._scope:
            await work

    def cancel(self) -> None:
        """Stop it at its next wait; what has not begun has nothing to tidy up."""
        if self._scope is not None:
            self._scope.cancel()
            return
        self.task.cancel()
        if self._waiting is not None:
            self._waiting.close()


class RemoteTransportBase:
    """The common part of a remote link: see `link.Link`.

    `mirrors` has, by tool, the arguments that headers repeat, where there are headers. `problem` says why the link has
    ended by itself. `note` hears of what goes wrong without failing anything. `scoped` where tasks of the link run in a
    scope of the HTTP library.
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
        self.related = b""  # the request that what is handed over belongs to, where it can be told
        self.over = False  # nothing is sent or delivered any more
        self.sending_closed = asyncio.Event()
        self.on_error = options["on_error"]
        self._start_task = start_task
        self._errands: dict[asyncio.Task[None], TransportTask] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._releasing: asyncio.Task[None] | None = None
        self._receive: OnMessage
        self._closed: OnClosed
        self._odd: OnInvalid
        self._lost: OnResponseLost

    def watch(self, lost: OnResponseLost) -> None:
        """Tell whose answers are lost."""
        self._lost = lost

    def start(self, receive: OnMessage, closed: OnClosed, odd: OnInvalid) -> None:
        """Begin to deliver."""
        self._receive, self._closed, self._odd = receive, closed, odd
        self.begin()

    def begin(self) -> None:
        """Connect, where that does not wait for something to be sent."""

    def pause(self) -> None:
        """Stop delivering, and with it reading."""
        self.paused = True
        self._flowing.clear()

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False
        self._flowing.set()

    def send(self, message: bytes) -> None:
        """Queue one message."""
        raise NotImplementedError

    def close_sending(self) -> None:
        """Tell the other side that nothing more comes; `farewell_done` is set when it knows."""
        raise NotImplementedError

    def close(self) -> None:
        """End both directions now."""
        self.over = True
        if self._releasing is None:
            self._releasing = self._start_task(self._let_go())

    async def aclose(self) -> None:
        """The same, and wait until nothing is left open."""
        self.close()
        assert self._releasing is not None
        await asyncio.wait([self._releasing])

    async def _let_go(self) -> None:
        errands = list(self._errands.values())
        for errand in errands:
            errand.cancel()
        if errands:
            await asyncio.wait([errand.task for errand in errands])
        await self.release()
        self.sending_closed.set()

    async def release(self) -> None:
        """Let go of what the link holds, its tasks having ended."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> TransportTask:
        """Start a task that ends with the link."""
        errand = TransportTask(self._start_task, work, scoped=self.scoped)
        self._errands[errand.task] = errand
        errand.task.add_done_callback(self._errands.pop)
        return errand

    def finish(self, problem: Failure) -> None:
        """The other side is gone."""
        if not self.over:
            self.problem = problem
            self.ended = True
            self.close()
            self._closed()

    async def deliver(self, message: bytes, related: bytes = b"") -> None:
        """Hand one message over, as soon as that is wanted; `related` is the request whose way back it came."""
        await self._turn(self._receive, message, related)

    async def deliver_oversized(self, piece: Oversized) -> None:
        """Hand over what is left of a message beyond the limit."""
        await self._turn(self._odd, piece)

    async def _turn(self, hand_over: Callable[[Any], None], what: object, related: bytes = b"") -> None:
        while self.paused:
            await self._flowing.wait()
        if self.over:
            return
        self.related = related
        try:
            hand_over(what)
        except Exception as problem:  # noqa: BLE001 - one message must not take those after it along
            self.on_error(problem)
        finally:
            self.related = b""

    def fail_request(self, id: bytes, problem: Failure) -> None:
        """Tell that no answer will come to a request."""
        if self.over:
            return
        try:
            self._lost(id, problem)
        except Exception as surprise:  # noqa: BLE001 - as above
            self.on_error(surprise)
