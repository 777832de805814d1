"""A proxy to a server that requires a token: the suite cannot send one, so it is added to every request here.

Bytes are forwarded unchanged except for the head of a request, which gets the header and the server's own address.
When one side closes, so does the other, since closing is how a client cancels.

The conformance suite calls tools by their names. In front of a suite, its calls become calls of subtools, and prompts
and resources get the names they have there; what comes back is passed on as it is.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit


class _ProxyServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    # A server that ends does not wait for clients that stay.
    block_on_close = False

    def __init__(self, target: tuple[str, int], token: str, suite: str) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.target = target
        self.token = token
        self.suite = suite
        self.address = f"127.0.0.1:{self.server_address[1]}"


class _ProxyHandler(socketserver.BaseRequestHandler):
    server: _ProxyServer
    request: socket.socket

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as upstream:
            back = threading.Thread(target=_forward, args=(upstream, self.request), daemon=True)
            back.start()
            with suppress(OSError), self.request.makefile("rb") as reader:
                while head := _head(reader):
                    length = re.search(rb"(?im)^content-length: *(\d+)", head)
                    body = reader.read(int(length[1])) if length else b""
                    if self.server.suite:
                        head, body = for_suite(head, body, self.server.suite)
                    upstream.sendall(self._dressed(head) + body)
            with suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)
            back.join()

    def _dressed(self, head: bytes) -> bytes:
        there = "{}:{}".format(*self.server.target)
        first, rest = head.replace(self.server.address.encode(), there.encode()).split(b"\r\n", 1)
        return first + b"\r\nAuthorization: Bearer " + self.server.token.encode() + b"\r\n" + rest


def for_suite(head: bytes, body: bytes, child: str) -> tuple[bytes, bytes]:
    """The request with the names that things have in the suite of a child; others as they are."""
    try:
        message = json.loads(body)
        old, new = _suite_names(message["method"], message["params"], child)
    except (ValueError, TypeError, KeyError):
        return head, body
    body = json.dumps(message).encode()
    head = re.sub(rb"(?im)^(content-length: *)\d+", rb"\g<1>%d" % len(body), head)
    # Only the right name is changed: wrong ones are sent on purpose.
    named = rb"(?im)^(mcp-name:[ \t]*)%b([ \t]*\r)$" % re.escape(old.encode())
    return re.sub(named, rb"\g<1>%b\g<2>" % new.encode(), head), body


def _suite_names(method: str, params: Any, child: str) -> tuple[str, str]:
    """Change the params; the name before and after."""
    if method == "tools/call":
        tool, suite = params["name"], f"{child}_suite"
        params["arguments"] = {"action": "call", "subtool": tool, "args": params.get("arguments", {})}
        params["name"] = suite
        return tool, suite
    holder = params["ref"] if method == "completion/complete" else params
    key = "name" if "name" in holder else "uri"
    old = holder[key]
    if old.startswith("switchboard://"):
        return old, old
    holder[key] = f"{child}__{old}" if key == "name" else f"switchboard://{child}/{old}"
    return old, holder[key]


def _head(reader: BinaryIO) -> bytes:
    """Up to the empty line; nothing when the client has gone."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (line := reader.readline()):
            return b""
        head += line
    return head


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def with_token(url: str, token: str, suite: str = "") -> Iterator[str]:
    """Yield an address that adds the token to requests to `url`; tools are subtools of `suite`, if named."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with _ProxyServer((parts.hostname, parts.port), token, suite) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield urlunsplit(parts._replace(netloc=proxy.address))
        finally:
            proxy.shutdown()
            thread.join()
