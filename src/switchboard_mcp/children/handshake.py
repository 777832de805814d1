"""Getting to know a child that has just started, in the era it speaks, and all pages of its `tools/list`.

`initialize` comes first: servers of the handshake era and those of both eras take it. One that refuses it as unknown is
asked with `server/discover`.
"""

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
CLIENT = {"name": "switchboard", "version": __version__}


class Introduction(Struct, rename="camel"):
    """The part of an `initialize` result that we look at."""

    protocol_version: str
    capabilities: dict[str, Raw] = {}
    server_info: Raw | UnsetType = UNSET
    instructions: str | None = None


class Discovery(Struct, rename="camel"):
    """The part of a `server/discover` result that we look at."""

    supported_versions: list[str]
    capabilities: dict[str, Raw] = {}
    instructions: str | None = None
    meta: dict[str, Raw] = msgspec.field(name="_meta", default_factory=dict)

    def introduction(self) -> Introduction:
        return Introduction(
            protocol_version=eras.shared_modern(self.supported_versions),
            capabilities=self.capabilities,
            server_info=self.meta.get(eras.PREFIX + "serverInfo", UNSET),
            instructions=self.instructions,
        )


class ToolPage(Struct, rename="camel"):
    """One page of `tools/list`."""

    tools: list[Raw] = []
    next_cursor: str | None = None


_decode_introduction = msgspec.json.Decoder(Introduction).decode
_decode_discovery = msgspec.json.Decoder(Discovery).decode
_decode_page = msgspec.json.Decoder(ToolPage).decode
_decode_server = msgspec.json.Decoder(Server).decode


async def shake_hands(peer: Peer, child: str, limit_s: float) -> Knowledge | Failure | None:
    """Introduce ourselves and learn what the child offers; None when all of it took longer than the limit."""
    now = get_running_loop().time
    deadline = now() + limit_s
    answer = await peer.inquire("initialize", _hello(), limit_s)
    if not isinstance(answer, Message):
        return answer
    introduction = _read_introduction(answer, child)
    if not isinstance(introduction, Failure):
        peer.notify("notifications/initialized")
    elif _error(answer).code in eras.NO_HANDSHAKE:
        discovered = await _discover(peer, deadline - now())
        if discovered is None:
            return None
        introduction = discovered if isinstance(discovered, Introduction) else introduction
    if isinstance(introduction, Failure):
        return introduction
    tools = await list_tools(peer, child, deadline - now(), introduction.protocol_version)
    if not isinstance(tools, list):
        return tools
    return Knowledge(
        server=_read_server(introduction.server_info),
        protocol=introduction.protocol_version,
        instructions=introduction.instructions or "",
        logging="logging" in introduction.capabilities,
        tools=tools,
    )


async def _discover(peer: Peer, limit_s: float) -> Introduction | Failure | Message | None:
    """What a child without a handshake tells of itself; anything else where it is none we can speak to."""
    answer = await peer.inquire("server/discover", own_params(eras.LATEST_MODERN), limit_s)
    if not isinstance(answer, Message) or answer.result is UNSET:
        return answer
    try:
        introduction = _decode_discovery(answer.result).introduction()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer
    return introduction if introduction.protocol_version else answer


async def list_tools(
    peer: Peer, child: str, limit_s: float, version: str = ""
) -> list[Tool] | Failure | None:
    """All pages of `tools/list` within the limit, each tool once; a child without tools has none."""
    deadline = get_running_loop().time() + limit_s
    raw_tools: list[Raw] = []
    params = own_params(version)
    cursors = {""}  # none at all, or one seen before, ends the list
    while len(cursors) < MAX_PAGES:
        answer = await peer.inquire("tools/list", params, deadline - get_running_loop().time())
        if not isinstance(answer, Message):
            return answer
        if answer.result is UNSET:
            error = _error(answer)
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
        params = own_params(version, cursor=page.next_cursor)
    return list({tool.name: tool for tool in read_tools(raw_tools)}.values())


def own_params(version: str, **members: object) -> bytes:
    """Params of a request of our own, in the era of that version."""
    if eras.is_modern(version):
        members["_meta"] = eras.envelope(version, CLIENT, {})
    return jsonrpc.encode(members)


def _hello() -> bytes:
    return jsonrpc.encode({"protocolVersion": eras.offer_child(), "capabilities": {}, "clientInfo": CLIENT})


def _error(answer: Message) -> jsonrpc.RpcError:
    return jsonrpc.parse_error(answer.error) if answer.error is not UNSET else jsonrpc.RpcError()


def _read_introduction(answer: Message, child: str) -> Introduction | Failure:
    if answer.result is UNSET:
        return _protocol_failure(child, f"refused initialize: {_error(answer).message}")
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
