"""HTTP requests to one remote server, with every error converted to a failure.

Redirects are followed only within the server's own origin, since headers and messages are meant for that server.
Not aware of what is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import httpx2

from switchboard_mcp import __version__
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.protocol.framing import OVERSIZED_EXCERPT_BYTES, Oversized
from switchboard_mcp.transport.http.proxies import ProxiedTransport
from switchboard_mcp.transport.http.remote_base import (
    QueuedMessage,
    RemoteServer,
    describe_error,
    redacted_url,
)

# A server that does not accept a connection within this time is down. Responses have the timeout of their call.
CONNECT_TIMEOUT_S = 10.0
MAX_REDIRECTS = 5
# How long to wait for the end of a complete response in order to reuse its connection.
DRAIN_TIMEOUT_S = 0.5

# JSON and text become up to fifty times as small. What is suspected has to be large, too.
MAX_EXPANSION = 200
MIN_SUSPECT_BYTES = 4 * 1024 * 1024
# A compressed body is decompressed in turns with other tasks: some 2 ms each.
TURN_BYTES = 1024 * 1024

# The errors that the HTTP library raises for a failed request.
HTTP_ERRORS = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.StreamError,
    OSError,
)


class ServerAuth(httpx2.Auth):
    """Adds the authorization to the requests of one server."""

    async def finish(self) -> None:
        """Finish what must not be interrupted."""


class HttpClient:
    """HTTP client for one server."""

    def __init__(self, server: RemoteServer, auth: ServerAuth | None = None) -> None:
        self._server = server
        self._auth = auth
        self._urls: dict[str, httpx2.URL] = {}  # parsing a URL is slow
        self._client = httpx2.AsyncClient(
            auth=auth,
            headers={"user-agent": f"switchboard/{__version__}", **server.headers},
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),
            transport=ProxiedTransport(),
        )

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, headers: Mapping[str, str], message: QueuedMessage | bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its response, of which only the head has been read. Raises SwitchboardError."""
        try:
            response = await self._send(method, url, headers, message)
            try:
                yield response
            finally:
                await response.aclose()
        except HTTP_ERRORS as problem:
            raise SwitchboardError(failure_for(self._server, problem)) from problem

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], message: QueuedMessage | bytes | None
    ) -> httpx2.Response:
        target = self._urls.get(url) or self._urls.setdefault(url, httpx2.URL(url))
        if message is None or isinstance(message, bytes):
            request = self._client.build_request(method, target, headers=headers, content=message)
        else:
            size = {"content-length": str(len(message.data))}
            request = self._client.build_request(
                method, target, headers={**headers, **size}, content=_Body(message)
            )
        for left in reversed(range(MAX_REDIRECTS)):
            response = await self._client.send(request, stream=True, follow_redirects=False)
            redirect = response.next_request
            if redirect is None:
                return response
            await response.aclose()
            if not left or not _is_same_server(request, redirect):
                raise SwitchboardError(self._redirect_failure(response, redirect))
            request = redirect
        raise AssertionError("the last attempt returns or raises")

    def _redirect_failure(self, response: httpx2.Response, redirect: httpx2.Request) -> Failure:
        where = redacted_url(str(redirect.url))
        return self._server.failure(
            "child_http_error",
            f"redirects to {where} (HTTP {response.status_code}), which is not followed",
            hint="If that is the right server, set `url` to its address.",
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._auth is not None:
            await self._auth.finish()
        await self._client.aclose()


class _Body:
    """Request content that can be read again: after a redirect or a login."""

    def __init__(self, message: QueuedMessage) -> None:
        self._message = message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._message.data
        self._message.mark_sent()


def _is_same_server(sent: httpx2.Request, redirect: httpx2.Request) -> bool:
    """Return True if a redirect stays on the same server and keeps the method."""
    old, new = sent.url, redirect.url
    same = (old.scheme, old.host, old.port) == (new.scheme, new.host, new.port)
    # An upgrade to TLS on the same host, with default ports.
    upgrade = (
        (old.scheme, new.scheme) == ("http", "https")
        and old.host == new.host
        and not old.port
        and not new.port
    )
    return (same or upgrade) and redirect.method == sent.method and new.userinfo in (b"", old.userinfo)


def content_type(response: httpx2.Response) -> str:
    """Return the bare media type of a response."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def body_chunks(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Return the parts of a body, decompressed."""
    return _decompressed(response) if "content-encoding" in response.headers else response.aiter_bytes()


async def _decompressed(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Yield a body that a server has compressed, in turns with other tasks.

    A kilobyte may become a megabyte, and a petabyte if it was compressed several times. Raises `DecodingError`.
    """
    if "," in response.headers["content-encoding"]:
        raise httpx2.DecodingError("it was compressed more than once")
    size = turn = 0
    async with aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            size += len(part)
            if size > max(MIN_SUSPECT_BYTES, MAX_EXPANSION * response.num_bytes_downloaded):
                raise httpx2.DecodingError(f"it is more than {MAX_EXPANSION} times as large as it was sent")
            yield part
            turn += len(part)
            if turn >= TURN_BYTES:
                turn = 0
                await asyncio.sleep(0)


async def read_body(response: httpx2.Response, limit: int) -> bytes | Oversized:
    """Read a whole body; `Oversized` if it exceeds the limit."""
    parts: list[bytes] = []
    size = 0
    async with aclosing(body_chunks(response)) as chunks:
        async for part in chunks:
            parts.append(part)
            size += len(part)
            if size > limit:
                whole = b"".join(parts)
                return Oversized(size, whole[:OVERSIZED_EXCERPT_BYTES], whole[-OVERSIZED_EXCERPT_BYTES:])
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what should be the end of a response, so the connection can be reused."""
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            async for _ in chunks:
                pass
    except TimeoutError:
        return


def failure_for(server: RemoteServer, problem: Exception) -> Failure:
    """Return the failure for an exception of the HTTP library."""
    if isinstance(problem, httpx2.ConnectTimeout):
        return server.failure(
            "child_unreachable", f"did not accept a connection within {CONNECT_TIMEOUT_S:g} s"
        )
    if isinstance(problem, httpx2.ConnectError | httpx2.ProxyError):
        return server.failure("child_unreachable", f"cannot be reached: {describe_error(problem)}")
    if isinstance(problem, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return server.failure("config_invalid", f"cannot be requested: {describe_error(problem)}")
    if isinstance(problem, httpx2.DecodingError):
        return server.failure(
            "child_http_error", f"answered with a body that cannot be decompressed: {describe_error(problem)}"
        )
    return server.failure(
        "child_answer_lost", f"closed the connection before it had answered: {describe_error(problem)}"
    )
