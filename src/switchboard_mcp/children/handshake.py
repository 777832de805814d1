"""Getting to know a child that has just started: `initialize`, `initialized`, all pages of `tools/list`."""

from __future__ import annotations

from asyncio import get_running_loop

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.children.catalog import Knowledge, Server, Tool, read_tools
from switchboard_mcp.core import eras, jsonrpc
from switchboard_mcp.core.jsonrpc import Message
from switchboard_mcp.errors import METHOD_NOT_FOUND, Failure, failure
from switchboard_mcp.transport.peer import Peer

# A list this long is a fault (a cursor that never ends), not a catalog.
MAX_PAGES = 1000


class Introduction(Struct, rename="camel"):
    """The part of an `initialize` result that we look at."""

    protocol_version: str
    capabilities: dict[str, Raw] = {}
    server_info: Raw | UnsetType = UNSET
    instructions: str | None = None


class ToolPage(Struct, rename="camel"):
    """One page of `tools/list`."""

    tools: list[Raw] = []
    next_cursor: str | None = None


_decode_introduction = msgspec.json.Decoder(Introduction).decode
_decode_page = msgspec.json.Decoder(ToolPage).decode
_decode_server = msgspec.json.Decoder(Server).decode


async def shake_hands(peer: Peer, child: str, limit_s: float) -> Knowledge | Failure | None:
    """Introduce ourselves and learn what the child offers; None when all of it took longer than the limit."""
    deadline = get_running_loop().time() + limit_s
    answer = await peer.inquire("initialize", _hello(), limit_s)
    if not isinstance(answer, Message):
        return answer
    introduction = _read_introduction(answer, child)
    if isinstance(introduction, Failure):
        return introduction
    peer.notify("notifications/initialized")
    tools = await list_tools(peer, child, deadline - get_running_loop().time())
    if not isinstance(tools, list):
        return tools
    return Knowledge(
        server=_read_server(introduction.server_info),
        protocol=introduction.protocol_version,
        instructions=introduction.instructions or "",
        logging="logging" in introduction.capabilities,
        tools=tools,
    )


async def list_tools(peer: Peer, child: str, limit_s: float) -> list[Tool] | Failure | None:
    """All pages of `tools/list` within the limit, each tool once; a child without tools has none."""
    deadline = get_running_loop().time() + limit_s
    raw_tools: list[Raw] = []
    params = b"{}"
    cursors = {""}  # none at all, or one seen before, ends the list
    while len(cursors) < MAX_PAGES:
        answer = await peer.inquire("tools/list", params, deadline - get_running_loop().time())
        if not isinstance(answer, Message):
            return answer
        if answer.result is UNSET:
            error = jsonrpc.parse_error(answer.error) if answer.error is not UNSET else jsonrpc.RpcError()
            if error.code == METHOD_NOT_FOUND:
                break
            return _protocol_failure(child, f"answered tools/list with an error: {error.message}")
        try:
            page = _decode_page(answer.result)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            return _protocol_failure(child, f"sent a tools/list that cannot be read: {problem}")
        raw_tools += page.tools
        if page.next_cursor is None or page.next_cursor in cursors:
            break
        cursors.add(page.next_cursor)
        params = b'{"cursor":%b}' % jsonrpc.encode(page.next_cursor)
    return list({tool.name: tool for tool in read_tools(raw_tools)}.values())


def _hello() -> bytes:
    return jsonrpc.encode(
        {
            "protocolVersion": eras.offer_child(),
            "capabilities": {},
            "clientInfo": {"name": "switchboard", "version": __version__},
        }
    )


def _read_introduction(answer: Message, child: str) -> Introduction | Failure:
    if answer.result is UNSET:
        error = jsonrpc.parse_error(answer.error) if answer.error is not UNSET else jsonrpc.RpcError()
        return _protocol_failure(child, f"refused initialize: {error.message}")
    try:
        introduction = _decode_introduction(answer.result)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return _protocol_failure(child, f"sent an initialize result that cannot be read: {problem}")
    if not eras.accepts(introduction.protocol_version):
        ours = ", ".join(eras.HANDSHAKE_VERSIONS)
        return _protocol_failure(
            child, f"speaks protocol version '{introduction.protocol_version}'; Switchboard speaks {ours}"
        )
    return introduction


def _read_server(raw: Raw | UnsetType) -> Server:
    try:
        return _decode_server(raw) if raw is not UNSET else Server()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Server()


def _protocol_failure(child: str, what: str) -> Failure:
    return failure("child_protocol", f"Child '{child}' {what}.", child=child)
