"""The handshake with a child that has just started, and paginated list fetching.

Legacy protocol versions: `initialize`, `notifications/initialized`. Stateless ones: `server/discover`. Then all pages
of `tools/list`. The protocol family of the host is tried first, since nothing need be translated then; if the child
does not know it, the other. A child that refuses `initialize` and names the versions it supports is asked again with
the newest that both sides support.
"""

from __future__ import annotations

from asyncio import get_running_loop

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.children.catalog import ServerIdentity, ServerSnapshot
from switchboard_mcp.errors import FIX_SERVER, METHOD_NOT_FOUND, Failure, failure, is_network_failure
from switchboard_mcp.protocol import jsonrpc, message_meta, versions
from switchboard_mcp.protocol.jsonrpc import RpcMessage, decode_members
from switchboard_mcp.transport.rpc import Peer

# A list with more pages has a cursor that never ends.
MAX_PAGES = 1000
# Of a list; the rest is ignored. The largest published server has a few hundred tools, and each entry costs time
# whenever the list is used.
MAX_ENTRIES = 10_000
# Of a server's title and icons, which every list of tools would repeat.
MAX_TITLE, MAX_ICONS = 200, 4_096
# A legacy child may ignore `server/discover`. The SDKs' clients wait this long too.
PROBE_S = 10.0
NOTHING = Raw(b"[]")
MEMBERS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "skills/list": "skills",
}


class ServerIntroduction(Struct, rename="camel"):
    """The members of an `initialize` or `server/discover` result that we use."""

    protocol_version: str = ""
    supported_versions: list[str] = []
    capabilities: dict[str, Raw] = {}
    server_info: Raw | UnsetType = UNSET
    instructions: str | None = None
    meta: dict[str, Raw] = msgspec.field(name="_meta", default={})


class Listed(Struct):
    """All entries of one list, and the other members of its result."""

    entries: list[Raw] = []
    extra: dict[str, Raw] = {}


class UnsupportedVersion(Struct):
    """A child refused the protocol version that was tried.

    `version` is the legacy version to request instead. Without one the stateless family is tried; `certain` if the
    child named the versions it supports.
    """

    problem: Failure
    certain: bool = False
    version: str = ""


class Supported(Struct):
    """The data of an unsupported-version error."""

    supported: list[str] = []


Introduction = ServerIntroduction | UnsupportedVersion | Failure | None

_decode_supported = msgspec.json.Decoder(Supported).decode
_decode_introduction = msgspec.json.Decoder(ServerIntroduction).decode
_decode_entries = msgspec.json.Decoder(list[Raw]).decode
_decode_cursor = msgspec.json.Decoder(str | None).decode
_decode_server = msgspec.json.Decoder(ServerIdentity).decode


async def shake_hands(
    peer: Peer,
    child: str,
    limit_s: float,
    capabilities: bytes = b"{}",
    *,
    stateless_first: bool = False,
    version: str = versions.LATEST_LEGACY,
) -> ServerSnapshot | Failure | UnsupportedVersion | None:
    """Perform the handshake and fetch the tools. Return None if it took longer than the limit.

    `version` is the one to request with `initialize`. Returns `UnsupportedVersion` if the child refuses `initialize`
    and everything after it: it needs a new connection.
    """
    now = get_running_loop().time
    introduction: Introduction = None
    if stateless_first:
        introduction = await _discover(peer, child, min(limit_s, PROBE_S), capabilities)
    deadline = now() + limit_s  # a child that ignored `server/discover` still gets the full time
    if not isinstance(introduction, ServerIntroduction):
        introduction = await _initialize(peer, child, deadline - now(), capabilities, version)
        if isinstance(introduction, UnsupportedVersion) and introduction.version:
            refusal, version = introduction, introduction.version
            introduction = await _initialize(peer, child, deadline - now(), capabilities, version)
            if isinstance(introduction, UnsupportedVersion):
                return introduction.problem
            if isinstance(introduction, Failure) and introduction.code == "child_start_failed":
                return refusal  # it exited with its refusal
        elif isinstance(introduction, UnsupportedVersion):
            is_final = introduction.certain and not stateless_first
            refused = introduction if is_final else introduction.problem
            introduction = await _discover_instead(peer, child, deadline - now(), capabilities, refused)
    if not isinstance(introduction, ServerIntroduction):
        return introduction
    stateless = versions.is_stateless(introduction.protocol_version)
    tools = await fetch_list(peer, child, "tools/list", deadline - now(), capabilities, stateless=stateless)
    if not isinstance(tools, Listed):
        return tools
    return ServerSnapshot(
        server=_read_server(introduction),
        protocol=introduction.protocol_version,
        requested="" if stateless or version == versions.LATEST_LEGACY else version,
        about=_read_about(introduction),
        title=_read_title(introduction),
        icons=_read_icons(introduction),
        instructions=introduction.instructions or "",
        capabilities=introduction.capabilities,
        tools=tools.entries,
        extras={"tools/list": tools.extra},
    )


