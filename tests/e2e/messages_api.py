"""A service on this machine that speaks the Messages API, as far as a client can tell: tool use, streaming, errors.

What its model says is decided by a test: each request takes the next answer. It keeps what it was asked.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

Json = dict[str, Any]


class Says(NamedTuple):
    """A turn of the model."""

    blocks: list[Json]
    stop: str = "tool_use"
    cached: int = 0


class Fails(NamedTuple):
    """An error of the service. It asks to be tried again at once, where that is worth it."""

    status: int
    kind: str
    message: str = "as the test wants it"


class Breaks(NamedTuple):
    """An answer that is none: these bytes, as a stream."""

    body: bytes


Answer = Says | Fails | Breaks
Decide = Callable[[Json], Answer]


class MessagesApi:
    """The service. If no answer is left, `otherwise` decides."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.answers: deque[Answer] = deque()
        self.otherwise: Decide = lambda request: Fails(500, "api_error", "no answer is left")
        self.requests: list[Json] = []
        self.keys: list[str] = []

    def answer(self, request: Json, key: str) -> Answer:
        self.requests.append(request)
        self.keys.append(key)
        return self.answers.popleft() if self.answers else self.otherwise(request)


def use(name: str, input: object, id: str = "") -> Json:
    """A tool that the model uses."""
    return {"type": "tool_use", "id": id or f"toolu_{name}", "name": name, "input": input}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


@contextmanager
def messages_api() -> Iterator[MessagesApi]:
    """The service, until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    api = server.api = MessagesApi(server)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        api: MessagesApi = self.server.api  # type: ignore[attr-defined]
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        answer = api.answer(request, key)
        if isinstance(answer, Fails):
            error = {"type": answer.kind, "message": answer.message}
            body = json.dumps({"type": "error", "error": error}).encode()
            self._send(answer.status, "application/json", body)
        elif isinstance(answer, Breaks):
            self._send(200, "text/event-stream", answer.body)
        else:
            body = b"".join(_event(event) for event in stream(answer, request["model"]))
            self._send(200, "text/event-stream", body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(body)


def stream(answer: Says, model: str) -> Iterator[Json]:
    """The events of a turn, its blocks in several pieces."""
    usage = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": answer.cached}
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(answer.blocks):
        if block["type"] == "text":
            start, whole, kind, key = {**block, "text": ""}, block["text"], "text_delta", "text"
        else:
            start, whole = {**block, "input": {}}, json.dumps(block["input"])
            kind, key = "input_json_delta", "partial_json"
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for begin in range(0, len(whole), 7):
            delta = {"type": kind, key: whole[begin : begin + 7]}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": answer.stop, "stop_sequence": None},
        "usage": {"output_tokens": 20},
    }
    yield {"type": "message_stop"}


def _event(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
