#!/usr/bin/env python3
"""A small MCP server on stdio, for trying Switchboard and for its tests.

Runs alone with nothing but the Python standard library:

    python server.py [--framing newline|content-length] [--page-size N]

Owns the protocol a child must speak and a handful of tools that show every kind of answer.
It knows nothing of Switchboard. Input may be framed either way; `--framing` sets how it answers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

Json = dict[str, Any]
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
INSTRUCTIONS = "A pretend browser and a few tools for testing. Nothing here touches the real world."
# A 2 x 2 picture: large enough to be shown, small enough to read in a transcript.
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR42mO4"
    "Y2NktCCAwSbq0tcTNgAlYQXOTydsNAAAAABJRU5ErkJggg=="
)


class RefusalError(Exception):
    """A JSON-RPC error to answer with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CancelledError(Exception):
    """The client no longer wants the answer, so none is sent."""


# --- the wire -------------------------------------------------------------------------------------


def read_bodies(stream: BinaryIO) -> Iterator[bytes]:
    """Yield message bodies, each framed by a newline or by a Content-Length header."""
    while line := stream.readline():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            while stream.readline().strip():
                pass
            yield stream.read(int(value))
        elif line.strip():
            yield line


class Wire:
    """Writes whole messages; several threads may send."""

    def __init__(self, framing: str) -> None:
        self._framed = framing == "content-length"
        self._lock = threading.Lock()

    def send(self, message: Json) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")).encode()
        data = b"Content-Length: %d\r\n\r\n%s" % (len(body), body) if self._framed else body + b"\n"
        with self._lock:
            # Not sys.stdout: a thread that is writing while the interpreter ends would abort the process.
            while data:
                data = data[os.write(1, data) :]

    def notify(self, method: str, params: Json) -> None:
        self.send({"method": method, "params": params})


# --- tools ----------------------------------------------------------------------------------------


class Call:
    """One tools/call in progress: its arguments, and how it talks to the client meanwhile."""

    def __init__(self, server: Server, name: str, args: Json, progress_token: object) -> None:
        self.server = server
        self.name = name
        self.args = args
        self.progress_token = progress_token
        self.cancelled = threading.Event()

    def progress(self, done: float, total: float, message: str) -> None:
        if self.progress_token is not None:
            self.server.wire.notify(
                "notifications/progress",
                {"progressToken": self.progress_token, "progress": done, "total": total, "message": message},
            )


def text(value: str) -> Json:
    return {"content": [{"type": "text", "text": value}]}


def structured(value: Json) -> Json:
    """The value for programs, and the same as text for clients that read only text."""
    return {**text(json.dumps(value, ensure_ascii=False)), "structuredContent": value}


def echo_call(call: Call) -> Json:
    return structured({"ok": True, "name": call.name, "args": call.args})


def screenshot(_call: Call) -> Json:
    return {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]}


def echo(call: Call) -> Json:
    return text(str(call.args["message"]))


def add(call: Call) -> Json:
    a, b = call.args["a"], call.args["b"]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in (a, b)):
        return {**text("add needs two numbers"), "isError": True}
    return structured({"sum": a + b})


def fail(call: Call) -> Json:
    return {**text(str(call.args.get("message", "This tool always fails."))), "isError": True}


def slow(call: Call) -> Json:
    try:
        seconds, steps = float(call.args.get("seconds", 1)), max(1, int(call.args.get("steps", 4)))
    except (TypeError, ValueError):
        return {**text("slow needs numbers"), "isError": True}
    for step in range(1, steps + 1):
        if call.cancelled.wait(seconds / steps):
            raise CancelledError
        call.progress(step, steps, f"step {step} of {steps}")
    return text(f"done after {steps} steps")


def log(call: Call) -> Json:
    level = str(call.args.get("level", "info"))
    if level not in LEVELS:
        return {**text(f"level must be one of {', '.join(LEVELS)}"), "isError": True}
    if LEVELS.index(level) >= LEVELS.index(call.server.level):
        data = {"level": level, "logger": "mock-child", "data": call.args["message"]}
        call.server.wire.notify("notifications/message", data)
    return text("logged")


def crash(_call: Call) -> Json:
    os.write(2, b"mock-child: crashing because it was asked to\n")
    os._exit(3)


STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 1}
READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
HARMLESS = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
DESTRUCTIVE = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
ECHOED = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "name": STRING, "args": {"type": "object"}},
    "required": ["ok", "name", "args"],
}
SUM = {"type": "object", "properties": {"sum": NUMBER}, "required": ["sum"]}

Run = Callable[[Call], Json]
# name: (what it does, what it says of itself, its parameters, the required ones, annotations, output schema)
TOOLS: dict[str, tuple[Run, str, Json, list[str], Json, Json | None]] = {
    "click": (
        echo_call,
        "Click the element that matches a CSS selector.",
        {"selector": {**STRING, "description": "CSS selector of the element"}},
        ["selector"],
        HARMLESS,
        ECHOED,
    ),
    "type_text": (
        echo_call,
        "Type text into the element that matches a CSS selector.",
        {"selector": {**STRING, "description": "CSS selector of the field"}, "text": STRING},
        ["selector", "text"],
        HARMLESS,
        ECHOED,
    ),
    "navigate": (echo_call, "Open a URL.", {"url": STRING}, ["url"], HARMLESS, ECHOED),
    "screenshot": (screenshot, "Take a picture of the page, as PNG.", {}, [], READ_ONLY, None),
    "echo": (echo, "Answer with the same message.", {"message": STRING}, ["message"], READ_ONLY, None),
    "add": (add, "Add two numbers.", {"a": NUMBER, "b": NUMBER}, ["a", "b"], READ_ONLY, SUM),
    "fail": (fail, "Answer with an error result.", {"message": STRING}, [], READ_ONLY, None),
    "slow": (
        slow,
        "Take a while, report progress after each step, and stop when cancelled.",
        {"seconds": {**NUMBER, "default": 1}, "steps": {**INTEGER, "default": 4}},
        [],
        READ_ONLY,
        None,
    ),
    "log": (
        log,
        "Send a log message to the client.",
        {"message": STRING, "level": {**STRING, "enum": list(LEVELS), "default": "info"}},
        ["message"],
        READ_ONLY,
        None,
    ),
    "crash": (crash, "End the server process with exit code 3.", {}, [], DESTRUCTIVE, None),
}
# These may wait, so each call gets a thread; the others answer in the order they were asked.
WAITING = {"slow"}


