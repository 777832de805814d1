"""MCP Apps (`io.modelcontextprotocol/ui`) on the wire: what a tool says about its user interface, and `ui://` URIs.

A tool names the page that shows its result in `_meta.ui.resourceUri`, and in `_meta.ui.visibility` whether a model, the
page itself or both may call it. Pages of different children may have the same URI, so behind the gateway each has
`ui://<child>/<rest>`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import decode_members

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
SCHEME = "ui://"
# The deprecated form, which hosts must still read, and ChatGPT's name for it.
FLAT_KEY = "ui/resourceUri"
URI_KEYS = (FLAT_KEY, "openai/outputTemplate")
MODEL, APP = "model", "app"
# The pages of a server as a list of digests, beside its real lists; no method of this name exists.
PAGES = "ui/pages"
# Of contents whose digest is computed. The largest published page has 0.4 MB.
MAX_PAGE_BYTES = 8 * 1024 * 1024
MAX_META_BYTES = 64 * 1024

_encode = msgspec.json.encode


class ToolUi(Struct, frozen=True):
    """What a tool says about its user interface. `uri` is empty if it has none."""

    uri: str = ""
    for_model: bool = True
    for_app: bool = True


class _Ui(Struct, rename="camel"):
    resource_uri: str = ""
    visibility: list[str] | UnsetType = msgspec.UNSET


class _Settings(Struct, rename="camel"):
    mime_types: list[str] = []


NO_UI = ToolUi()
_decode_ui = msgspec.json.Decoder(_Ui).decode
_decode_settings = msgspec.json.Decoder(_Settings).decode
_decode_text = msgspec.json.Decoder(str).decode


def declares_apps(capabilities: bytes) -> bool:
    """Return True if a host can show pages of the type that servers send."""
    if EXTENSION.encode() not in capabilities:
        return False
    try:
        settings = decode_members(decode_members(capabilities)["extensions"])[EXTENSION]
        return MIME_TYPE in _decode_settings(settings).mime_types
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def tool_ui(tool: Raw | UnsetType) -> ToolUi:
    """Return what a tool, as its server sent it, says about its user interface."""
    if isinstance(tool, UnsetType) or b'"ui' not in bytes(tool):
        return NO_UI
    try:
        meta = decode_members(decode_members(tool)["_meta"])
        nested = _decode_ui(meta["ui"]) if "ui" in meta else _Ui()
        uri = nested.resource_uri or (_decode_text(meta[FLAT_KEY]) if FLAT_KEY in meta else "")
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return NO_UI
    shown_to = nested.visibility if isinstance(nested.visibility, list) else [MODEL, APP]
    return ToolUi(uri if uri.startswith(SCHEME) else "", MODEL in shown_to, APP in shown_to)


def rename_ui(tool: Raw, rename: Callable[[str], str]) -> Raw:
    """Return a tool whose page has another URI, in both forms that hosts read."""
    members = decode_members(tool)
    meta = decode_members(members["_meta"])
    meta |= {key: _renamed(meta[key], rename) for key in URI_KEYS if key in meta}
    nested = decode_members(meta["ui"]) if "ui" in meta else {}
    if "resourceUri" in nested:
        nested["resourceUri"] = _renamed(nested["resourceUri"], rename)
        meta["ui"] = Raw(_encode(nested))
        meta[FLAT_KEY] = nested["resourceUri"]
    return Raw(_encode({**members, "_meta": meta}))


def without_page(tool: Raw) -> Raw:
    """Return a tool that names no page; who may call it stays."""
    members = decode_members(tool)
    meta = {name: raw for name, raw in decode_members(members["_meta"]).items() if name not in URI_KEYS}
    if "ui" in meta:
        nested = decode_members(meta["ui"])
        nested.pop("resourceUri", None)
        meta["ui"] = Raw(_encode(nested))
    return Raw(_encode({**members, "_meta": meta}))


def link_page(result: Raw, uri: str) -> Raw:
    """Return the result of a tool with the URI of its page, for hosts that look for it there."""
    try:
        members = decode_members(result)
        meta = decode_members(members["_meta"]) if "_meta" in members else {}
        nested = decode_members(meta["ui"]) if "ui" in meta else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return result
    if "content" not in members:  # a task, or a question
        return result
    ui = Raw(_encode({**nested, "resourceUri": uri}))
    return Raw(_encode({**members, "_meta": {**meta, "ui": ui, FLAT_KEY: uri}}))


def for_apps_only(tool: Raw, name: str) -> Raw:
    """Return a tool under the name that pages call it by, hidden from models."""
    members = decode_members(tool)
    meta = decode_members(members["_meta"]) if "_meta" in members else {}
    kept = {key: value for key, value in meta.items() if key != "ui" and key not in URI_KEYS}
    shown = {**kept, "ui": {"visibility": [APP]}}
    return Raw(_encode({**members, "name": name, "_meta": shown}))


def page_record(uri: str, result: Raw) -> Raw | None:
    """Return what is locked of a page: the digest of all that a host gets of it, and its `_meta.ui` to be read.

    None if the result of `resources/read` is not a page, or is too large for a digest.
    """
    from hashlib import sha256  # only if there is a lock, or one is made

    if len(memoryview(result)) > MAX_PAGE_BYTES:
        return None
    digest, size = sha256(), 0
    try:
        contents = msgspec.json.decode(decode_members(result)["contents"], type=list[dict[str, Raw]])
        for content in contents:
            for name in sorted(content.keys() - {"uri"}):
                value = _canonical(name, content[name])
                size += len(value)
                digest.update(b"%b:%d:" % (name.encode(), len(value)))
                digest.update(value)
            digest.update(b";")
        shown = decode_members(contents[0]["_meta"]) if "_meta" in contents[0] else {}
    except (KeyError, IndexError, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    record: dict[str, object] = {"uri": uri, "digest": f"sha256:{digest.hexdigest()}", "size": size}
    record |= {"mimeType": contents[0]["mimeType"]} if "mimeType" in contents[0] else {}
    record |= {"ui": shown["ui"]} if "ui" in shown else {}
    return Raw(_encode(record))


def _canonical(name: str, value: Raw) -> bytes:
    """Return a member of a content so that the spelling of its JSON does not matter."""
    if name in ("text", "blob"):
        return _decode_text(value).encode()
    if len(memoryview(value)) > MAX_META_BYTES:
        raise msgspec.DecodeError
    return _encode(msgspec.json.decode(value), order="sorted")


def without_domain(contents: Iterable[dict[str, Raw]]) -> list[dict[str, Raw]]:
    """Return contents of a page without the origin that its server chose: that depends on the address of a server."""
    return [_without_domain(content) for content in contents]


def _without_domain(content: dict[str, Raw]) -> dict[str, Raw]:
    if "_meta" not in content or b'"domain"' not in bytes(content["_meta"]):
        return content
    try:
        meta = decode_members(content["_meta"])
        shown = decode_members(meta["ui"])
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return content
    shown.pop("domain", None)
    return {**content, "_meta": Raw(_encode({**meta, "ui": shown}))}


def _renamed(value: Raw, rename: Callable[[str], str]) -> Raw:
    try:
        uri = _decode_text(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value
    return Raw(_encode(rename(uri))) if uri.startswith(SCHEME) else value
