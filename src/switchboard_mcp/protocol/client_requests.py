"""What servers ask of their clients, in the form of either era, and what a client must have declared to be asked.

In the handshake era a question is a request of its own; in the modern one it stands inside a result. Pure; knows no
sessions, and not who is asked.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol.message_meta import is_object, strip_protocol_keys

TASKS = "io.modelcontextprotocol/tasks"
URL_ELICITATION_REQUIRED = -32042
# What a modern result may ask for; there is nothing else that a server may ask in that era.
INPUT_REQUEST_METHODS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
# Members of questions, and of their `_meta`, that only the handshake era knows.
LEGACY_MEMBERS = ("elicitationId", "task")
PROGRESS = "progressToken"

Capability = dict[str, dict[str, object]]
Members = dict[str, Raw]

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


class ClientRequest(Struct):
    """One thing that is asked."""

    method: str
    params: Raw | UnsetType = UNSET


class _Elicitation(Struct):
    mode: str = "form"


class _UrlElicitation(Struct):
    """An entry of the error that wants URLs to be visited first."""

    url: str
    message: str = ""


class _UrlElicitations(Struct):
    elicitations: list[_UrlElicitation] = []


class _Needed(Struct, rename="camel"):
    required_capabilities: Capability = {}


decode_client_request = msgspec.json.Decoder(ClientRequest).decode
_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode
_decode_needed = msgspec.json.Decoder(_Needed).decode
_decode_urls = msgspec.json.Decoder(_UrlElicitations).decode


def missing_capability(capabilities: Raw | bytes, method: str, params: Raw | UnsetType) -> Capability | None:
    """What a client that declared these capabilities would need besides to be asked this; None where nothing."""
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
    # Whoever names no mode knows forms, as in the versions that had nothing else.
    known = mode in modes or (mode == "form" and "url" not in modes)
    return None if known else {"elicitation": {mode: {}}}


def undeclared_capabilities(capabilities: bytes, data: Raw | UnsetType) -> Capability | None:
    """What a client did not declare, of what an error says that it needs; None where it declared all of it."""
    try:
        needed = _decode_needed(data).required_capabilities if data is not UNSET else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    declared = _members(capabilities)
    missing: Capability = {}
    for name, parts in needed.items():
        known = _members(declared[name]) if name in declared else {}
        lost = {part: value for part, value in parts.items() if part not in known}
        if lost or name not in declared:
            missing[name] = lost
    return missing or None


def to_input_request(method: str, params: Raw | UnsetType) -> dict[str, object]:
    """A handshake-era question as it stands in a modern result."""
    question: dict[str, object] = {"method": method}
    if params is not UNSET and is_object(params):
        members = _decode_object(params)
        kept = {name: value for name, value in members.items() if name not in LEGACY_MEMBERS}
        if "_meta" in kept:
            meta = strip_protocol_keys(_members(kept.pop("_meta")))
            meta.pop(PROGRESS, None)
            if meta:
                kept["_meta"] = Raw(_encode(meta))
        question["params"] = kept
    return question


def to_legacy_params(question: ClientRequest, id: str) -> bytes:
    """The params of a modern question as a handshake-era client wants them; `id` marks it where that era needs it."""
    members = {} if question.params is UNSET else _decode_object(question.params)
    if question.method == "elicitation/create" and _mode(question.params) == "url":
        members["elicitationId"] = Raw(_encode(id))
    return _encode(members)


def url_input_requests(data: Raw | UnsetType) -> dict[str, dict[str, object]]:
    """The questions to ask a modern client, of a handshake-era error that wants URLs to be visited first."""
    try:
        found = _decode_urls(data).elicitations if data is not UNSET else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = []
    return {
        f"url{number}": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": entry.message, "url": entry.url},
        }
        for number, entry in enumerate(found, 1)
    }


def replace_progress_token(params: bytes, token: bytes) -> tuple[bytes, Raw | None]:
    """A question's params with our own progress token in place of the asker's, and the asker's where it has one."""
    if b'"progressToken"' not in params:
        return params, None
    members = _members(params)
    meta = _members(members.get("_meta", Raw(b"{}")))
    theirs = meta.get(PROGRESS)
    if theirs is None:
        return params, None
    return _encode({**members, "_meta": {**meta, PROGRESS: Raw(token)}}), theirs


@lru_cache(maxsize=64)
def capabilities_for_stateless(capabilities: bytes, *, stateless_host: bool, direct: bool) -> bytes:
    """What a modern child is told that its client can do, for a host that declared these capabilities.

    `native` where the host is modern too. Extensions of a handshake-era host are not ours to drive; a task begun
    inside a suite could not be found again.
    """
    if stateless_host and (direct or TASKS.encode() not in capabilities):
        return capabilities
    members = _members(capabilities)
    if stateless_host:
        extensions = _members(members.get("extensions", Raw(b"{}")))
        extensions.pop(TASKS, None)
        return _encode({**members, "extensions": extensions})
    for name in ("tasks", "extensions"):
        members.pop(name, None)
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
        return _decode_object(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
