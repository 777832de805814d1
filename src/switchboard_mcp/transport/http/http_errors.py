"""Reading responses that are no success: what they mean for the one who asked.

An error of the protocol may stand in the body whatever the status is. Everything else becomes a failure that names
child, address and status. Does not know what becomes of the link.
"""

from __future__ import annotations

import httpx2
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed
from switchboard_mcp.transport.http.client import content_type, read_body
from switchboard_mcp.transport.http.remote_base import RemoteServer

# Of a response that is no message, enough to find an error in it and to show its start.
MAX_REFUSAL_BYTES = 64 * 1024
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 400, 401, 403, 404
# Longer than anybody waits; a server that asks for more is not believed.
LONGEST_RETRY_S = 3600


async def refusal_body(response: httpx2.Response) -> bytes:
    """The body of a response that is no success, as far as it matters."""
    body = await read_body(response, MAX_REFUSAL_BYTES)
    return body.head if isinstance(body, Oversized) else body


def rpc_error_in(body: bytes, id: bytes) -> Raw | None:
    """The protocol's error for the request of this id; one without an id is for the request it came with."""
    envelope = jsonrpc.parse(jsonrpc.replace_invalid_utf8(body))
    if isinstance(envelope, Malformed) or envelope.error is UNSET or envelope.method is not UNSET:
        return None
    theirs = bytes(envelope.id) if envelope.id is not UNSET else b"null"
    return envelope.error if theirs in (id, b"null") else None


def session_is_gone(status: int, body: bytes) -> bool:
    """404 by the protocol; some servers answer 400 and say it in words."""
    return status == NOT_FOUND or (status == BAD_REQUEST and b"session" in body.lower())


def refusal(server: RemoteServer, response: httpx2.Response, body: bytes) -> Failure:
    """The failure that a response without a message in it means."""
    status = response.status_code
    said = body.decode("utf-8", "replace") if content_type(response) != "text/html" else ""
    if status in (UNAUTHORIZED, FORBIDDEN):
        what = "does not let us in" if status == UNAUTHORIZED else "does not allow this"
        hint = server.login_hint if _wants_login(server, response) else ""
        return server.failure("child_unauthorized", f"{what} (HTTP {status})", detail=said, hint=hint)
    if response.is_success:
        kind = content_type(response) or "nothing"
        return server.failure("child_http_error", f"answered with {kind} (HTTP {status})", detail=said)
    return server.failure(
        "child_http_error",
        f"answered with HTTP {status} {response.reason_phrase}".rstrip(),
        detail=said,
        retry_after_ms=_retry_after_ms(response),
    )


def _wants_login(server: RemoteServer, response: httpx2.Response) -> bool:
    """Whether a login would help: the server asks for a token, and the entry has none of its own."""
    challenge = str(response.headers.get("www-authenticate", "")).lower()
    return challenge.startswith("bearer") and "authorization" not in map(str.lower, server.headers)


def _retry_after_ms(response: httpx2.Response) -> int | UnsetType:
    """How long the server wants to be left alone, where it says so in seconds."""
    value = str(response.headers.get("retry-after", ""))
    return min(int(value), LONGEST_RETRY_S) * 1000 if value.isdigit() and len(value) < 10 else UNSET