def described(name: str) -> Json:
    _, description, properties, required, annotations, output = TOOLS[name]
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    tool: Json = {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}
    return {**tool, "outputSchema": output} if output else tool


# --- the server -----------------------------------------------------------------------------------


class Server:
    """Answers one client until its input ends."""

    def __init__(self, wire: Wire, page_size: int) -> None:
        self.wire = wire
        self.page_size = page_size
        self.level = "debug"
        self.running: dict[str, Call] = {}
        self.methods: dict[str, Callable[[Json], Json]] = {
            "initialize": self.initialize,
            "ping": lambda _params: {},
            "logging/setLevel": self.set_level,
            "tools/list": self.list_tools,
        }

    def serve(self, stream: BinaryIO) -> None:
        for body in read_bodies(stream):
            try:
                message = json.loads(body)
            except ValueError as error:
                self.wire.send({"id": None, "error": {"code": -32700, "message": f"Parse error: {error}"}})
                continue
            if isinstance(message, dict) and isinstance(message.get("method"), str):
                self.handle(message)
            else:
                self.wire.send({"id": None, "error": {"code": -32600, "message": "Not a JSON-RPC request"}})

    def handle(self, message: Json) -> None:
        method, params = message["method"], message.get("params")
        if not isinstance(params, dict):
            params = {}
        if "id" not in message:
            if method == "notifications/cancelled":
                self.cancel(params.get("requestId"))
        elif method == "tools/call":
            self.answer(message["id"], lambda: self.call_tool(message["id"], params))
        elif handler := self.methods.get(method):
            self.answer(message["id"], lambda: handler(params))
        else:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            self.wire.send({"id": message["id"], "error": error})

    def answer(self, request_id: object, work: Callable[[], Json | None]) -> None:
        """Send what `work` returns; None means that somebody else will answer."""
        try:
            result = work()
        except RefusalError as refusal:
            error = {"code": refusal.code, "message": str(refusal)}
            self.wire.send({"id": request_id, "error": error})
        else:
            if result is not None:
                self.wire.send({"id": request_id, "result": result})

    def cancel(self, request_id: object) -> None:
        if call := self.running.get(repr(request_id)):
            call.cancelled.set()

    def initialize(self, params: Json) -> Json:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "mock-child", "version": "1.0.0"},
            "instructions": INSTRUCTIONS,
        }

    def set_level(self, params: Json) -> Json:
        if params.get("level") not in LEVELS:
            raise RefusalError(-32602, f"level must be one of {', '.join(LEVELS)}")
        self.level = params["level"]
        return {}

    def list_tools(self, params: Json) -> Json:
        names, cursor = list(TOOLS), params.get("cursor", "0")
        start = int(cursor) if isinstance(cursor, str) and cursor.isdecimal() else -1
        if not 0 <= start < len(names):
            raise RefusalError(-32602, f"Unknown cursor: {cursor!r}")
        end = start + (self.page_size or len(names))
        page: Json = {"tools": [described(name) for name in names[start:end]]}
        return {**page, "nextCursor": str(end)} if end < len(names) else page

    def call_tool(self, request_id: object, params: Json) -> Json | None:
        name, args, meta = params.get("name"), params.get("arguments") or {}, params.get("_meta") or {}
        if not isinstance(name, str) or name not in TOOLS:
            raise RefusalError(-32602, f"Unknown tool: {name}")
        if not isinstance(args, dict) or not isinstance(meta, dict):
            raise RefusalError(-32602, "arguments and _meta must be objects")
        run, _, _, required, _, _ = TOOLS[name]
        if missing := [key for key in required if key not in args]:
            return {**text(f"{name} needs {', '.join(missing)}"), "isError": True}
        call = Call(self, name, args, meta.get("progressToken"))
        if name not in WAITING:
            return run(call)
        self.running[repr(request_id)] = call
        threading.Thread(target=self.run_waiting, args=(request_id, run, call), daemon=True).start()
        return None

    def run_waiting(self, request_id: object, run: Run, call: Call) -> None:
        try:
            result = run(call)
        except CancelledError:
            return
        finally:
            self.running.pop(repr(request_id), None)
        self.wire.send({"id": request_id, "result": result})


def main(argv: list[str]) -> int:
    options = dict(zip(argv[::2], argv[1::2], strict=False))
    framing, page_size = options.pop("--framing", "newline"), options.pop("--page-size", "0")
    if options or len(argv) % 2 or framing not in ("newline", "content-length") or not page_size.isdecimal():
        sys.stderr.write(f"{__doc__}\n")
        return 2
    Server(Wire(framing), int(page_size)).serve(sys.stdin.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
