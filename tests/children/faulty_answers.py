"""Faults of ids, shapes and order of answers. Each function serves one faulty child until it ends."""

from __future__ import annotations

import json

from tests.children.plain_child import Child, Json, dump, send, text, tool


def asks_back(record_file: str = "") -> None:
    """In a call sends ping (with the call's id), roots/list, a strange method; answers with what it heard."""

    class Asks(Child):
        def __init__(self) -> None:
            self.waiting: object = None
            self.heard: list[Json] = []

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            self.waiting, self.heard = request_id, []
            send({"id": request_id, "method": "ping"})
            send({"id": "roots", "method": "roots/list"})
            send({"id": "odd", "method": "no/such/method", "params": {}})
            send({"method": "notifications/no_such_thing", "params": {}})

        def hear(self, message: Json) -> None:
            self.heard.append(message)
            if record_file:
                with open(record_file, "a") as file:
                    file.write(json.dumps(message) + "\n")
            if len(self.heard) == 3:
                self.answer(self.waiting, {**text("heard 3"), "structuredContent": {"heard": self.heard}})

    Asks().serve()


def duplicates() -> None:
    """Answers every call twice, the second time differently."""

    class Twice(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            super().call(request_id, params, line)
            self.answer(request_id, text("second answer"))

    Twice().serve()


def out_of_order(count: str = "3") -> None:
    """Holds calls until COUNT have come, then answers the last one first."""

    class Reversed(Child):
        def __init__(self) -> None:
            self.held: list[tuple[object, Json, bytes]] = []

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            self.held.append((request_id, params, line))
            if len(self.held) >= int(count):
                while self.held:
                    super().call(*self.held.pop())

    Reversed().serve()


def unknown_id() -> None:
    """Before each answer answers other ids: a number, a text, null, none, and the right number as text."""

    class Unknown(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            for other in (987654321, "no-such-id", None, str(request_id)):
                send({"id": other, "result": text("wrong")})
            send({"id": None, "error": {"code": -32700, "message": "parse error"}})
            send({"result": text("no id")})
            super().call(request_id, params, line)

    Unknown().serve()


def late(record_file: str) -> None:
    """Answers `late` only when it is cancelled, which goes to RECORD_FILE as it came; `echo` works."""

    class Late(Child):
        tools = ("echo", "late")

        def __init__(self) -> None:
            self.held: dict[object, tuple[Json, bytes]] = {}

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            if params["name"] == "late":
                self.held[request_id] = params, line
            else:
                super().call(request_id, params, line)

        def receive(self, message: Json, line: bytes) -> None:
            super().receive(message, line)
            if message["method"] == "notifications/cancelled":
                with open(record_file, "ab") as file:
                    file.write(line + b"\n")
                request_id = message["params"]["requestId"]
                super().call(request_id, *self.held.pop(request_id))

    Late().serve()


def unreadable(how: str = "broken") -> None:
    """Answers calls with what no decoder takes; HOW: `broken` JSON, `deep` nesting. A message `fine` is echoed."""
    result = {"broken": b'{"content":[}', "deep": b"[" * 5000 + b"]" * 5000}[how]

    class Unreadable(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            if params["arguments"].get("message") == "fine":
                return super().call(request_id, params, line)
            head = dump({"id": request_id})[:-1]
            return self.transmit(head + b', "result": ' + result + b"}")

    Unreadable().serve()


def error_data() -> None:
    """Answers every call with a JSON-RPC error that carries data."""

    class Errors(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            data = {"reason": "quota", "limits": [1, 2.0], "nested": {"é": None}}
            send({"id": request_id, "error": {"code": -32042, "message": "quota used up", "data": data}})

    Errors().serve()


def wrong_shapes(which: str = "tools") -> None:
    """Answers with JSON of the wrong shape; WHICH: `tools`, `initialize`, or `call` (no result, no error)."""

    class Wrong(Child):
        def result(self, method: str, params: Json) -> Json:
            if method == "tools/list" and which == "tools":
                return {"tools": [{"no": "name"}, 7, {"name": "echo", "inputSchema": "none"}, tool("fine")]}
            if method == "initialize" and which == "initialize":
                return {"protocolVersion": 20251125, "capabilities": [], "serverInfo": None}
            return super().result(method, params)

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            if which == "call":
                return send({"id": request_id})
            return super().call(request_id, params, line)

    Wrong().serve()
