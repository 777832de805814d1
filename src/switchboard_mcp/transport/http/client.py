"""HTTP requests to one remote server, with every way in which they fail put into words.

Redirects are followed only within the server's own origin, since headers and messages were meant for that one. Owns the
HTTP client and the names of its errors; does not know what is said over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import httpcore2
import httpx2

from switchboard_mcp import __version__
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.protocol.framing import OVERSIZED_EXCERPT_BYTES, Oversized
from switchboard_mcp.transport.http.connection_pool import ConnectionPools
from switchboard_mcp.transport.http.remote_base import (
    QueuedMessage,
    RemoteServer,
    describe_error,
    redacted_url,
)

# A server that does not even accept a connection within this is not there. Answers have the call's own time.
CONNECT_S = 10.0
MAX_REDIRECTS = 5
# How long the end of a response may take whose content has come: to use its connection again is worth that much.
LINGER_S = 0.5

# What can go wrong on the way, by the names that the libraries have for it.
TROUBLES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.StreamError,
    OSError,
)


class HttpClient:
    """The client for one server."""

    def __init__(self, server: RemoteServer, auth: httpx2.Auth | None = None) -> None:
        self._server = server
        self._urls: dict[str, httpx2.URL] = {}  # read once, since that takes a while
        self._client = httpx2.AsyncClient(
            auth=auth,
            headers={"user-agent": f"switchboard/{__version__}", **server.headers},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            transport=ConnectionPools(),
        )

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, headers: Mapping[str, str], parcel: QueuedMessage | bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; its response, of which only the head has been read. Raises SwitchboardError."""
        try:
            response = await self._send(method, url, headers, parcel)
            try:
                yield response
            finally:
                await response.aclose()
        except TROUBLES as problem:
            raise SwitchboardError(explain(self._server, problem)) from problem

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], parcel: QueuedMessage | bytes | None
    ) -> httpx2.Response:
        target = self._urls.get(url) or self._urls.setdefault(url, httpx2.URL(url))
        if parcel is None or isinstance(parcel, bytes):
            request = self._client.build_request(method, target, headers=headers, content=parcel)
        else:
            size = {"content-length": str(len(parcel.data))}
            request = self._client.build_request(
                method, target, headers={**headers, **size}, content=_Body(parcel)
            )
        for left in reversed(range(MAX_REDIRECTS)):
            response = await self._client.send(request, stream=True, follow_redirects=False)
            following = response.next_request
            if following is None:
                return response
            await response.aclose()
            if not left or not _stays(request, following):
                raise SwitchboardError(self._led_astray(response, following))
            request = following
        raise AssertionError("the last one is returned or raises")

    def _led_astray(self, response: httpx2.Response, following: httpx2.Request) -> Failure:
        where = redacted_url(str(following.url))
        return self._server.failure(
            "child_http_error",
            f"sends on to {where} (HTTP {response.status_code}), which is not followed",
            hint="Where that is the right server, put its address into `url`.",
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class _Body:
    """The content of a request. It can be read again: for a redirect, or after a login."""

    def __init__(self, parcel: QueuedMessage) -> None:
        self._parcel = parcel

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._parcel.data
        self._parcel.taken()


def _stays(sent: httpx2.Request, following: httpx2.Request) -> bool:
    """Whether a redirect stays with the same server and keeps the message."""
    old, new = sent.url, following.url
    same = (old.scheme, old.host, old.port) == (new.scheme, new.host, new.port)
    # To the same name over TLS, each on its own default port.
    upgrade = (
        (old.scheme, new.scheme) == ("http", "https")
        and old.host == new.host
        and not old.port
        and not new.port
    )
    return (same or upgrade) and following.method == sent.method and new.userinfo in (b"", old.userinfo)


def content_type(response: httpx2.Response) -> str:
    """The bare media type of a response."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


async def read_body(response: httpx2.Response, limit: int) -> bytes | Oversized:
    """All of a body, or its ends where it is beyond the limit."""
    parts: list[bytes] = []
    size = 0
    async with aclosing(response.aiter_bytes()) as chunks:
        async for part in chunks:
            parts.append(part)
            size += len(part)
            if size > limit:
                whole = b"".join(parts)
                return Oversized(size, whole[:OVERSIZED_EXCERPT_BYTES], whole[-OVERSIZED_EXCERPT_BYTES:])
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end what should be at its end, so that the connection can be used again."""
    try:
        async with asyncio.timeout(LINGER_S):
            async for _ in chunks:
                pass
    except TimeoutError:
        return


def explain(server: RemoteServer, problem: Exception) -> Failure:
    """Why a request has failed on its way, in words."""
    if isinstance(problem, httpcore2.ConnectTimeout):
        return server.failure("child_unreachable", f"did not accept a connection within {CONNECT_S:g} s")
    if isinstance(problem, httpcore2.ConnectError | httpcore2.ProxyError):
        return server.failure("child_unreachable", f"cannot be reached: {describe_error(problem)}")
    if isinstance(problem, httpx2.InvalidURL | httpcore2.UnsupportedProtocol | httpcore2.LocalProtocolError):
        return server.failure("config_invalid", f"cannot be asked: {describe_error(problem)}")
    if isinstance(problem, httpx2.DecodingError):
        return server.failure(
            "child_http_error", f"answered with a body that cannot be unpacked: {describe_error(problem)}"
        )
    return server.failure("child_answer_lost", f"broke off before it had answered: {describe_error(problem)}")
