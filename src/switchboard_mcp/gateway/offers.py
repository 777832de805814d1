"""Prompts and resources of children, under names that tell them apart.

A child shown as a suite has its prompts as `<child>__<prompt>` and its resources under `switchboard://<child>/…`; one
shown directly keeps its own names. Lists come from what is known of a child: to list is no reason to start one, except
for a child shown directly that has never been seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.core import jsonrpc
from switchboard_mcp.gateway.suites import Found, Suite

SCHEME = "switchboard://"
JOINT = "__"

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Kind(Struct, frozen=True):
    """One list: its method, the member it is in, what names an entry."""

    method: str
    member: str
    key: str


KINDS = {
    "prompts/list": Kind("prompts/list", "prompts", "name"),
    "resources/list": Kind("resources/list", "resources", "uri"),
    "resources/templates/list": Kind("resources/templates/list", "resourceTemplates", "uriTemplate"),
}


def shown(suite: Suite, kind: Kind, name: str) -> str:
    """What the host calls it."""
    if suite.direct:
        return name
    if kind.key == "name":
        return f"{suite.child.name}{JOINT}{name}"
    return f"{SCHEME}{quoted(suite.child.name)}/{name}"


def quoted(name: str) -> str:
    """A child's name as it stands in a URI."""
    from urllib.parse import quote

    return quote(name, safe="")


def listed(suites: Iterable[Suite], kind: Kind) -> bytes:
    """The result of a list request: what is known of all children, policy respected."""
    entries: list[dict[str, Raw]] = []
    for suite in suites:
        for raw in suite.child.offer.listed(kind.method):
            entry = _decode_object(raw)
            name = _decode_text(entry[kind.key]) if kind.key in entry else ""
            if suite.access.permits(name):
                entries.append({**entry, kind.key: Raw(jsonrpc.encode(shown(suite, kind, name)))})
    return jsonrpc.encode({kind.member: entries})


def find_prompt(suites: Iterable[Suite], name: str) -> Found | None:
    """The child whose prompt the host means."""
    candidates = list(suites)
    for suite in candidates:
        start = suite.child.name + JOINT
        if not suite.direct and name.startswith(start):
            return _permitted(suite, name.removeprefix(start))
    return _direct(candidates, "prompts/list", "name", name)


def find_resource(suites: Iterable[Suite], uri: str) -> Found | None:
    """The child whose resource the host means; a child's own URI is understood too, since results mention them."""
    candidates = list(suites)
    for suite in candidates:
        start = f"{SCHEME}{quoted(suite.child.name)}/"
        if not suite.direct and uri.startswith(start):
            return _permitted(suite, uri.removeprefix(start))
    direct = _direct(candidates, "resources/list", "uri", uri)
    if direct is not None:
        return direct
    owners = [suite for suite in candidates if _knows(suite, "resources/list", "uri", uri)]
    return _permitted(owners[0], uri) if len(owners) == 1 else None


def _direct(suites: list[Suite], method: str, key: str, name: str) -> Found | None:
    """Among children shown directly: the one that lists it, or the only one there is."""
    direct = [suite for suite in suites if suite.direct]
    owners = [suite for suite in direct if _knows(suite, method, key, name)] or direct
    return _permitted(owners[0], name) if owners else None


def _knows(suite: Suite, method: str, key: str, name: str) -> bool:
    text = jsonrpc.encode(name)
    return any(
        bytes(_decode_object(raw).get(key, Raw(b""))) == text for raw in suite.child.offer.listed(method)
    )


def _permitted(suite: Suite, name: str) -> Found | None:
    return Found(suite, name) if suite.access.permits(name) else None


def rename_contents(suite: Suite, result: Raw) -> bytes:
    """A `resources/read` result with the URIs the host knows."""
    members = _decode_object(result)
    if suite.direct or "contents" not in members:
        return bytes(result)
    kind = KINDS["resources/list"]
    contents = []
    for raw in msgspec.json.decode(members["contents"], type=list[Raw]):
        content = _decode_object(raw)
        if "uri" in content:
            content["uri"] = Raw(jsonrpc.encode(shown(suite, kind, _decode_text(content["uri"]))))
        contents.append(content)
    return jsonrpc.encode({**members, "contents": contents})
