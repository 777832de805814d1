"""A child whose messages have all that a careless relay changes or drops. Over pipes; elsewhere it is `peculiar_web`.

Vendor members at every level, unknown blocks, numbers no double holds, odd spelling, unknown notifications, methods and
questions. Standard library only, and written by hand where a writer would tidy up. It speaks both eras, or the one that
its argument names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Write = Callable[[bytes], None]
OPENINGS = ("initialize", "server/discover")
PREFIX = "io.modelcontextprotocol/"

# Spelt as no library would: spaces, order, exponents, escapes and none, a key twice, numbers beyond 64 bits.
ODD = rb'"n":123456789012345678901234567890,"f":1.0,"e":1E+2,"z":-0.0,"s" : [ ],"u":"\u00e9\ud83d\ude00\/","k":1,"k":2'
ODD += ',"r":"é😀\u2028\u0085"'.encode()
META = rb'"_meta":{"example.com/trace":{"id":98765432109876543210},"plain":1.50}'
VENDOR = b'"x-vendor":{' + ODD + b"}"
BLOCK = b'{"type":"hologram","depth":3,' + VENDOR + b"," + META + b"}"
TOOLS = (
    b'{"name":"odd","description":"d","inputSchema":{"type":"object","x-ui":{' + ODD + b"}},"
    b'"annotations":{"readOnlyHint":true,"vendorHint":[1]},' + META + b"," + VENDOR + b"}",
    b'{"name":"echo","inputSchema":{"type":"object"},"outputSchema":{"type":"object","x":1E5}}',
    b'{"name":"speak","inputSchema":{"type":"object"}}',
    b'{"name":"fail","inputSchema":{"type":"object"}}',
)
LISTS = {
    "tools/list": (b"tools", TOOLS),
    "prompts/list": (b"prompts", (b'{"name":"p","x":{' + ODD + b"}}",)),
    "resources/list": (
        b"resources",
        (b'{"uri":"odd://a","name":"a","size":12345678901234567890,' + VENDOR + b"}",),
    ),
    "resources/templates/list": (
        b"resourceTemplates",
        (b'{"uriTemplate":"odd://{id}","name":"t",' + META + b"}",),
    ),
}
CAPABILITIES = (
    b'{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{},'
    b'"experimental":{"x-mode":{' + ODD + b"}}}"
)


class Peculiar:
    """One conversation. `write` sends one message to the client."""

    def __init__(self, write: Write, era: str = "") -> None:
        self._write = write
        self._openings = {"legacy": ("initialize",), "modern": ("server/discover",)}.get(era, OPENINGS)
        self._heard: list[bytes] = []
        self._curious: bytes | None = None  # who waits for something to be heard
        self._speaking: tuple[bytes, bool] | None = None

    def respond(self, line: bytes) -> None:
        """One message of the client."""
        message = json.loads(line)
        if "method" not in message:
            self._answered(line)
        elif "id" not in message:
            if "vendor" in message["method"]:
                self._heard.append(line)
                self._tell_heard()
        else:
            modern = PREFIX + "protocolVersion" in message.get("params", {}).get("_meta", {})
            self._requested(json.dumps(message["id"]).encode(), message, line, modern)

    def _requested(self, id: bytes, message: Json, line: bytes, modern: bool) -> None:
        method = message["method"]
        if method in OPENINGS and method not in self._openings:
            self._error(id, b'"code":-32601,"message":"Method not found"')
        elif method == "initialize":
            told = b'"protocolVersion":"2025-11-25","serverInfo":{"name":"peculiar","version":"1"},"capabilities":'
            self._result(id, told + CAPABILITIES + b',"instructions":"Mind the gap.",' + VENDOR, False)
        elif method == "server/discover" and modern:
            told = b'"supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":'
            self._result(id, told + CAPABILITIES + b',"instructions":"Mind the gap."', True)
        elif method in LISTS:
            member, entries = LISTS[method]
            body = b'"%b":[%b],%b,%b' % (member, b",".join(entries), META, VENDOR)
            self._result(id, body + (b',"ttlMs":0,"cacheScope":"private"' if modern else b""), modern)
        elif method == "tools/call":
            self._call(id, message["params"]["name"], message["params"], line, modern)
        elif method in ("prompts/get", "resources/read", "completion/complete", "vendor/thing"):
            self._result(
                id, b'"got":%b,%b,%b' % (_params(message), VENDOR, META) + _hints(method, modern), modern
            )
        elif method == "vendor/scalar" and not modern:
            self._write(b'{"jsonrpc":"2.0","id":%b,"result":123456789012345678901}' % id)
        elif method == "vendor/heard":
            self._curious = id
            self._tell_heard(even_nothing=modern)
        else:
            self._error(id, b'"code":-32601,"message":"Method not found","data":{' + ODD + b'},"x":1')

    def _tell_heard(self, *, even_nothing: bool = False) -> None:
        """Over some transports a notification may come after a request that was sent later; so that one waits."""
        if self._curious is not None and (self._heard or even_nothing):
            self._result(self._curious, b'"heard":[%b]' % b",".join(self._heard), even_nothing)
            self._curious, self._heard = None, []

    def _call(self, id: bytes, tool: str, params: Json, line: bytes, modern: bool) -> None:
        if tool == "odd":
            self._result(
                id,
                b'"content":[%b,%b],"structuredContent":{%b},%b,%b' % (BLOCK, BLOCK, ODD, META, VENDOR),
                modern,
            )
        elif tool == "echo":
            got = _params({"params": params})
            self._result(id, b'"content":[],"structuredContent":{"params":%b}' % got, modern)
        elif tool == "fail":
            self._error(id, b'"code":-31999,"message":"broken","data":[{' + ODD + b'}],"x-vendor":1')
        else:
            self._speak(id, params, modern)

    def _speak(self, id: bytes, params: Json, modern: bool) -> None:
        """Says all sorts of things before it answers; in the handshake era it asks something too."""
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            self._notify(
                b"notifications/progress",
                b'"progressToken":%b,"progress":1E0,"total":3.0,%b' % (json.dumps(token).encode(), VENDOR),
            )
        level = params.get("_meta", {}).get(PREFIX + "logLevel")
        if not modern or level is not None:
            self._notify(
                b"notifications/message", b'"level":"warning","logger":"odd","data":{%b},%b' % (ODD, META)
            )
        self._notify(b"notifications/vendor/news", ODD + b"," + META)
        self._write(b'{"jsonrpc":"2.0","method":"vendor/bare"}')
        self._speaking = (id, modern)
        if modern:
            self._finish(b"null")
        else:
            self._write(
                b'{"jsonrpc":"2.0","id":"ask-1","method":"vendor/ask","params":{%b,%b}}' % (ODD, VENDOR)
            )

    def _answered(self, line: bytes) -> None:
        answer = {name: value for name, value in json.loads(line).items() if name in ("result", "error")}
        self._finish(json.dumps(answer, sort_keys=True).encode())

    def _finish(self, told: bytes) -> None:
        assert self._speaking is not None
        id, modern = self._speaking
        self._result(id, b'"content":[],"structuredContent":{"told":%b}' % told, modern)

    def _result(self, id: bytes, body: bytes, modern: bool) -> None:
        kind = b',"resultType":"complete"' if modern else b""
        self._write(b'{"jsonrpc":"2.0","id":%b,"result":{%b%b}}' % (id, body, kind))

    def _error(self, id: bytes, body: bytes) -> None:
        self._write(b'{"jsonrpc":"2.0","id":%b,"error":{%b}}' % (id, body))

    def _notify(self, method: bytes, body: bytes) -> None:
        self._write(b'{"jsonrpc":"2.0","method":"%b","params":{%b}}' % (method, body))


def _params(message: Json) -> bytes:
    """The params as they came, but for what describes the hop."""
    params = dict(message.get("params", {}))
    meta = {name: value for name, value in params.pop("_meta", {}).items() if not name.startswith(PREFIX)}
    meta.pop("progressToken", None)
    return json.dumps({**params, "_meta": meta}, sort_keys=True).encode()


def _hints(method: str, modern: bool) -> bytes:
    return b',"ttlMs":5,"cacheScope":"public"' if modern and method == "resources/read" else b""


def _lines() -> Iterator[bytes]:
    rest = b""
    while chunk := os.read(0, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def main() -> None:
    def write(message: bytes) -> None:
        sys.stdout.buffer.write(message + b"\n")
        sys.stdout.flush()

    child = Peculiar(write, *sys.argv[1:])
    for line in _lines():
        child.respond(line)


if __name__ == "__main__":
    main()
