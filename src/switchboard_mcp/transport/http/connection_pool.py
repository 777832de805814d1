"""Connections for HTTP requests: over TCP and TLS, directly or through the proxy that the environment names.

Opens them in a way that loses none when a request is given up half-way, and lets the kernel find out when the other
side has vanished: a quiet stream would never tell. Does not know what is sent over them.
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

# Servers commonly close what has been idle for 5 s; a request that meets that very moment would be lost.
KEEP_ALIVE_S = 4.0
# Where nothing has come for this long, the kernel asks, at this pace, this often.
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 30, 10, 3
# A connection that is being opened when nobody wants it any more has this long to be there, and be closed.
CHANGE_OF_MIND_S = 0.25
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A message up to this size leaves together with its head.
LARGE = 64 * 1024
PROXY_SCHEMES = ("http", "https")


@cache
def tls() -> ssl.SSLContext:
    """Decides whom to trust. Read once, since that takes a tenth of a second."""
    return httpx2.create_ssl_context()


def socket_options() -> list[tuple[int, int, int]]:
    """For the kernel to send small messages at once, and to mind a connection as far as the system knows how."""
    wanted = {"TCP_KEEPIDLE": PROBE_AFTER_S, "TCP_KEEPINTVL": PROBE_EVERY_S, "TCP_KEEPCNT": PROBES}
    known = [(getattr(socket, name), value) for name, value in wanted.items() if hasattr(socket, name)]
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, option, value) for option, value in known),
    ]


class ConnectionPools(httpx2.AsyncBaseTransport):
    """A pool of connections for each way to go: direct, or through one of the proxies."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], httpcore2.AsyncConnectionPool] = {}
        self._by_target: dict[tuple[str, str], httpcore2.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; its response with the body yet to be read."""
        url = request.url
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        answer = await self._pool(url).handle_async_request(
            httpcore2.Request(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, AsyncIterable)
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    def _pool(self, url: httpx2.URL) -> httpcore2.AsyncConnectionPool:
        target = (url.scheme, url.host)
        pool = self._by_target.get(target)
        if pool is None:
            way = (url.scheme, proxy_for(*target))
            if way not in self._pools:
                self._pools[way] = _open_pool(*way)
            pool = self._by_target[target] = self._pools[way]
        return pool

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()
        self._by_target.clear()


def proxy_for(scheme: str, host: str) -> str:
    """The address of the proxy for a host, empty where there is none. Whatever is set, ourselves we reach directly."""
    if host in LOOPBACK or proxy_bypass(host):
        return ""
    known = getproxies()
    proxy = known.get(scheme) or known.get("all", "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _open_pool(scheme: str, proxy: str) -> httpcore2.AsyncConnectionPool:
    # Each call under way holds a connection; how many there may be is decided where calls are sent.
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
        raise httpcore2.ProxyError(f"a proxy of the kind {url.scheme}:// is not known here")
    return httpcore2.AsyncHTTPProxy(
        httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/"),
        proxy_auth=(url.username, url.password) if url.username else None,
        **options,
    )


class _Body(httpx2.AsyncByteStream):
    """The body of a response as it comes."""

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
    """Opens connections, and closes one that is there when nobody waits for it any more."""

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
                await asyncio.wait([opening], timeout=CHANGE_OF_MIND_S)
                if not opening.cancel() and opening.exception() is None:
                    await opening.result().aclose()
            raise

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection over which a request leaves in one piece, head and body, where it is small.

    It is closed when it is given up while it is being made secure.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._socket = inner.get_extra_info("socket")
        self._held = b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._held += buffer
        if len(self._held) > LARGE:
            await self._let_go(timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:
            try:
                await self._let_go(timeout)
            except httpcore2.WriteError:
                pass  # there may be an answer all the same, which says why nobody reads any more
        return await self._inner.read(max_bytes, timeout)

    async def _let_go(self, timeout: float | None) -> None:
        held, self._held = self._held, b""
        await self._inner.write(held, timeout)

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
        # Asked before each request, to see whether the server has closed. Looking the socket up takes longer than that.
        number = self._socket.fileno() if self._socket is not None else -1
        if number < 0:
            return True
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
