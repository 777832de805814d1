"""Requests from servers to their clients (sampling, elicitation, roots), in the form of either protocol family.

In the legacy family such a request is a JSON-RPC request of its own; in the stateless family it is embedded in an
`input_required` result. This module converts between both forms and checks the capabilities a client must have
declared. Pure; not aware of sessions or of who is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol import apps
from switchboard_mcp.protocol.jsonrpc import RpcError, decode_members
from switchboard_mcp.protocol.message_meta import is_object, strip_protocol_keys
from switchboard_mcp.protocol.versions import MISSING_CAPABILITY

TASKS = "io.modelcontextprotocol/tasks"
URL_ELICITATION_REQUIRED = -32042
# The requests that a stateless result may embed; that family has no others.
INPUT_REQUEST_METHODS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
# Members of requests that exist only in the legacy family.
LEGACY_MEMBERS = ("elicitationId", "task")
PROGRESS = "progressToken"

Capability = dict[str, dict[str, object]]
Members = dict[str, Raw]

_encode = msgspec.json.encode


class ClientRequest(Struct):
    """A request to a client."""

    method: str
    params: Raw | UnsetType = UNSET


class _Elicitation(Struct):
    mode: str = "form"


class _UrlElicitation(Struct):
    """An entry of the error that requires URLs to be visited first."""

    url: str
    message: str = ""


class _UrlElicitations(Struct):
    elicitations: list[_UrlElicitation] = []


class _RequiredCapabilities(Struct, rename="camel"):
    required_capabilities: Capability = {}


decode_client_request = msgspec.json.Decoder(ClientRequest).decode
_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode
_decode_required = msgspec.json.Decoder(_RequiredCapabilities).decode
_decode_urls = msgspec.json.Decoder(_UrlElicitations).decode


def has_roots(capabilities: bytes) -> bool:
    """Return True if a host with these capabilities has roots."""
    return missing_capability(capabilities, "roots/list", UNSET) is None


def missing_capability(capabilities: Raw | bytes, method: str, params: Raw | UnsetType) -> Capability | None:
    """Return the capability that a client lacks to receive this request, or None if it has it."""
    declared = _members(capabilities)
    if method == "sampling/createMessage":
        return None if "sampling" in declared else {"sampling": {}}
    if method == "roots/list":
        return None if "roots" in declared else {"roots": {}}
    if method != "elicitation/create":
        return None
    mode = _mode(params)
    if "elicitation" not in declared:
        return {"elicitation": {mode: {}}}
    modes = _members(declared["elicitation"])
    # A client that names no mode supports forms, the only mode of older versions.
    is_supported = mode in modes or (mode == "form" and "url" not in modes)
    return None if is_supported else {"elicitation": {mode: {}}}


def undeclared_capabilities(capabilities: bytes, data: Raw | UnsetType) -> Capability | None:
    """Return the capabilities that an error requires and the client did not declare, or None."""
    try:
        required = _decode_required(data).required_capabilities if data is not UNSET else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    declared = _members(capabilities)
    missing: Capability = {}
    for name, parts in required.items():
        members = _members(declared[name]) if name in declared else {}
        missing_parts = {part: value for part, value in parts.items() if part not in members}
        if missing_parts or name not in declared:
            missing[name] = missing_parts
    return missing or None


def requires_tasks(error: RpcError) -> bool:
    """Return True if an error requires nothing but the extension for tasks of a client."""
    if error.code != MISSING_CAPABILITY or error.data is UNSET:
        return False
    required = _members(_members(error.data).get("requiredCapabilities", Raw(b"{}")))
    return list(required) == ["extensions"] and list(_members(required["extensions"])) == [TASKS]


def declares_tasks(capabilities: bytes) -> bool:
    """Return True if a stateless host has declared the extension for tasks."""
    return TASKS.encode() in capabilities and TASKS in _members(
        _members(capabilities).get("extensions", Raw(b"{}"))
    )


def offers_tasks(capabilities: Mapping[str, Raw], *, stateless: bool) -> bool:
    """Return True if a server with these capabilities has tasks."""
    if stateless:
        return TASKS in _members(capabilities.get("extensions", Raw(b"{}")))
    return "tasks" in capabilities


def to_input_request(method: str, params: Raw | UnsetType) -> dict[str, object]:
    """Convert a legacy request to the form it has in an `input_required` result."""
    request: dict[str, object] = {"method": method}
    if params is not UNSET and is_object(params):
        members = decode_members(params)
        kept = {name: value for name, value in members.items() if name not in LEGACY_MEMBERS}
        if "_meta" in kept:
            meta = strip_protocol_keys(_members(kept.pop("_meta")))
            meta.pop(PROGRESS, None)
            if meta:
                kept["_meta"] = Raw(_encode(meta))
        request["params"] = kept
    return request


def are_input_responses(responses: Raw) -> bool:
    """Return True for null, and for an object whose members are objects, or null for those that are missing."""
    try:
        return bytes(responses) == b"null" or all(
            is_object(response) or bytes(response) == b"null"
            for response in decode_members(responses).values()
        )
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def to_legacy_params(request: ClientRequest, id: str) -> bytes:
    """Convert an embedded request to legacy params. `id` becomes the elicitation id if the legacy family needs one."""
    members = {} if request.params is UNSET else decode_members(request.params)
    if request.method == "elicitation/create" and _mode(request.params) == "url":
        members["elicitationId"] = Raw(_encode(id))
    return _encode(members)


def url_input_requests(data: Raw | UnsetType) -> dict[str, dict[str, object]]:
    """Return the input requests for a legacy error that requires URLs to be visited first."""
    try:
        entries = _decode_urls(data).elicitations if data is not UNSET else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        entries = []
    return {
        f"url{number}": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": entry.message, "url": entry.url},
        }
        for number, entry in enumerate(entries, 1)
    }


def replace_progress_token(params: bytes, token: bytes) -> tuple[bytes, Raw | None]:
    """Return params with our progress token in place of the sender's, and the sender's token or None."""
    if b'"progressToken"' not in params:
        return params, None
    members = _members(params)
    meta = _members(members.get("_meta", Raw(b"{}")))
    theirs = meta.get(PROGRESS)
    if theirs is None:
        return params, None
    return _encode({**members, "_meta": {**meta, PROGRESS: Raw(token)}}), theirs


@lru_cache(maxsize=64)
def capabilities_for_stateless(capabilities: bytes, *, stateless_host: bool, tasks: bool) -> bytes:
    """Return the capabilities to declare to a stateless child on behalf of a host.

    `stateless_host` if the host is stateless too; `tasks` if the request may be answered with a task. Of the extensions
    of a legacy host only apps can be used on its behalf; its tasks are awaited for it.
    """
    if stateless_host and (tasks or TASKS.encode() not in capabilities):
        return capabilities
    members = _members(capabilities)
    if stateless_host:
        extensions = _members(members.get("extensions", Raw(b"{}")))
        extensions.pop(TASKS, None)
        return _encode({**members, "extensions": extensions})
    members.pop("tasks", None)
    extensions = _members(members.pop("extensions", Raw(b"{}")))
    used = {apps.EXTENSION: extensions[apps.EXTENSION]} if apps.EXTENSION in extensions else {}
    if tasks:
        used[TASKS] = Raw(b"{}")
    if used:
        members["extensions"] = Raw(_encode(used))
    if "roots" in members:
        members["roots"] = Raw(b"{}")
    return _encode(members)


def _mode(params: Raw | UnsetType) -> str:
    try:
        return _decode_elicitation(params).mode if params is not UNSET else "form"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "form"


def _members(raw: Raw | bytes) -> Members:
    try:
        return decode_members(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
