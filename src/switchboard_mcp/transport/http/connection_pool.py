"""Connection pools for HTTP requests: TCP and TLS, direct or through the proxy that the environment names.

Loses no connection when a request is cancelled while connecting, and uses TCP keep-alive to detect dead peers, which a
quiet stream would never notice. Not aware of what is sent.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
from anyio import CancelScope

# Servers commonly close connections after 5 s of idleness; a request sent at that moment would be lost.
KEEP_ALIVE_S = 4.0
# TCP keep-alive: idle time before the first probe, time between probes, and their number.
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 30, 10, 3
# How long a cancelled request waits for its connection to open, in order to close it.
CANCELLED_CONNECT_S = 0.25
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A message up to this size is sent together with its head.
MAX_COALESCED_BYTES = 64 * 1024
PROXY_SCHEMES = ("http", "https")


@cache
def tls() -> ssl.SSLContext:
    """Return the TLS context. Cached: loading the certificates takes a tenth of a second."""
    return httpx2.create_ssl_context()


def socket_options() -> list[tuple[int, int, int]]:
    """Return options for sending small messages at once and for TCP keep-alive, as far as the system has them."""
    keepalive = {"TCP_KEEPIDLE": PROBE_AFTER_S, "TCP_KEEPINTVL": PROBE_EVERY_S, "TCP_KEEPCNT": PROBES}
    options = [(getattr(socket, name), value) for name, value in keepalive.items() if hasattr(socket, name)]
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, option, value) for option, value in options),
    ]


class ConnectionPools(httpx2.AsyncBaseTransport):
    """An HTTP transport with one connection pool per route: direct, or through a proxy."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], httpcore2.AsyncConnectionPool] = {}
        self._by_target: dict[tuple[str, str], httpcore2.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return its response with the body unread."""
        url = request.url
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        response = await self._pool(url).handle_async_request(
            httpcore2.Request(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        assert isinstance(response.stream, AsyncIterable)
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response.stream),
            extensions=response.extensions,
        )

    def _pool(self, url: httpx2.URL) -> httpcore2.AsyncConnectionPool:
        target = (url.scheme, url.host)
        pool = self._by_target.get(target)
        if pool is None:
            route = (url.scheme, proxy_for(*target))
            if route not in self._pools:
                self._pools[route] = _open_pool(*route)
            pool = self._by_target[target] = self._pools[route]
        return pool

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()
        self._by_target.clear()


def proxy_for(scheme: str, host: str) -> str:
    """Return the proxy URL for a host, or an empty string. Loopback addresses are never proxied."""
    if host in LOOPBACK or proxy_bypass(host):
        return ""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all", "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _open_pool(scheme: str, proxy: str) -> httpcore2.AsyncConnectionPool:
    # Every call in flight holds a connection; the transport limits the number of calls.
    options: dict[str, Any] = {
        "ssl_context": tls() if scheme == "https" else None,
        "max_connections": None,
        "keepalive_expiry": KEEP_ALIVE_S,
        "network_backend": Network(),
        "socket_options": socket_options(),
    }
    if not proxy:
        return httpcore2.AsyncConnectionPool(**options)
    url = httpx2.URL(proxy)
    if url.scheme not in PROXY_SCHEMES:
        raise httpcore2.ProxyError(f"proxies of type {url.scheme}:// are not supported")
    return httpcore2.AsyncHTTPProxy(
        httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/"),
        proxy_auth=(url.username, url.password) if url.username else None,
        **options,
    )


class _Body(httpx2.AsyncByteStream):
    """A response body as a stream."""

    def __init__(self, parts: AsyncIterable[bytes]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        close = getattr(self._parts, "aclose", None)
        if close is not None:
            await close()


class Network(httpcore2.AsyncNetworkBackend):
    """Opens connections, and closes one that completes after its request was cancelled."""

    def __init__(self) -> None:
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Open a connection."""
        opening = asyncio.ensure_future(
            self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        )
        try:
            return _Stream(await asyncio.shield(opening))
        except asyncio.CancelledError:
            with CancelScope(shield=True):
                await asyncio.wait([opening], timeout=CANCELLED_CONNECT_S)
                if not opening.cancel() and opening.exception() is None:
                    await opening.result().aclose()
            raise

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that sends head and body of a small request in one piece.

    It is closed if the TLS handshake is cancelled.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._socket = inner.get_extra_info("socket")
        self._buffered = b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._buffered += buffer
        if len(self._buffered) > MAX_COALESCED_BYTES:
            await self._flush(timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._buffered:
            try:
                await self._flush(timeout)
            except httpcore2.WriteError:
                pass  # there may still be a response that explains why the server stopped reading
        return await self._inner.read(max_bytes, timeout)

    async def _flush(self, timeout: float | None) -> None:
        buffered, self._buffered = self._buffered, b""
        await self._inner.write(buffered, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            with CancelScope(shield=True):
                await self._inner.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        if info != "is_readable":
            return self._inner.get_extra_info(info)
        # Called before each request to see if the server has closed. The socket is cached: its lookup is slower.
        number = self._socket.fileno() if self._socket is not None else -1
        if number < 0:
            return True
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
