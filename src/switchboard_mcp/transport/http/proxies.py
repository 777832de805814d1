"""The route of outgoing HTTP requests: direct, or through the proxy that the environment names.

TCP keep-alive detects dead peers, which a quiet stream would never notice. Not aware of what is sent.
"""

from __future__ import annotations

import socket
import ssl
from functools import cache
from urllib.request import getproxies, proxy_bypass

import httpx2

# Servers commonly close connections after 5 s of idleness; a request sent at that moment would be lost.
KEEP_ALIVE_S = 4.0
# TCP keep-alive: idle time before the first probe, time between probes, and their number.
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 30, 10, 3
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PROXY_SCHEMES = ("http", "https")
# Every call in flight holds a connection; the transport limits the number of calls.
LIMITS = httpx2.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S)


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


class ProxiedTransport(httpx2.AsyncBaseTransport):
    """The HTTP library's transport, one per route: direct, or through a proxy."""

    def __init__(self) -> None:
        self._by_route: dict[tuple[str, str], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return its response with the body unread."""
        url = request.url
        route = (url.scheme, proxy_for(url.scheme, url.host))
        transport = self._by_route.get(route)
        if transport is None:
            transport = self._by_route[route] = _open_transport(*route)
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in self._by_route.values():
            await transport.aclose()
        self._by_route.clear()


def proxy_for(scheme: str, host: str) -> str:
    """Return the proxy URL for a host, or an empty string. Loopback addresses are never proxied."""
    if host in LOOPBACK or proxy_bypass(host):
        return ""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all", "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _open_transport(scheme: str, proxy: str) -> httpx2.AsyncHTTPTransport:
    if proxy and httpx2.URL(proxy).scheme not in PROXY_SCHEMES:
        raise httpx2.ProxyError(f"proxies of type {httpx2.URL(proxy).scheme}:// are not supported")
    # Without TLS no certificates are loaded.
    verify = tls() if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncHTTPTransport(
        verify=verify, limits=LIMITS, proxy=proxy or None, socket_options=socket_options()
    )
