"""The child behind every contestant: a stdio MCP server with one tool, `echo`, as fast as Python goes.

Owns nothing but speed: it trusts its client, and answers all the requests of one read with one write. With
BENCH_WORK_US, it works that long on each call, and answers one by one.
"""

from __future__ import annotations

import os
import time

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType


class Request(Struct, gc=False):
    """A request or a notification."""

    method: str = ""
    id: Raw | UnsetType = UNSET
    params: Raw = Raw(b"{}")


class Arguments(Struct, gc=False):
    """The arguments of `echo`."""

    message: Raw


class Call(Struct, gc=False):
    """Parameters of tools/call."""

    arguments: Arguments


class Hello(Struct, gc=False, rename="camel"):
    """Parameters of initialize."""

    protocol_version: Raw = Raw(b'"2025-11-25"')


TOOLS = (
    b'{"tools":[{"name":"echo","description":"Answer with the same message.","inputSchema":{"type":"object",'
    b'"properties":{"message":{"type":"string"}},"required":["message"]}}]}'
)
WORK_NS = 1000 * int(os.environ.get("BENCH_WORK_US", "0"))
ERROR = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}\n'

decode = msgspec.json.Decoder(Request).decode
decode_call = msgspec.json.Decoder(Call).decode


def answer(line: bytes) -> bytes:
    request = decode(line)
    if request.id is UNSET:
        return b""
    if request.method == "tools/call":
        message = decode_call(request.params).arguments.message
        return b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":%b}]}}\n' % (
            request.id,
            message,
        )
    if request.method == "initialize":
        version = msgspec.json.decode(request.params, type=Hello).protocol_version
        result = (
            b'{"protocolVersion":%b,"capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}'
            % version
        )
    elif request.method == "tools/list":
        result = TOOLS
    elif request.method == "ping":
        result = b"{}"
    else:
        return ERROR % request.id
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request.id, result)


def work() -> None:
    end = time.perf_counter_ns() + WORK_NS
    while time.perf_counter_ns() < end:
        pass


def main() -> None:
    buffer = b""
    while chunk := os.read(0, 65536):
        *lines, buffer = (buffer + chunk).split(b"\n")
        if WORK_NS:
            for line in lines:
                work()
                os.write(1, answer(line))
            continue
        out = b"".join([answer(line) for line in lines])
        while out:
            out = out[os.write(1, out) :]


if __name__ == "__main__":
    main()
