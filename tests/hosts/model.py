"""A model with a script, in the four dialects that hosts speak with theirs.

It asks for one call of a suite, then repeats what came back. So a host that knows no other model shows which
tools it offers, and whether a call reaches a child. It knows nothing of MCP, nor of any host.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

Json = dict[str, Any]


class Turn(NamedTuple):
    """The parts of a model request that scripts read."""

    tools: list[str]
    results: list[str]


class Dialect(NamedTuple):
    """The request and response format of one kind of model: the events of a stream."""

    read: Callable[[Json], Turn]
    call: Callable[[str, Json], list[Json]]
    say: Callable[[str], list[Json]]


class Model:
    """A scripted model, with the requests it has received."""

    def __init__(self, suite: str, arguments: Json) -> None:
        self._suite = suite
        self._arguments = arguments
        self.tools: set[str] = set()
        self.results: list[str] = []
        self.url = ""

    def answer(self, dialect: Dialect, asked: Json) -> list[Json]:
        turn = dialect.read(asked)
        self.tools.update(turn.tools)
        if turn.results:
            self.results = turn.results
            return dialect.say(f"The tool said: {turn.results[-1]}")
        for tool in turn.tools:
            if tool.endswith(self._suite):
                return dialect.call(tool, self._arguments)
        # Hosts also ask for titles and the like, without tools.
        return dialect.say("Nothing to say")


class Script(Protocol):
    """Decides the answers of a scripted model."""

    url: str

    def answer(self, dialect: Dialect, asked: Json) -> list[Json]:
        """The events of one answer."""


@contextmanager
def scripted(suite: str, arguments: Json) -> Iterator[Model]:
    """A model that listens; `url` is where, without any path."""
    model = Model(suite, arguments)
    with listening(model):
        yield model


@contextmanager
def listening(model: Script) -> Iterator[None]:
    """Let a model listen, and set its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            dialect = next((found for mark, found in DIALECTS.items() if mark in self.path), None)
            if dialect is None:
                self.send_error(404)
                return
            events = model.answer(dialect, json.loads(body))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join(map(_event, events)).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _event(event: Json) -> str:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"


# --- Anthropic Messages ------------------------------------------------------------------------------------------


def _read_messages(asked: Json) -> Turn:
    blocks = [
        block
        for message in asked["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    results = [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]
    return Turn([tool["name"] for tool in asked.get("tools", [])], results)


def _messages(block: Json, delta: Json, stop: str) -> list[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def _call_messages(tool: str, arguments: Json) -> list[Json]:
    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return _messages(block, delta, "tool_use")


def _say_messages(text: str) -> list[Json]:
    return _messages({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn")


# --- OpenAI Responses --------------------------------------------------------------------------------------------


def _read_responses(asked: Json) -> Turn:
    tools: list[str] = []
    for tool in asked.get("tools", []):
        inner = tool.get("tools", [])
        tools += [f"{tool['name']}/{each['name']}" for each in inner] or [tool.get("name", tool["type"])]
    results = [
        json.dumps(item["output"]) for item in asked["input"] if item["type"] == "function_call_output"
    ]
    return Turn(tools, results)


def _responses(item: Json) -> list[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}},
    ]


def _call_responses(tool: str, arguments: Json) -> list[Json]:
    namespace, _, name = tool.rpartition("/")
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "arguments": json.dumps(arguments)}
    return _responses({**call, "namespace": namespace, "name": name})


def _say_responses(text: str) -> list[Json]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return _responses({"type": "message", "id": "msg_1", "role": "assistant", "content": content})


# --- OpenAI chat completions -------------------------------------------------------------------------------------


def _read_chat(asked: Json) -> Turn:
    results = [json.dumps(message["content"]) for message in asked["messages"] if message["role"] == "tool"]
    return Turn([tool["function"]["name"] for tool in asked.get("tools", [])], results)


def _chat(delta: Json, finish: str) -> list[Json]:
    chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    said = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": finish}
    return [{**chunk, "choices": [said]}, {**chunk, "choices": [end]}]


def _call_chat(tool: str, arguments: Json) -> list[Json]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return _chat({"tool_calls": [call]}, "tool_calls")


def _say_chat(text: str) -> list[Json]:
    return _chat({"content": text}, "stop")


# --- Gemini ------------------------------------------------------------------------------------------------------


def _read_gemini(asked: Json) -> Turn:
    tools = [each["name"] for tool in asked.get("tools", []) for each in tool.get("functionDeclarations", [])]
    parts = [part for content in asked["contents"] for part in content["parts"]]
    return Turn(tools, [json.dumps(part["functionResponse"]) for part in parts if "functionResponse" in part])


def _gemini(part: Json) -> list[Json]:
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}]


def _call_gemini(tool: str, arguments: Json) -> list[Json]:
    return _gemini({"functionCall": {"id": "call_1", "name": tool, "args": arguments}})


def _say_gemini(text: str) -> list[Json]:
    return _gemini({"text": text})


# By what is in the path of a request.
DIALECTS = {
    "/messages?": Dialect(_read_messages, _call_messages, _say_messages),
    "/responses": Dialect(_read_responses, _call_responses, _say_responses),
    "/chat/completions": Dialect(_read_chat, _call_chat, _say_chat),
    ":streamGenerateContent": Dialect(_read_gemini, _call_gemini, _say_gemini),
}