async def _discover_instead(
    peer: Peer, child: str, limit_s: float, capabilities: bytes, refused: UnsupportedVersion | Failure
) -> Introduction:
    """Try `server/discover` after the child has refused `initialize`. Return that refusal if it fails too.

    It is repeated even if it was tried first: a slow child may be ready for it only now.
    """
    introduction = await _discover(peer, child, limit_s, capabilities)
    if introduction is None or isinstance(introduction, ServerIntroduction):
        return introduction
    if introduction.code == "child_unauthorized":
        return introduction  # `initialize` is unknown there, and the rest needs a login
    return refused


async def fetch_list(
    peer: Peer,
    child: str,
    method: str,
    limit_s: float,
    capabilities: bytes = b"{}",
    *,
    stateless: bool = False,
) -> Listed | Failure | None:
    """Fetch all pages of a list within the limit. A child that does not know the method has none."""
    deadline = get_running_loop().time() + limit_s
    listed = Listed()
    params = _params(stateless, capabilities)
    cursors = {""}  # an empty or repeated cursor ends the list
    while len(cursors) < MAX_PAGES:
        answer = await peer.request(method, params, deadline - get_running_loop().time())
        if not isinstance(answer, RpcMessage):
            return answer
        failed = jsonrpc.get_error(answer)
        if failed is not None:
            error = jsonrpc.parse_error(failed)
            if error.code == METHOD_NOT_FOUND:
                break
            return _server_failure(child, f"answered {method} with an error: {error.message}", error)
        try:
            page = decode_members(answer.result)  # type: ignore[arg-type]  # present, since there is no error
            listed.entries += _decode_entries(page.pop(MEMBERS[method], NOTHING))[
                : MAX_ENTRIES - len(listed.entries)
            ]
            cursor = _decode_cursor(page.pop("nextCursor", Raw(b"null")))
            listed.extra.update(
                (name, raw) for name, raw in page.items() if name not in message_meta.STATELESS_MEMBERS
            )
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            return _protocol_failure(child, f"sent a {method} that cannot be decoded: {problem}")
        if cursor is None or cursor in cursors or len(listed.entries) == MAX_ENTRIES:
            break
        cursors.add(cursor)
        params = _params(stateless, capabilities, cursor)
    return listed


async def read_page(
    peer: Peer, uri: str, limit_s: float, capabilities: bytes = b"{}", *, stateless: bool = False
) -> Raw | None:
    """Return the result of reading a page of an app, or None if the child does not answer with one."""
    members = decode_members(Raw(_params(stateless, capabilities)))
    params = jsonrpc.encode({**members, "uri": uri})
    answer = await peer.request("resources/read", params, limit_s)
    if not isinstance(answer, RpcMessage) or not isinstance(answer.result, Raw):
        return None
    return answer.result


def initialize_params(capabilities: bytes, version: str = versions.LATEST_LEGACY) -> bytes:
    """Return the params of `initialize`."""
    hello = {
        "protocolVersion": version,
        "capabilities": Raw(capabilities),
        "clientInfo": {"name": "switchboard", "version": __version__},
    }
    return jsonrpc.encode(hello)


async def _initialize(
    peer: Peer, child: str, limit_s: float, capabilities: bytes, version: str
) -> ServerIntroduction | UnsupportedVersion | Failure | None:
    params = initialize_params(capabilities, version)
    answer = await peer.request("initialize", params, limit_s, cancellable=False)
    if not isinstance(answer, RpcMessage):
        return answer
    introduction = _read(answer, child, "initialize")
    if isinstance(introduction, Failure):
        return _read_refusal(_error(answer), child, version, introduction)
    if not versions.is_legacy(introduction.protocol_version):
        return _unknown_version(child, introduction.protocol_version)
    peer.notify("notifications/initialized")
    return introduction


def _read_refusal(
    error: jsonrpc.RpcError, child: str, version: str, problem: Failure
) -> UnsupportedVersion | Failure:
    """Decide what to try after `initialize` was refused; `problem` if nothing else is left."""
    supported = _supported_versions(error)
    if versions.negotiate_stateless(supported):
        return UnsupportedVersion(problem, certain=True)
    if supported:
        common = versions.newest_legacy(supported)
        if not common:
            return _unknown_version(child, ", ".join(supported))
        return problem if common == version else UnsupportedVersion(problem, version=common)
    if error.code in versions.NO_INITIALIZE_CODES:
        return UnsupportedVersion(problem, certain=error.code == versions.UNSUPPORTED_VERSION)
    return problem


