"""The least a relay in Python can do: new ids to the child, the host's ids back, bodies left undecoded.

    python bare_relay.py [--uvloop] COMMAND [ARGUMENT ...]

A lower bound to compare with, not a product: no suites, no rules, no time limits, no recovery.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType


class Envelope(Struct, omit_defaults=True, gc=False):
    """A JSON-RPC message of any kind, its bodies as bytes."""

    jsonrpc: str
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


decode = msgspec.json.Decoder(Envelope).decode
# `jsonrpc` has no default, so that it is always written.
encode = msgspec.json.Encoder().encode


class Pipe:
    """Moves lines from one descriptor to another through `translate`; what cannot be written yet is kept."""

    def __init__(
        self, source: int, target: int, translate: Callable[[Envelope], None], end: Callable[[], None]
    ):
        self.loop = asyncio.get_running_loop()
        self.source, self.target, self.translate, self.end = source, target, translate, end
        self.buffer, self.unsent = b"", b""
        os.set_blocking(source, False)
        os.set_blocking(target, False)
        self.loop.add_reader(source, self.readable)

    def readable(self) -> None:
        chunk = os.read(self.source, 65536)
        if not chunk:
            self.loop.remove_reader(self.source)
            self.end()
            return
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        out = bytearray()
        for line in lines:
            message = decode(line)
            self.translate(message)
            out += encode(message)
            out += b"\n"
        self.write(bytes(out))

    def write(self, data: bytes) -> None:
        try:
            data = data[os.write(self.target, data) :]
        except BlockingIOError:
            pass
        if data:
            self.unsent = data
            self.loop.remove_reader(self.source)
            self.loop.add_writer(self.target, self.writable)

    def writable(self) -> None:
        self.loop.remove_writer(self.target)
        self.loop.add_reader(self.source, self.readable)
        self.write(self.unsent)


async def relay(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    pending: dict[bytes, Raw] = {}
    ended = asyncio.Event()
    last = 0

    def to_child(message: Envelope) -> None:
        nonlocal last
        if message.method is not UNSET and message.id is not UNSET:
            last += 1
            own = b"%d" % last
            pending[own] = message.id
            message.id = Raw(own)

    def to_host(message: Envelope) -> None:
        if message.method is UNSET and message.id is not UNSET:
            message.id = pending.pop(bytes(message.id))

    Pipe(0, child.stdin.fileno(), to_child, ended.set)
    Pipe(child.stdout.fileno(), 1, to_host, ended.set)
    await ended.wait()
    child.stdin.close()


def main(argv: list[str]) -> None:
    run = asyncio.run
    if argv[0] == "--uvloop":
        import uvloop

        run = uvloop.run
        del argv[0]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        run(relay(child))


if __name__ == "__main__":
    main(sys.argv[1:])
