"""A transport wrapper that sends the head of a response together with its body.

uvicorn writes them separately, which makes two packets; and if the server dies in between, the client has half a
response.
"""

from __future__ import annotations

import asyncio
from typing import Any


class CoalescingTransport:
    """Wraps a transport. Holds a response head back until the next write or the next loop iteration."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write data, or hold it back if it is just a response head."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data[:5] == b"HTTP/" and data[-4:] == b"\r\n\r\n":
            self._head = data
            self._loop.call_soon(self._flush_head)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close after flushing."""
        self._flush_head()
        self._transport.close()

    def _flush_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