async def _discover(
    peer: Peer, child: str, limit_s: float, capabilities: bytes
) -> ServerIntroduction | Failure | None:
    deadline = get_running_loop().time() + limit_s
    params = _params(True, capabilities)
    answer = await peer.request("server/discover", params, limit_s, cancellable=False)
    if isinstance(answer, RpcMessage) and _names_ours(_error(answer)):
        left_s = deadline - get_running_loop().time()
        answer = await peer.request("server/discover", params, left_s, cancellable=False)
    if not isinstance(answer, RpcMessage):
        return answer
    introduction = _read(answer, child, "server/discover")
    if isinstance(introduction, Failure):
        return introduction
    introduction.protocol_version = versions.negotiate_stateless(introduction.supported_versions)
    if not introduction.protocol_version:
        return _unknown_version(child, ", ".join(introduction.supported_versions))
    return introduction


def _names_ours(error: jsonrpc.RpcError) -> bool:
    """Return True if a child refuses our version but lists it as supported: then the request is repeated."""
    if error.code != versions.UNSUPPORTED_VERSION:
        return False
    return bool(versions.negotiate_stateless(_supported_versions(error)))


def _supported_versions(error: jsonrpc.RpcError) -> list[str]:
    """Return the versions that an error names as supported."""
    try:
        return _decode_supported(error.data).supported if error.data is not UNSET else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _params(stateless: bool, capabilities: bytes, cursor: str | None = None) -> bytes:
    """Return the params of one of our own requests."""
    members: dict[str, object] = {} if cursor is None else {"cursor": cursor}
    meta = message_meta.child_meta(UNSET, b"", stateless=stateless, capabilities=capabilities)
    if meta is not None:
        members["_meta"] = Raw(meta)
    return jsonrpc.encode(members)


def _read(answer: RpcMessage, child: str, method: str) -> ServerIntroduction | Failure:
    error = jsonrpc.get_error(answer)
    if error is not None:
        refusal = jsonrpc.parse_error(error)
        return _server_failure(child, f"refused {method}: {refusal.message}", refusal)
    try:
        return _decode_introduction(answer.result)  # type: ignore[arg-type]  # as above
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return _protocol_failure(child, f"sent a result of {method} that cannot be decoded: {problem}")


def _error(answer: RpcMessage) -> jsonrpc.RpcError:
    return jsonrpc.parse_error(answer.error) if answer.error is not UNSET else jsonrpc.RpcError()


def _unknown_version(child: str, version: str) -> Failure:
    ours = ", ".join((*versions.LEGACY_VERSIONS, *versions.STATELESS_VERSIONS))
    return _protocol_failure(child, f"speaks protocol version '{version}'; Switchboard speaks {ours}")


def _server_info(introduction: ServerIntroduction) -> Raw | None:
    if introduction.server_info is not UNSET:
        return introduction.server_info
    return introduction.meta.get(message_meta.SERVER)


def _read_about(introduction: ServerIntroduction) -> str:
    """Return the description of the server, else a sentence with its title, or an empty string."""
    members = _server_members(introduction)
    title = message_meta.decode_text(members.get("title"))
    return message_meta.decode_text(members.get("description")) or (f"Tools of {title}." if title else "")


def _server_members(introduction: ServerIntroduction) -> dict[str, Raw]:
    raw = _server_info(introduction)
    try:
        return decode_members(raw) if raw is not None else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _read_title(introduction: ServerIntroduction) -> str:
    return (message_meta.decode_text(_server_members(introduction).get("title")) or "")[:MAX_TITLE]


def _read_icons(introduction: ServerIntroduction) -> Raw | UnsetType:
    """Return the icons of the server, unless they are too large for a list of tools."""
    icons = _server_members(introduction).get("icons")
    small = icons is not None and len(bytes(icons)) <= MAX_ICONS and bytes(icons)[:1] == b"["
    return icons if icons is not None and small else UNSET


def _read_server(introduction: ServerIntroduction) -> ServerIdentity:
    raw = _server_info(introduction)
    try:
        return _decode_server(raw) if raw is not None else ServerIdentity()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ServerIdentity()


def _protocol_failure(child: str, what: str, hint: str = "") -> Failure:
    return failure("child_protocol", f"Child '{child}' {what.removesuffix('.')}.", child=child, hint=hint)


def _server_failure(child: str, what: str, error: jsonrpc.RpcError) -> Failure:
    """Return the failure for an error that the server reports itself: by it, it is an MCP server."""
    if is_network_failure(error.message):
        return failure("child_network_error", f"Child '{child}' {what.removesuffix('.')}.", child=child)
    return _protocol_failure(child, what, "" if error.code in versions.NO_INITIALIZE_CODES else FIX_SERVER)
