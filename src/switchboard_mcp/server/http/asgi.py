"""The little of ASGI that the HTTP front needs: reading a body within bounds, and answering.

Knows nothing of MCP.
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
    # Some servers in between collect a whole answer before they pass it on, unless told not to.
    (b"x-accel-buffering", b"no"),
)
# A client on a bad line needs some seconds for megabytes; one that needs longer only holds us up.
BODY_TIMEOUT_S = 30.0
# What is refused is read to its end all the same, where that is near: a client that is still sending when the
# connection is closed may never see the answer.
DISCARD_TIMEOUT_S = 2.0
MAX_LENGTH_DIGITS = 18


class BodyFailure(Enum):
    """Why there is no body."""

    TOO_LARGE = "too large"
    GONE = "gone"


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes | BodyFailure:
    """The body of a request, if it is within bounds. One that is too large is read to its end, if that is near."""
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
    parts, size = [body], len(body)
    while size <= limit:
        more = await receive()
        if more["type"] != "http.request":
            return BodyFailure.GONE
        parts.append(more["body"])
        size += len(more["body"])
        if not more["more_body"]:
            return b"".join(parts) if size <= limit else BodyFailure.TOO_LARGE
    await discard(receive)
    return BodyFailure.TOO_LARGE


async def discard(receive: Receive) -> bool:
    """Read the rest of a body to throw it away; whether its end came soon."""
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
    """Answer a request whose body nobody has read."""
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if has_body and not await discard(receive):
        more = (*more, CLOSE)
    await respond(send, status, body, *more)


async def respond(send: Send, status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> None:
    """Answer in one piece."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})
