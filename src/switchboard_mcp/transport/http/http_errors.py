"""Failures for HTTP responses that carry no result.

The body may contain a JSON-RPC error, whatever the status is. Everything else becomes a failure that names child, URL
and status. Not aware of what becomes of the transport.
"""

from __future__ import annotations

import re

import httpx2
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed
from switchboard_mcp.transport.http.client import content_type, read_body
from switchboard_mcp.transport.http.remote_base import RemoteServer

# Enough of an error response to find an error in it and to show its start.
MAX_ERROR_BYTES = 64 * 1024
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 400, 401, 403, 404
MISDIRECTED = 421
# Servers check the Host header against DNS rebinding: "Access is only allowed at localhost:8931", "Invalid Host: x".
_HOST_REFUSED = re.compile(
    r"only allowed at|\bhost\b.{0,40}(?:header|allowed|invalid)|invalid host", re.IGNORECASE
)
_SCOPE = re.compile(r'\bscope=(?:"([^"]{1,500})"|([^\s,"]{1,500}))')
# Upper bound for `Retry-After`.
MAX_RETRY_S = 3600


async def read_error_body(response: httpx2.Response) -> bytes:
    """Read the relevant part of an error response's body."""
    body = await read_body(response, MAX_ERROR_BYTES)
    return body.head if isinstance(body, Oversized) else body


def find_rpc_error(body: bytes, id: bytes) -> Raw | None:
    """Return the JSON-RPC error in a body for the request with this id; an error without id belongs to it too."""
    envelope = jsonrpc.parse(jsonrpc.replace_invalid_utf8(body))
    if isinstance(envelope, Malformed) or envelope.error is UNSET or envelope.method is not UNSET:
        return None
    theirs = bytes(envelope.id) if envelope.id is not UNSET else b"null"
    return envelope.error if theirs in (id, b"null") else None


def session_is_gone(status: int, body: bytes) -> bool:
    """Return True if the server has lost the session: 404 by the protocol, but some send 400 and say so."""
    return status == NOT_FOUND or (status == BAD_REQUEST and b"session" in body.lower())


def response_failure(server: RemoteServer, response: httpx2.Response, body: bytes) -> Failure:
    """Return the failure for a response without a message in it."""
    status = response.status_code
    detail = body.decode("utf-8", "replace") if content_type(response) != "text/html" else ""
    if status in (FORBIDDEN, MISDIRECTED) and _HOST_REFUSED.search(detail):
        return server.failure(
            "child_unauthorized",
            f"does not accept requests for the host in `url` (HTTP {status})",
            detail=detail,
            hint="Use the host that the server names in `url` (localhost instead of 127.0.0.1, for example), "
            "or allow this one in the server's own options, such as --allowed-hosts.",
        )
    if needs_scope(response):
        return scope_failure(server, response)
    if status in (UNAUTHORIZED, FORBIDDEN):
        what = "requires authorization" if status == UNAUTHORIZED else "forbids this request"
        hint = server.login_hint if _wants_login(server, response) else ""
        return server.failure("child_unauthorized", f"{what} (HTTP {status})", detail=detail, hint=hint)
    if response.is_success:
        kind = content_type(response) or "nothing"
        return server.failure("child_http_error", f"answered with {kind} (HTTP {status})", detail=detail)
    return server.failure(
        "child_http_error",
        f"answered with HTTP {status} {response.reason_phrase}".rstrip(),
        detail=detail,
        retry_after_ms=_retry_after_ms(response),
    )


def needs_scope(response: httpx2.Response) -> bool:
    """Return True if the token is valid and good for too little: a new authorization with more scopes may do."""
    challenge = str(response.headers.get("www-authenticate", ""))
    return response.status_code == FORBIDDEN and "insufficient_scope" in challenge


def scope_failure(server: RemoteServer, response: httpx2.Response) -> Failure:
    """Return the failure of one call that needs more scopes than the login has. The others go on."""
    scope = _SCOPE.search(str(response.headers.get("www-authenticate", "")))
    what = f"requires the scope '{scope[1] or scope[2]}'" if scope else "requires more scopes"
    hint = server.login_hint if _wants_login(server, response) else ""
    return server.failure("child_scope_missing", f"{what} for this call (HTTP {FORBIDDEN})", hint=hint)


def _wants_login(server: RemoteServer, response: httpx2.Response) -> bool:
    """Return True if a login would help: the server asks for a token and none is configured."""
    challenge = str(response.headers.get("www-authenticate", "")).lower()
    return challenge.startswith("bearer") and "authorization" not in map(str.lower, server.headers)


def _retry_after_ms(response: httpx2.Response) -> int | UnsetType:
    """Return the time from `Retry-After`, if it is given in seconds."""
    value = str(response.headers.get("retry-after", ""))
    return min(int(value), MAX_RETRY_S) * 1000 if value.isdigit() and len(value) < 10 else UNSET
