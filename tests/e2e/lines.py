"""Lines to a server, or to Switchboard in front of it, over every transport: bytes in and out, and no SDK.

A `Line` is ready to be used in one of the eras. What is asked on it is answered as `fidelity.REPLY` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.e2e.fidelity import REPLY
from tests.e2e.host import LATEST, Host, Json
from tests.e2e.web import BOTH, Stream, headers_of, notification, request
from tests.patience import PATIENCE_S

HELLO = request(
    "initialize",
    {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "line", "version": "1"}},
    id="hello",
)
READY = notification("notifications/initialized")


def written(message: Json) -> bytes:
    return json.dumps(message).encode()


def reply_to(question: Json) -> bytes:
    """Return the answer of the host."""
    return written({"jsonrpc": "2.0", "id": question["id"], "result": REPLY[question["method"]]})


class PipeLine:
    """Over pipes."""

    def __init__(self, host: Host, *, modern: bool) -> None:
        self.modern = modern
        self._host = host
        host.replies.update(REPLY)
        if not modern:
            host.initialize()

    def exchange(self, message: bytes) -> list[bytes]:
        self._host.send(message)
        id = json.loads(message)["id"]
        heard: list[bytes] = []
        while True:
            told = self._host.next_message()
            heard.append(told.body)
            if told.json.get("id") == id and "method" not in told.json:
                return heard

    def tell(self, message: bytes) -> None:
        self._host.send(message)


class Web:
    """An address to send HTTP requests to."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._place = urlsplit(url)
        self._headers = headers

    def open(self, method: str, path: str = "", body: bytes | None = None, **headers: str | None) -> Stream:
        connection = HTTPConnection(self._place.netloc, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        if body is not None:
            named["Content-Type"] = "application/json"
        connection.request(method, path or self._place.path, body, {**self._headers, **named})
        return Stream(connection, connection.getresponse())


class WebLine:
    """Over Streamable HTTP, in either era."""

    def __init__(self, url: str, headers: Mapping[str, str], *, modern: bool) -> None:
        self.modern = modern
        self._web = Web(url, {"Accept": BOTH, **headers})
        self._session: dict[str, str | None] = {}
        if not modern:
            with self._post(written(HELLO)) as answer:
                key = answer.headers["mcp-session-id"]
            self._session = {"Mcp-Session-Id": key, "MCP-Protocol-Version": LATEST}
            self.tell(written(READY))

    def exchange(self, message: bytes) -> list[bytes]:
        heard: list[bytes] = []
        with self._post(message) as stream:
            if stream.headers["content-type"] == "application/json":
                return [stream.response.read()]
            for event in iter(stream.event, None):
                if event.data:
                    heard.append(event.data.encode())
                    if "method" in event.json and "id" in event.json:
                        self.tell(reply_to(event.json))
        return heard

    def tell(self, message: bytes) -> None:
        with self._post(message) as stream:
            assert stream.status == 202

    def _post(self, message: bytes) -> Stream:
        named = headers_of(json.loads(message)) if self.modern else self._session
        return self._web.open("POST", "", message, **named)


class EventLine:
    """Over HTTP+SSE."""

    modern = False

    def __init__(self, web: Web, stream: Stream) -> None:
        self._web = web
        self._stream = stream
        endpoint = stream.event()
        assert endpoint is not None
        assert endpoint.name == "endpoint"
        self._endpoint = endpoint.data
        self.exchange(written(HELLO))
        self.tell(written(READY))

    def exchange(self, message: bytes) -> list[bytes]:
        self.tell(message)
        id = json.loads(message)["id"]
        heard: list[bytes] = []
        while (event := self._stream.event()) is not None:
            heard.append(event.data.encode())
            if "method" in event.json and "id" in event.json:
                self.tell(reply_to(event.json))
            elif event.json.get("id") == id:
                break
        return heard

    def tell(self, message: bytes) -> None:
        with self._web.open("POST", self._endpoint, message) as stream:
            assert stream.status == 202


@contextmanager
def events(url: str, headers: Mapping[str, str]) -> Iterator[EventLine]:
    web = Web(url, headers)
    with web.open("GET", Accept="text/event-stream") as stream:
        yield EventLine(web, stream)


class SocketLine:
    """Over a WebSocket."""

    def __init__(self, socket: Any, *, modern: bool) -> None:
        self.modern = modern
        self._socket = socket
        if not modern:
            self.exchange(written(HELLO))
            self.tell(written(READY))

    def exchange(self, message: bytes) -> list[bytes]:
        self.tell(message)
        id = json.loads(message)["id"]
        heard: list[bytes] = []
        while True:
            told: bytes = self._socket.recv(PATIENCE_S, decode=False)
            heard.append(told)
            known = json.loads(told)
            if "method" in known and "id" in known:
                self.tell(reply_to(known))
            elif known.get("id") == id:
                return heard

    def tell(self, message: bytes) -> None:
        self._socket.send(message, text=True)


@contextmanager
def socket(url: str, *, modern: bool) -> Iterator[SocketLine]:
    with connect(url, subprotocols=[Subprotocol("mcp")], proxy=None) as opened:
        yield SocketLine(opened, modern=modern)
