"""ASGI helpers of the HTTP server: read a bounded request body, send a response.

Not aware of MCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Headers = dict[bytes, bytes]

JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
CLOSE = (b"connection", b"close")
EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Without this, nginx buffers the whole response before passing it on.
    (b"x-accel-buffering", b"no"),
)
# A client on a slow line needs some seconds for megabytes; one that needs longer only holds us up.
BODY_TIMEOUT_S = 30.0
# The body of a rejected request is read to its end if that is near: a client that is still sending when the
# connection is closed may never see the response.
DISCARD_TIMEOUT_S = 2.0
MAX_LENGTH_DIGITS = 18


class BodyFailure(Enum):
    """The reason why a request body could not be read."""

    TOO_LARGE = "too large"
    GONE = "gone"


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes | BodyFailure:
    """Read the body of a request, up to `limit` bytes. A body that is too large is discarded."""
    declared = headers.get(b"content-length", b"0")
    if len(declared) > MAX_LENGTH_DIGITS or int(declared) > limit:
        await discard(receive)
        return BodyFailure.TOO_LARGE
    first = await receive()
    if first["type"] != "http.request":
        return BodyFailure.GONE
    body: bytes = first["body"]
    if not first["more_body"]:
        return body if len(body) <= limit else BodyFailure.TOO_LARGE
    whole = bytearray(body)  # not a list of parts: each part may be a single byte
    while len(whole) <= limit:
        more = await receive()
        if more["type"] != "http.request":
            return BodyFailure.GONE
        whole += more["body"]
        if not more["more_body"]:
            return bytes(whole) if len(whole) <= limit else BodyFailure.TOO_LARGE
    whole.clear()
    await discard(receive)
    return BodyFailure.TOO_LARGE


def has_body(headers: Headers) -> bool:
    """Return True if the request has a body."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def discard(receive: Receive) -> bool:
    """Read and drop the rest of a body. Return False if it did not end in time."""
    try:
        async with asyncio.timeout(DISCARD_TIMEOUT_S):
            while True:
                more = await receive()
                if more["type"] != "http.request" or not more["more_body"]:
                    return True
    except TimeoutError:
        return False


async def refuse(
    receive: Receive, send: Send, headers: Headers, status: int, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    """Respond to a request whose body has not been read."""
    if has_body(headers) and not await discard(receive):
        more = (*more, CLOSE)
    await respond(send, status, body, *more)


async def respond(send: Send, status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> None:
    """Send a complete response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})
