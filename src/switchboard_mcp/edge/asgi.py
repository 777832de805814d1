"""The little of ASGI that the HTTP front needs: reading a body within bounds, and answering.

Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from enum import Enum
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Headers = dict[bytes, bytes]
Pairs = Iterable[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
CLOSE = (b"connection", b"close")
EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Some servers in between collect a whole answer before they pass it on, unless told not to.
    (b"x-accel-buffering", b"no"),
)
# A client on a bad line needs some seconds for megabytes; one that needs longer only holds us up.
BODY_WITHIN_S = 30.0
# What is refused is read to its end all the same, where that is near: a client that is still sending when the
# connection is closed may never see the answer.
LITTLE_BYTES = 65_536
LITTLE_WITHIN_S = 2.0


class NoBody(Enum):
    """Why there is no body."""

    TOO_LARGE = 413
    TOO_SLOW = 408
    GONE = 499


async def read_body(
    receive: Receive, headers: Headers, limit: int, seconds: float = BODY_WITHIN_S
) -> bytes | NoBody:
    """The body of a request, if it is within bounds."""
    told = headers.get(b"content-length", b"0")
    if len(told) > 18 or not told.isdigit() or int(told) > limit:
        return NoBody.TOO_LARGE
    first = await receive()
    if first["type"] != "http.request":
        return NoBody.GONE
    body: bytes = first["body"]
    if first["more_body"]:
        try:
            async with asyncio.timeout(seconds):
                return await _read_rest(receive, [body], limit)
        except TimeoutError:
            return NoBody.TOO_SLOW
    return body if len(body) <= limit else NoBody.TOO_LARGE


async def _read_rest(receive: Receive, parts: list[bytes], limit: int) -> bytes | NoBody:
    size = len(parts[0])
    while size <= limit:
        more = await receive()
        if more["type"] != "http.request":
            return NoBody.GONE
        parts.append(more["body"])
        size += len(more["body"])
        if not more["more_body"] and size <= limit:
            return b"".join(parts)
    return NoBody.TOO_LARGE


async def refuse(
    receive: Receive, send: Send, headers: Headers, status: int, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    """Answer a request whose body nobody has read."""
    if b"content-length" in headers or b"transfer-encoding" in headers:
        rest = await read_body(receive, headers, LITTLE_BYTES, LITTLE_WITHIN_S)
        if rest is NoBody.GONE:
            return
        if isinstance(rest, NoBody):
            more = (*more, CLOSE)
    await respond(send, status, body, *more)


async def respond(send: Send, status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> None:
    """Answer in one piece."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})
