"""Faults of framing, encoding and volume. Each function serves one faulty child until it ends."""

from __future__ import annotations

import itertools
import json
import os
import time

from tests.children.plain_child import Child, Json, complain, dump, lines, send, text, write


def garbage() -> None:
    """Answers every message with bytes that are no protocol."""
    for _ in lines():
        write(b'\x00\xff\xfe{{{ "id": 1 not json\n[1,2,3]\n"text"\n{"jsonrpc":"2.0"}\n{"id":1,"result":{}}\n')


def log_lines() -> None:
    """Puts text, blank and JSON log lines around every message."""

    class Chatty(Child):
        def transmit(self, body: bytes) -> None:
            write(
                b'starting up\r\n\n{"level":"info","msg":"ready","id":1}\n{not json}\n'
                + body
                + b"\n[done]\n\x1b[0m\n"
            )

    Chatty().serve()


def content_length() -> None:
    """Frames its answers with Content-Length and a second header."""

    class Framed(Child):
        def transmit(self, body: bytes) -> None:
            kind = b"Content-Type: application/vscode-jsonrpc; charset=utf-8"
            write(b"Content-Length: %d\r\n%s\r\n\r\n%s" % (len(body), kind, body))

    Framed().serve()


def split(framing: str = "newline") -> None:
    """Writes each answer in pieces, cut in headers and characters; FRAMING `newline` or `content-length`."""

    class Split(Child):
        def transmit(self, body: bytes) -> None:
            framed = framing == "content-length"
            data = b"Content-Length: %d\r\n\r\n%s" % (len(body), body) if framed else body + b"\n"
            accent = data.find("é".encode())
            head = data.find(b"\r\n\r\n")
            places = {1, 9, head + 1, head + 2, head + 3, head + 4, accent + 1, len(data) - 1}
            cuts = [0, *sorted(cut for cut in places if 0 < cut < len(data)), len(data)]
            for start, end in itertools.pairwise(cuts):
                write(data[start:end])
                time.sleep(0.002)  # a reader that is waiting gets the piece alone

    Split().serve()


def invalid_utf8() -> None:
    """Puts bytes that are not UTF-8 into the text of every call's result; other answers are fine."""

    class Invalid(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            write(
                dump({"id": request_id, "result": text("caf@@ end")}).replace(b"@@", b"\xe9\xff\xc3") + b"\n"
            )

    Invalid().serve()


def big(mebibytes: str = "1") -> None:
    """Answers calls to `big` with MEBIBYTES of text (or the call's own `mib`); `echo` works."""

    class Big(Child):
        tools = ("big", "echo")

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            if params.get("name") != "big":
                return super().call(request_id, params, line)
            size = int((params.get("arguments") or {}).get("mib", mebibytes)) << 20
            head, tail = dump({"id": request_id, "result": text("@@")}).split(b"@@")
            return write(head + b"x" * size + tail + b"\n")

    Big().serve()


def floods(how: str = "notifications") -> None:
    """From the first call writes without end; HOW: `notifications`, `requests`, `changes`, `logs`, `line`, `stderr`."""
    params = {"level": "info", "data": "x" * 200}
    line = {
        "notifications": dump({"method": "notifications/message", "params": params}) + b"\n",
        "requests": dump({"id": 1, "method": "ping"}) + b"\n",
        "changes": dump({"method": "notifications/tools/list_changed"}) + b"\n",
        "logs": b"x" * 200 + b"\n",
    }.get(how, b"x" * 200)

    class Floods(Child):
        def call(self, request_id: object, params: Json, line_: bytes) -> None:
            while True:
                os.write(2 if how == "stderr" else 1, line * 300)

    Floods().serve()


def counts(total: str = "1000", size: str = "1000") -> None:
    """In a call logs TOTAL numbered messages of SIZE bytes, then answers; `echo` works."""

    class Counts(Child):
        tools = ("count", "echo")

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            if params.get("name") == "count":
                padding = "x" * int(size)
                for number in range(int(total)):
                    data = {"number": number, "padding": padding}
                    send({"method": "notifications/message", "params": {"level": "info", "data": data}})
            super().call(request_id, params, line)

    Counts().serve()


def stderr_burst(mebibytes: str = "4") -> None:
    """Writes MEBIBYTES to stderr before each answer to a call, so that an undrained pipe blocks it."""

    class Burst(Child):
        def call(self, request_id: object, params: Json, line: bytes) -> None:
            for number in range(int(mebibytes) << 10):
                complain(f"{number:08d} ".ljust(1023, "x"))
            super().call(request_id, params, line)

    Burst().serve()


def odd_json() -> None:
    """`received` answers with the bytes of its request, `odd` with JSON that a careless relay changes."""
    odd = (
        rb'{"content":[{"type":"text","text":"\u00e9\ud83d\ude00\/","x-unknown":[1.0,1,1e2,-0.0]}],"isError":false,'
        rb'"structuredContent":{"big":123456789012345678901234567890,"float":1.0,"int":1,"tiny":1e-400,'
        rb'"precise":0.1000000000000000055511151231257827,"spaced" : [ ] ,"z":null,"a":null},'
        rb'"_meta":{"example.com/trace":"abc"},"unknownField":{"kept":true}}'
    )

    class Odd(Child):
        tools = ("odd", "received")

        def call(self, request_id: object, params: Json, line: bytes) -> None:
            if params.get("name") == "odd":
                self.transmit(
                    b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(request_id).encode(), odd)
                )
            else:
                self.answer(request_id, text(line.decode()))

    Odd().serve()
