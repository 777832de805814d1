"""A hundred megabytes in every place of an HTTP connection where a client can send some: memory stays flat."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from tests.e2e.host import Json
from tests.e2e.test_http_front import GATE
from tests.e2e.web import Web, call, headers_of, modern, serving
from tests.e2e.workspaces import add_child, configure

MIB = 1024 * 1024
FLOOD = 100 * MIB
ALLOWED = 16 * MIB
# A peer that takes nothing for this long has stopped reading.
BLOCKED_S = 2.0
LIST = modern("tools/list")
WAIT = modern("tools/call", call("hold", "flood"))
FILLER = b"x" * 65_536


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    workspace: Path = tmp_path_factory.mktemp("flooded")
    configure(workspace, {"http": {"maxBodyBytes": MIB}})
    add_child(workspace, "gate", GATE)
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        assert running.post(LIST, headers_of(LIST)).status == 200
        assert running.ask("GET", "/").status in (200, 401)  # loads the dashboard
        yield running


def head(web: Web, line: bytes, *more: bytes, message: Json | None = None) -> bytes:
    """A request head without its last empty line."""
    lines = [
        line,
        b"Host: localhost",
        b"Authorization: Bearer " + web.token.encode(),
        b"Accept: application/json, text/event-stream",
        *more,
    ]
    if message is not None:
        lines.append(b"Content-Type: application/json")
        lines += [f"{name}: {value}".encode() for name, value in headers_of(message).items()]
    return b"\r\n".join(lines) + b"\r\n"


def post(web: Web, message: Json = LIST, path: str = "/mcp") -> bytes:
    """A whole POST."""
    body = json.dumps(message).encode()
    length = b"Content-Length: %d" % len(body)
    return head(web, f"POST {path} HTTP/1.1".encode(), length, message=message) + b"\r\n" + body


def chunked(web: Web, message: Json = LIST) -> bytes:
    """A POST whose chunked body is complete up to the size line of its last chunk."""
    body = json.dumps(message).encode()
    start = head(web, b"POST /mcp HTTP/1.1", b"Transfer-Encoding: chunked", message=message)
    return start + b"\r\n%x\r\n%b\r\n" % (len(body), body)


def get(web: Web, path: str) -> bytes:
    return head(web, f"GET {path} HTTP/1.1".encode()) + b"\r\n"


# Requests that are served, one after the other: large ones, so that there are not too many.
SERVED = b"GET / HTTP/1.1\r\nX-Filler: " + b"x" * 30_000 + b"\r\n\r\n"
TINY = b"GET / HTTP/1.1\r\n\r\n" * 3_640
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    b"dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

# Where the flood goes: what is sent before it, and what it repeats.
PLACES: dict[str, Callable[[Web], tuple[bytes, bytes]]] = {
    "empty lines before a request": lambda web: (b"", b"\r\n" * 32_768),
    "method": lambda web: (b"", FILLER),
    "path": lambda web: (b"GET /", FILLER),
    "query": lambda web: (b"GET /mcp?token=", FILLER),
    "version": lambda web: (b"GET / HTTP/1.", b"1" * 65_536),
    "name of a header": lambda web: (head(web, b"GET /health HTTP/1.1"), FILLER),
    "value of a header": lambda web: (head(web, b"GET /health HTTP/1.1") + b"X-Filler: ", FILLER),
    "folded header": lambda web: (head(web, b"GET /health HTTP/1.1") + b"X-Filler: x", b"\r\n x" * 16_384),
    "number of headers": lambda web: (head(web, b"GET /health HTTP/1.1"), b"A:b\r\n" * 13_107),
    "lines that end without a carriage return": lambda web: (b"GET / HTTP/1.1\n", b"A: b\n" * 13_107),
    "bearer token": lambda web: (b"GET /mcp HTTP/1.1\r\nAuthorization: Bearer ", FILLER),
    "content length": lambda web: (b"POST /mcp HTTP/1.1\r\nContent-Length: ", b"0" * 65_536),
    "body beyond the limit": lambda web: (
        head(web, b"POST /mcp HTTP/1.1", b"Content-Length: %d" % FLOOD, message=LIST) + b"\r\n",
        FILLER,
    ),
    "body of an unknown length": lambda web: (chunked(web), b"ffff\r\n" + FILLER[1:] + b"\r\n"),
    "body in chunks of one byte": lambda web: (chunked(web), b"1\r\n \r\n" * 10_922),
    "one endless chunk": lambda web: (chunked(web) + b"fffffffffff\r\n", FILLER),
    "size line of a chunk": lambda web: (chunked(web), b"0" * 65_536),
    "extension of a chunk": lambda web: (chunked(web) + b"5;a=", FILLER),
    "extension of the last chunk": lambda web: (chunked(web) + b"0;a=", FILLER),
    "extensions of many chunks": lambda web: (chunked(web), b"1;" + FILLER[:60_000] + b"\r\nx\r\n"),
    "name of a trailer": lambda web: (chunked(web) + b"0\r\n", FILLER),
    "value of a trailer": lambda web: (chunked(web) + b"0\r\nX: ", FILLER),
    "number of trailers": lambda web: (chunked(web) + b"0\r\n", b"A:b\r\n" * 13_107),
    "body of a refused request": lambda web: (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % FLOOD,
        FILLER,
    ),
    "trailers of a refused request": lambda web: (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"A:b\r\n" * 13_107,
    ),
    "body of a request that takes none": lambda web: (
        head(web, b"GET /sse HTTP/1.1", b"Content-Length: %d" % FLOOD) + b"\r\n",
        FILLER,
    ),
    "chunks of a request that takes none": lambda web: (
        head(web, b"GET /sse HTTP/1.1", b"Transfer-Encoding: chunked") + b"\r\n",
        b"1\r\nx\r\n" * 10_922,
    ),
    "trailers behind a stream": lambda web: (
        head(web, b"GET /sse HTTP/1.1", b"Transfer-Encoding: chunked") + b"\r\n0\r\n",
        b"A:b\r\n" * 13_107,
    ),
    "dashboard login": lambda web: (
        head(web, b"POST /api/session HTTP/1.1", b"Transfer-Encoding: chunked") + b"\r\n",
        b"ffff\r\n" + FILLER[1:] + b"\r\n",
    ),
    "body after expect": lambda web: (
        head(web, b"POST /mcp HTTP/1.1", b"Expect: 100-continue", b"Content-Length: %d" % FLOOD) + b"\r\n",
        FILLER,
    ),
    "requests behind a served one": lambda web: (post(web, WAIT), TINY),
    "a head behind a served request": lambda web: (
        post(web, WAIT) + head(web, b"GET / HTTP/1.1"),
        b"A:b\r\n" * 13_107,
    ),
    "bytes behind a served request": lambda web: (post(web, WAIT), FILLER),
    "chunked requests behind a served one": lambda web: (post(web, WAIT), chunked(web) + b"0\r\n\r\n"),
    "requests behind a stream": lambda web: (get(web, "/sse"), TINY),
    "bytes behind a stream": lambda web: (get(web, "/sse"), FILLER),
    "bytes behind a stream of the dashboard": lambda web: (get(web, "/events"), FILLER),
    "requests behind refused ones": lambda web: (b"GET /mcp HTTP/1.1\r\nHost: evil\r\n\r\n", SERVED),
    "bytes after a refusal": lambda web: (b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", FILLER),
    "bytes after a refusal that closes": lambda web: (b"NONSENSE\r\n\r\n", FILLER),
    "bytes after a head that is too large": lambda web: (b"GET /" + FILLER, FILLER),
    "bytes after the last request": lambda web: (
        head(web, b"GET /health HTTP/1.1", b"Connection: close") + b"\r\n",
        FILLER,
    ),
    "requests behind the last one": lambda web: (
        head(web, b"GET /health HTTP/1.1", b"Connection: close") + b"\r\n",
        TINY,
    ),
    "websocket": lambda web: (head(web, b"GET /mcp HTTP/1.1") + WEBSOCKET, FILLER),
    "websocket frames on a stream": lambda web: (
        head(web, b"GET /sse HTTP/1.1") + WEBSOCKET,
        b"\x82\xfe\xff\xff" * 16_384,
    ),
    "tunnel": lambda web: (head(web, b"CONNECT localhost:1 HTTP/1.1") + b"\r\n", FILLER),
    "http/2": lambda web: (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FILLER),
    "http/1.0": lambda web: (head(web, b"POST /mcp HTTP/1.0") + b"\r\n", FILLER),
    "tls": lambda web: (b"\x16\x03\x01", FILLER),
}


def flood(connection: socket.socket, first: bytes, more: bytes) -> int:
    """Send until all is sent, or the peer has closed or stopped reading. Return the number of bytes sent."""
    connection.setblocking(False)
    sent = 0
    for data in chain([first], repeat(more)):
        view = memoryview(data)
        while view:
            readable, writable, _ = select.select([connection], [connection], [], BLOCKED_S)
            try:
                if readable:
                    connection.recv(65_536)
                elif not writable:
                    return sent
                if not writable:
                    continue
                size = connection.send(view)
            except OSError:
                return sent
            view = view[size:]
            sent += size
        if sent >= FLOOD:
            return sent
    raise AssertionError("unreachable")


def resident(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


# One place of each part of the server; the others are in `make soak`.
QUICK = {
    "value of a header",
    "body of an unknown length",
    "trailers of a refused request",
    "requests behind a served one",
    "bytes behind a stream",
    "dashboard login",
}


@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=() if place in QUICK else pytest.mark.soak("floods")) for place in PLACES],
)
def test_a_hundred_megabytes_cost_no_memory(web: Web, place: str) -> None:
    pid = web.process.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak starts again at what is used now
    before = resident(pid, "VmRSS")
    first, more = PLACES[place](web)
    with web.socket() as connection:
        flood(connection, first, more)
        answer = web.post(LIST, headers_of(LIST))
        grown = resident(pid, "VmHWM") - before
    assert answer.status == 200
    assert grown < ALLOWED
