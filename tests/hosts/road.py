"""A road to a server over HTTP that keeps what hosts send along it.

It passes bytes on as they come and knows only enough of them to find the methods.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit


class Road:
    """Where it begins, and what came along."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._heard: list[bytes] = []

    def keep(self, some: bytes) -> None:
        self._heard.append(some)

    @property
    def methods(self) -> list[str]:
        """The methods that hosts sent, in their order; right as long as one host uses the road."""
        return [found.decode() for found in re.findall(rb'"method":\s*"([^"]+)"', b"".join(self._heard))]


@contextmanager
def watched(url: str) -> Iterator[Road]:
    """A road to the address; its own address has the same path."""
    there = urlsplit(url)
    assert there.hostname
    goal = (there.hostname, there.port)

    class Traveller(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(goal) as server:
                back = threading.Thread(target=_pass, args=(server, self.request), daemon=True)
                back.start()
                _pass(self.request, server, road)
                back.join()

    with ThreadingTCPServer(("127.0.0.1", 0), Traveller) as begin:
        # A host may leave a stream open; it ends with the server.
        begin.daemon_threads = True
        road = Road(there._replace(netloc=f"127.0.0.1:{begin.server_address[1]}").geturl())
        thread = threading.Thread(target=begin.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield road
        finally:
            begin.shutdown()
            thread.join()


def _pass(source: socket.socket, target: socket.socket, road: Road | None = None) -> None:
    try:
        while some := source.recv(65536):
            if road:
                road.keep(some)
            target.sendall(some)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side is gone
