"""Servers over Streamable HTTP that tests begin with: the greeting, and a link that is through it."""

from __future__ import annotations

import asyncio
import json

from tests.unit.transport.http.remotes import Rig
from tests.unit.transport.http.webserver import Handler, Json, Reply, Request

VERSION = "2025-11-25"


ENVELOPE = json.dumps({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}).encode()


def result(id: int = 1, value: object = "x") -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def decoded(rig: Rig) -> list[Json]:
    return [json.loads(message) for message in rig.received]


async def greet(request: Request, reply: Reply) -> bool:
    """Answer the handshake, streams, notifications and the end. Return True if the request was one of these."""
    if request.call == "initialize":
        await reply.result(request, {"protocolVersion": VERSION}, mcp_session_id="s1")
    elif request.method == "GET" and "last-event-id" not in request.headers:
        await reply.send(405)
    elif request.method == "DELETE":
        await reply.send(200)
    elif request.call.startswith("notifications/") or request.call == "response":
        await reply.send(202)
    else:
        return False
    return True


def after_greeting(handler: Handler) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        if not await greet(request, reply):
            await handler(request, reply)

    return handle


async def opened(rig: Rig) -> None:
    """Through the handshake."""
    rig.ask("initialize", 0)
    await rig.until_received(1)
    rig.tell("notifications/initialized")
    rig.received.clear()


async def never(request: Request, reply: Reply) -> None:
    await asyncio.Event().wait()
