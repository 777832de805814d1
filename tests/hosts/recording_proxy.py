"""A TCP proxy to an HTTP server that records what hosts send.

It forwards bytes unchanged and parses only enough to find the methods.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit


class RecordingProxy:
    """A recording proxy: its address, and the bytes that passed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._heard: list[bytes] = []

    def record(self, data: bytes) -> None:
        self._heard.append(data)

    @property
    def methods(self) -> list[str]:
        """Return the methods that hosts sent, in order; reliable while only one host uses the proxy."""
        return [found.decode() for found in re.findall(rb'"method":\s*"([^"]+)"', b"".join(self._heard))]


@contextmanager
def recorded(url: str) -> Iterator[RecordingProxy]:
    """Yield a proxy to the address; its own address has the same path."""
    there = urlsplit(url)
    assert there.hostname
    target_address = (there.hostname, there.port)

    class ProxyHandler(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(target_address) as server:
                back = threading.Thread(target=_forward, args=(server, self.request), daemon=True)
                back.start()
                _forward(self.request, server, proxy)
                back.join()

    with ThreadingTCPServer(("127.0.0.1", 0), ProxyHandler) as listener:
        # A host may leave a stream open; it ends with the server.
        listener.daemon_threads = True
        proxy = RecordingProxy(there._replace(netloc=f"127.0.0.1:{listener.server_address[1]}").geturl())
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown()
            thread.join()


def _forward(source: socket.socket, target: socket.socket, proxy: RecordingProxy | None = None) -> None:
    try:
        while data := source.recv(65536):
            if proxy:
                proxy.record(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side is gone
