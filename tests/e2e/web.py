"""Switchboard over HTTP as a test sees it: a running front, and a client that knows nothing but HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.e2e.host import LATEST, SWITCHBOARD, Json
from tests.patience import PATIENCE_S

MODERN = "2026-07-28"
BOTH = "application/json, text/event-stream"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"


class Answer(NamedTuple):
    """An HTTP response that has been read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    id: str
    data: str
    retry: str

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.data)
        return found


class Stream:
    """A response that is read while it comes."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self.connection = connection
        self.response = response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def event(self) -> Event | None:
        """The next event; None at the end of the stream. Comments are skipped."""
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                continue
            if not text and fields:
                return Event(*(fields.get(name, "") for name in ("event", "id", "data", "retry")))
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
        return None

    def events(self) -> list[Event]:
        """All that come until the end."""
        return list(iter(self.event, None))

    def until(self, method: str) -> Json:
        """The params of the next notification or request of that method."""
        while (event := self.event()) is not None:
            if event.data and event.json.get("method") == method:
                params: Json = event.json.get("params", {})
                return params
        raise AssertionError(f"the stream has ended without {method}")

    def close(self) -> None:
        """Vanish, however much is still to come."""
        # The response holds the socket too.
        self.response.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Web:
    """A front that runs."""

    def __init__(self, process: subprocess.Popen[bytes], workspace: Path, log: Path) -> None:
        self.process = process
        self.workspace = workspace
        self.log = log
        info = _info(process, workspace, log)
        self.host, self.port = info["host"], info["port"]
        self.token = (workspace / ".switchboard" / "auth_token").read_text().strip()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Stream:
        """Send a request; a header that is None is left out."""
        connection = HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        wanted: dict[str, str | None] = {**self.bearer, "Accept": BOTH}
        if data is not None:
            wanted["Content-Type"] = "application/json"
        wanted.update(headers or {})
        sent = {name: value for name, value in wanted.items() if value is not None}
        skip_host = any(name.lower() == "host" for name in wanted)
        connection.putrequest(method, path, skip_host=skip_host, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        if data is not None and "Content-Length" not in sent:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        return Stream(connection, connection.getresponse())

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Send a request and read all of its answer."""
        with self.open(method, path, body, headers) as stream:
            return Answer(stream.status, stream.headers, stream.response.read())

    def post(self, message: object, headers: Mapping[str, str | None] | None = None) -> Answer:
        return self.ask("POST", "/mcp", message, headers)

    def socket(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)

    def initialize(self, version: str = LATEST, token: str = "", **capabilities: Json) -> HostSession:
        """A session of the handshake era, ready for use."""
        session = self.initialize_only(version, token, **capabilities)
        assert session.notify("notifications/initialized").status == 202
        return session

    def initialize_only(self, version: str = LATEST, token: str = "", **capabilities: Json) -> HostSession:
        """A session of the handshake era."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
        answer = self.post(request("initialize", params, id=0), headers)
        assert answer.status == 200, answer
        return HostSession(self, answer.headers["mcp-session-id"], version, headers)


class HostSession:
    """A client of the handshake era."""

    def __init__(self, web: Web, key: str, version: str, headers: Mapping[str, str]) -> None:
        self.web = web
        self.key = key
        self.headers: dict[str, str | None] = {
            **headers,
            "Mcp-Session-Id": key,
            "MCP-Protocol-Version": version,
        }

    def open(self, method: str, params: Json | None = None, *, id: int | str = 1) -> Stream:
        """A request whose answer is read while it comes."""
        return self.web.open("POST", "/mcp", request(method, params, id=id), self.headers)

    def ask(self, method: str, params: Json | None = None, *, id: int | str = 1) -> Answer:
        return self.web.post(request(method, params, id=id), self.headers)

    def result(self, method: str, params: Json | None = None, *, id: int | str = 1) -> Json:
        """The result of a request, whether it comes as JSON or as an event."""
        with self.open(method, params, id=id) as stream:
            if stream.headers["content-type"] == "application/json":
                found = json.loads(stream.response.read())
            else:
                found = stream.events()[-1].json
        result: Json = found["result"]
        return result

    def notify(self, method: str, params: Json | None = None) -> Answer:
        return self.web.post(notification(method, params), self.headers)

    def listen(self, last: str = "") -> Stream:
        """The session's own stream, or one that is taken up again."""
        more = {"Last-Event-ID": last} if last else {}
        return self.web.open("GET", "/mcp", None, {**self.headers, "Accept": "text/event-stream", **more})


def request(method: str, params: Json | None = None, *, id: object = 1) -> Json:
    message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def notification(method: str, params: Json | None = None) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def modern(
    method: str,
    params: Json | None = None,
    *,
    id: object = 1,
    token: object = None,
    version: str = MODERN,
    capabilities: Json | None = None,
) -> Json:
    """A request of the era without handshakes."""
    envelope: Json = {VERSION_KEY: version, CAPABILITIES_KEY: capabilities or {}}
    if token is not None:
        envelope["progressToken"] = token
    return request(method, {**(params or {}), "_meta": envelope}, id=id)


def headers_of(message: Json, **more: str | None) -> dict[str, str | None]:
    """The headers that go with it."""
    params = message.get("params", {})
    name = params.get("name") or params.get("uri")
    found: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
    if name is not None:
        found["Mcp-Name"] = name
    return {**found, **{key.replace("_", "-"): value for key, value in more.items()}}


def call(subtool: str, message: str = "", *, suite: str = "gate_suite", token: object = None) -> Json:
    """Params of a suite call."""
    arguments = {"action": "call", "subtool": subtool, "args": {"message": message}}
    params: Json = {"name": suite, "arguments": arguments}
    return params if token is None else {**params, "_meta": {"progressToken": token}}


@contextmanager
def serving(workspace: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Web]:
    """A front on a free port, stopped at the end."""
    log = workspace / "stderr.log"
    with start(workspace, "127.0.0.1:0", *arguments, env=env, log=log) as process:
        try:
            yield Web(process, workspace, log)
        finally:
            stop(process)


def start(
    workspace: Path, address: str, *arguments: str, env: Mapping[str, str] | None = None, log: Path
) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [*SWITCHBOARD, "serve", "--http", address, "--workspace", str(workspace), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, **(env or {})},
        )


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask it to end, and wait for that."""
    process.terminate()
    return process.wait(PATIENCE_S)


def _info(process: subprocess.Popen[bytes], workspace: Path, log: Path) -> Json:
    """Return the address once the server reports it."""
    file = workspace / ".switchboard" / "server_info.json"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            info: Json = json.loads(file.read_text())
        except (OSError, ValueError):
            time.sleep(0.01)
            continue
        if info["pid"] == process.pid:
            return info
        time.sleep(0.01)
    raise AssertionError(f"Switchboard does not serve:\n{log.read_text()}")
