"""A transport that sends the head of an answer together with its body.

uvicorn writes them one after the other, which would be two packets, and a client of a server that dies in between would
have half an answer. Owns only that; everything else is the transport's own.
"""

from __future__ import annotations

import asyncio
from typing import Any


class CoalescingTransport:
    """Stands before a transport. A head waits for what follows it, but no longer than this turn of the loop."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send something, or keep it where it is a head and nothing else."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data[:5] == b"HTTP/" and data[-4:] == b"\r\n\r\n":
            self._head = data
            self._loop.call_soon(self._flush_head)
            return
        self._transport.write(data)

    def close(self) -> None:
        """End, when everything is out."""
        self._flush_head()
        self._transport.close()

    def _flush_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
