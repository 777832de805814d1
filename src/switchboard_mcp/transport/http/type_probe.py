"""Finds out which transport a remote server speaks, after a start over another one has failed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed
from switchboard_mcp.protocol.sse import EventStream, ServerSentEvent
from switchboard_mcp.transport.http.client import HttpClient, body_chunks, content_type, read_body
from switchboard_mcp.transport.http.http_errors import MAX_ERROR_BYTES
from switchboard_mcp.transport.http.remote_base import RemoteServer

# A server that can be reached answers either request at once.
PROBE_S = 5.0
SESSION = "mcp-session-id"
EVENTS, JSON = "text/event-stream", "application/json"


async def find_other_type(server: RemoteServer, tried: str, hello: bytes) -> str:
    """Return the `type` that the server speaks instead of the one tried, `http` or `sse`; empty if neither.

    `hello` is the `initialize` request to try Streamable HTTP with.
    """
    client = HttpClient(server)
    try:
        async with asyncio.timeout(PROBE_S):
            if tried == "http":
                return "sse" if await _speaks_sse(client, server.url) else ""
            return "http" if await _speaks_streamable_http(client, server.url, hello) else ""
    except (SwitchboardError, TimeoutError):
        return ""
    finally:
        await client.aclose()


async def _speaks_sse(client: HttpClient, url: str) -> bool:
    """Return True if a stream opens whose first event names the endpoint."""
    events = EventStream(MAX_ERROR_BYTES)
    async with client.stream("GET", url, {"accept": EVENTS}) as response:
        if not response.is_success or content_type(response) != EVENTS:
            return False
        async with aclosing(body_chunks(response)) as chunks:
            async for chunk in chunks:
                for event in events.feed(chunk):
                    return isinstance(event, ServerSentEvent) and event.name == "endpoint"
    return False


async def _speaks_streamable_http(client: HttpClient, url: str, hello: bytes) -> bool:
    """Return True if `initialize` is answered. The session is ended again."""
    headers = {"content-type": JSON, "accept": f"{JSON}, {EVENTS}"}
    async with client.stream("POST", url, headers, hello) as response:
        is_supported = response.is_success and content_type(response) == EVENTS
        if response.is_success and content_type(response) == JSON:
            body = await read_body(response, MAX_ERROR_BYTES)
            is_supported = isinstance(body, Oversized) or not isinstance(jsonrpc.parse(body), Malformed)
        session = str(response.headers.get(SESSION, ""))
    if is_supported and session:
        async with client.stream("DELETE", url, {SESSION: session}):
            pass
    return is_supported
