"""A host without any SDK: starts a program, speaks JSON-RPC with it over pipes, and keeps every byte it says.

Owns framing, ids and deadlines as a test sees them. It knows nothing of Switchboard beyond how it is started
and what a suite call looks like; pointed at another command it speaks with a server directly.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from tests.patience import PATIENCE_S

Json = dict[str, Any]
SWITCHBOARD = [str(Path(sys.executable).with_name("switchboard"))]
# No answer takes nearly as long; what is late on a busy machine is not yet lost.
LATEST = "2025-11-25"


class Told(NamedTuple):
    """One message as it came: its bytes, and the framing around them."""

    body: bytes
    headers: bool

    @property
    def json(self) -> Json:
        decoded: Json = json.loads(self.body)
        return decoded

    @property
    def result(self) -> bytes:
        """The bytes of `result` as they were written."""
        return bytes(msgspec.json.decode(self.body, type=_Answer).result)


class _Answer(msgspec.Struct):
    result: msgspec.Raw


class SilenceError(AssertionError):
    """An expected message did not arrive; the text says what did."""


class Host:
    """One running program and the conversation with it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
        headers: bool = False,
    ) -> None:
        self.headers = headers
        self.heard: list[Told] = []
        self.replies: dict[str, Json] = {}
        self._unread: deque[Told] = deque()
        self._buffer = b""
        self._ids = iter(range(1, 1_000_000))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed in `__exit__`
        try:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=cwd,
                env={**(os.environ if env is None else env), **(extra or {})},
                bufsize=0,
            )
        except BaseException:
            self._stderr.close()
            raise

    # --- sending --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def send(self, message: Json | list[Json] | bytes) -> None:
        """One message, in the framing of the moment."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if self.headers else body + b"\n")

    def ask(self, method: str, params: Json | None = None, *, id: int | str | None = None) -> int | str:
        """Send a request and give its id; `answer` waits for what comes back."""
        id = next(self._ids) if id is None else id
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return id

    def notify(self, method: str, params: Json | None = None) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        self.send(message if params is None else {**message, "params": params})

    # --- hearing --------------------------------------------------------------------------------------

    def next_message(self) -> Told:
        """The next message, in the order they came."""
        return self._unread.popleft() if self._unread else self._read(time.monotonic() + PATIENCE_S)

    def answer(self, id: int | str | None) -> Json:
        """The answer to a request; other messages stay to be read."""
        return self.raw_answer(id).json

    def raw_answer(self, id: int | str | None) -> Told:
        def wanted(message: Json) -> bool:
            same = "id" in message and message["id"] == id and type(message["id"]) is type(id)
            return same and "method" not in message

        return self._pick(wanted, f"an answer to {id!r}")

    def notification(self, method: str) -> Json:
        """The params of the next notification of this method."""
        params: Json = self._pick(lambda message: message.get("method") == method, method).json.get(
            "params", {}
        )
        return params

    def notifications(self, method: str) -> list[Json]:
        """The params of every such notification so far, read or not."""
        return [told.json["params"] for told in self.heard if told.json.get("method") == method]

    def _pick(self, wanted: Any, what: str) -> Told:
        deadline = time.monotonic() + PATIENCE_S
        for place, told in enumerate(self._unread):
            if wanted(told.json):
                del self._unread[place]
                return told
        while True:
            try:
                told = self._read(deadline)
            except SilenceError as silence:
                raise SilenceError(f"waited for {what}: {silence}") from None
            if wanted(told.json):
                return told
            self._unread.append(told)

    def _read(self, deadline: float) -> Told:
        assert self.process.stdout is not None
        while True:
            told = self._cut()
            if told is not None:
                self.heard.append(told)
                if "method" in told.json and "id" in told.json:
                    self._reply(told.json)
                return told
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""
            if not data:
                why = "it closed its stdout" if ready else "nothing came"
                raise SilenceError(
                    f"{why}; heard {[told.body[:200] for told in self.heard[-5:]]}\n{self.stderr}"
                )
            self._buffer += data

    def _reply(self, question: Json) -> None:
        """Answer what Switchboard asks on behalf of a child, as `replies` says; else as a host that knows no such."""
        answer: Json = {"error": {"code": -32601, "message": "Method not found"}}
        if question["method"] in self.replies:
            answer = {"result": self.replies[question["method"]]}
        self.send({"jsonrpc": "2.0", "id": question["id"], **answer})

    def _cut(self) -> Told | None:
        """One whole message from the front of the buffer. Anything that is none fails the test."""
        if self._buffer.startswith(b"Content-Length: "[: len(self._buffer)]) and self._buffer:
            head, blank, rest = self._buffer.partition(b"\r\n\r\n")
            size = int(head.removeprefix(b"Content-Length: ")) if blank else 0
            if not blank or len(rest) < size:
                return None
            self._buffer = rest[size:]
            return Told(rest[:size], True)
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        assert b'"jsonrpc"' in line, f"stdout carries what is no protocol: {line[:200]!r}"
        return Told(line, False)

    # --- MCP ------------------------------------------------------------------------------------------

    def request(self, method: str, params: Json | None = None, *, id: int | str | None = None) -> Json:
        """Ask and wait: the whole answer."""
        return self.answer(self.ask(method, params, id=id))

    def result(self, method: str, params: Json | None = None) -> Json:
        answer = self.request(method, params)
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def error(self, method: str, params: Json | None = None) -> Json:
        answer = self.request(method, params)
        assert "error" in answer, answer
        error: Json = answer["error"]
        return error

    def initialize(self, version: str = LATEST, capabilities: Json | None = None) -> Json:
        info = {"name": "test-host", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
        result = self.result("initialize", params)
        self.notify("notifications/initialized")
        return result

    def tools(self) -> list[Json]:
        tools: list[Json] = self.result("tools/list")["tools"]
        return tools

    def tool_names(self) -> list[str]:
        return [tool["name"] for tool in self.tools()]

    def use(self, suite: str, **arguments: Any) -> Json:
        """The result of a suite tool."""
        return self.result("tools/call", {"name": suite, "arguments": arguments})

    def call(self, suite: str, subtool: str, **args: Any) -> Json:
        return self.use(suite, action="call", subtool=subtool, args=args)

    def introspect(self, suite: str, **more: Any) -> Json:
        """Return the decoded introspect result of a suite."""
        result = self.use(suite, action="introspect", **more)
        assert not result.get("isError"), result
        (block,) = result["content"]
        told: Json = json.loads(block["text"])
        return told

    def subtools(self, suite: str) -> list[str]:
        return [tool["name"] for tool in self.introspect(suite)["tools"]]

    def failure(self, suite: str, **arguments: Any) -> Json:
        """The structured error of a suite call that must fail; its text must say the same."""
        result = self.use(suite, **arguments)
        assert result["isError"] is True, result
        error: Json = result["structuredContent"]["error"]
        (block,) = result["content"]
        assert error["message"] in block["text"]
        assert error["hint"] in block["text"]
        return error

    # --- the end --------------------------------------------------------------------------------------

    @property
    def stderr(self) -> str:
        """Everything written to stderr so far."""
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode("utf-8", "replace")

    def hang_up(self) -> None:
        """Close our end: nothing more will be asked."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(PATIENCE_S)

    def check_ended_by(self, number: signal.Signals) -> None:
        """Check that a signal has ended the session with code 0."""
        # A process that is just becoming the shell that waits for the broker dies of the signal.
        alone = os.environ.get("SWITCHBOARD_BROKER") == "off"
        assert self.wait() in ((0,) if alone else (0, -number))

    def rest(self) -> bytes:
        """Whatever stdout still holds, to its end."""
        assert self.process.stdout is not None
        rest, self._buffer = self._buffer, b""
        while data := os.read(self.process.stdout.fileno(), 1 << 20):
            rest += data
        return rest

    def close(self) -> int:
        """Hang up, wait for the end, and give the exit code."""
        self.hang_up()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        finally:
            self._stderr.close()


def switchboard(
    workspace: Path, *args: str, env: Mapping[str, str] | None = None, headers: bool = False
) -> Host:
    """Switchboard as a host starts it, in a workspace."""
    return Host([*SWITCHBOARD, *args], cwd=workspace, env=env, headers=headers)
