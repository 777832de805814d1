"""Prompts and resources of children, under names that are unique across children.

A child exposed as a suite has its prompts as `<child>__<prompt>` and its resources under `switchboard://<child>/…`; one
exposed directly, or built in, keeps its own names unless they are taken. Lists come from what is known of a child:
listing does not start one, except a directly exposed child that has never been seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import METHOD_NOT_FOUND, Failure
from switchboard_mcp.gateway.forward import ForwardedRequest, Relay
from switchboard_mcp.gateway.issued_ids import IdKind
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.gateway.suites.app_pages import clean_pages, is_page
from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName
from switchboard_mcp.policy.resource_uris import matches_template
from switchboard_mcp.protocol import jsonrpc, kept_schemes, message_meta, skills
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.kept_schemes import keeps_scheme
from switchboard_mcp.suites import sanitize

SCHEME = "switchboard://"
SEPARATOR = "__"
PROMPTS, RESOURCES, TEMPLATES = "prompts/list", "resources/list", "resources/templates/list"
NO_COMPLETION = Raw(b'{"completion":{"values":[],"total":0,"hasMore":false}}')


class ListKind(Struct, frozen=True):
    """One kind of list: its method, the result member it is in, and the key that names an entry."""

    method: str
    member: str
    key: str


KINDS = {
    PROMPTS: ListKind(PROMPTS, "prompts", "name"),
    RESOURCES: ListKind(RESOURCES, "resources", "uri"),
    TEMPLATES: ListKind(TEMPLATES, "resourceTemplates", "uriTemplate"),
}


def display_name(suite: ChildSuite, kind: ListKind, name: str, used_names: set[str]) -> str:
    """Return the name that hosts use."""
    if (suite.direct or suite.built_in) and name not in used_names:
        return name
    return f"{suite.child.name}{SEPARATOR}{name}" if kind.key == "name" else host_uri(suite, name)


def host_uri(suite: ChildSuite, uri: str) -> str:
    """Return the URI that hosts use for a resource of a suite. Pages and skills keep their schemes."""
    return kept_schemes.host_uri(suite.child.name, uri) if keeps_scheme(uri) else resource_prefix(suite) + uri


def resource_prefix(suite: ChildSuite) -> str:
    """Return the prefix of the URIs of a suite's resources."""
    from urllib.parse import quote

    return f"{SCHEME}{quote(suite.child.name, safe='')}/"


def build_list(
    suites: Iterable[ChildSuite],
    kind: ListKind,
    extra: dict[str, Raw],
    ours: Sequence[dict[str, Raw]] = (),
) -> bytes:
    """Return the result of a list request: the known entries of all children that policy permits, then our own.

    An unreadable entry is left out, so it does not hide the others.
    """
    entries: list[dict[str, Raw]] = []
    used_names: set[str] = set()
    for suite in suites:
        governed = suite.child.inventory.governed
        for raw in suite.child.inventory.listed(kind.method):
            shown = sanitize.clean_listed(raw, kind.key) if governed else raw
            entry = _decode_or_empty(shown) if shown is not None else {}
            own = message_meta.decode_text(entry.get(kind.key))
            permitted = suite.access.permits if kind.key == "name" else suite.access.permits_uri
            if own is None or not permitted(own):
                continue
            name = display_name(suite, kind, own, used_names)
            if name not in used_names:
                used_names.add(name)
                entries.append(entry if name == own else {**entry, kind.key: Raw(jsonrpc.encode(name))})
    return jsonrpc.encode({**extra, kind.member: [*entries, *ours]})


def build_skill_list(suites: Iterable[ChildSuite]) -> bytes:
    """Return the result of `skills/list`: the known skills of all children that policy permits."""
    entries = [
        skills.rename_skill(raw, partial(host_uri, suite)) if not suite.direct else raw
        for suite in suites
        for raw in suite.child.inventory.listed(skills.LIST)
        if (skill := skills.read_skill(raw)) is not None and suite.access.permits_uri(skill.uri)
    ]
    return jsonrpc.encode({"skills": entries})


class SkillRelay(Relay):
    """`skills/get` and `resources/directory/read`: the entries have the URIs that the host uses."""

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Answer for a child with handshakes that has the files of a skill, but not the method."""
        snapshot, name = child.inventory.snapshot, request.match.name
        if request.method != "skills/get" or snapshot is None or skills.offers_skills(snapshot.capabilities):
            return False
        for entry in child.inventory.listed(skills.LIST):
            if (skill := skills.read_skill(entry)) is not None and skill.uri == name:
                request.finish(self.receive(request, Raw(jsonrpc.encode({"skill": entry}))))
                return True
        return False

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Rename the files."""
        if request.inbound.text("uri") == request.match.name:
            return result
        return skills.rename_result(result, partial(host_uri, request.suite))


def find_prompt(suites: Iterable[ChildSuite], name: str) -> ResolvedName | None:
    """Return the child that may have a prompt, and its own name for it. The child's list decides in the end."""
    candidates = list(suites)
    direct = [suite for suite in candidates if suite.direct]
    offering = [suite for suite in direct if name in suite.child.inventory.names(PROMPTS)]
    if offering:
        return ResolvedName(offering[0], name, PROMPTS)
    marked = [suite for suite in candidates if name.startswith(suite.child.name + SEPARATOR)]
    # One child's name may be a prefix of another's, so try the user's own first, and then the longest.
    marked.sort(key=lambda suite: (suite.child.spec.scope == "user", len(suite.child.name)), reverse=True)
    for suite in marked:
        own = name.removeprefix(suite.child.name + SEPARATOR)
        if own in suite.child.inventory.names(PROMPTS):
            return ResolvedName(suite, own, PROMPTS)
    for suite in marked:
        if not suite.direct:
            return ResolvedName(suite, name.removeprefix(suite.child.name + SEPARATOR), PROMPTS)
    return ResolvedName(direct[0], name, PROMPTS) if len(direct) == 1 else None


def find_resource(suites: Iterable[ChildSuite], uri: str) -> ResolvedName | None:
    """Return the child and its own URI for a resource. A child's own URI is accepted too: results mention them."""
    candidates = list(suites)
    if uri.startswith(SCHEME):
        for suite in candidates:
            if suite.built_in and (_lists_resource(suite, uri) or _has_matching_template(suite, uri)):
                return ResolvedName(suite, uri, RESOURCES)
        for suite in candidates:
            start = resource_prefix(suite)
            if uri.startswith(start):
                return ResolvedName(suite, uri.removeprefix(start), RESOURCES)
    direct = [suite for suite in candidates if suite.direct]
    others = [suite for suite in candidates if not suite.direct]
    for is_offered in (_lists_resource, _has_matching_template):
        owners = [suite for suite in direct if is_offered(suite, uri)]
        if owners:
            return ResolvedName(owners[0], uri, RESOURCES)
        owners = [suite for suite in others if is_offered(suite, uri)]
        if len(owners) == 1:
            return ResolvedName(owners[0], uri, RESOURCES)
    return ResolvedName(direct[0], uri, RESOURCES) if len(direct) == 1 else None


def may_offer(match: ResolvedName) -> bool:
    """Return False if the child's lists are known, and no resource or template of theirs has the URI."""
    if not match.suite.child.inventory.is_complete:
        return True
    return _lists_resource(match.suite, match.name) or _has_matching_template(match.suite, match.name)


def _lists_resource(suite: ChildSuite, uri: str) -> bool:
    offer = suite.child.inventory
    return uri in offer.names(RESOURCES) or uri in offer.names(TEMPLATES)


def _has_matching_template(suite: ChildSuite, uri: str) -> bool:
    return any(matches_template(template, uri) for template in suite.child.inventory.names(TEMPLATES))


def find_link(suites: Iterable[ChildSuite], uri: str, session: Session) -> ResolvedName | None:
    """Return the child that has handed this host a link with the URI."""
    for suite in suites:
        for child in suite.child.processes(session.process_owner):
            if session.broker.issued.find(session, child, IdKind.RESOURCE, uri) is not None:
                return ResolvedName(suite, uri, RESOURCES)
    return None


class CompletionRelay(Relay):
    """`completion/complete`: announced to hosts in any case, so a child without the method offers no completions."""

    def recover(self, request: ForwardedRequest, error: Raw) -> Raw | None:
        """Return an empty completion if the child has no such method."""
        return NO_COMPLETION if jsonrpc.parse_error(error).code == METHOD_NOT_FOUND else None


class ReadRelay(Relay):
    """`resources/read`: the contents have the URIs that the host uses."""

    def refuse(self, request: ForwardedRequest, result: Raw) -> Failure | None:
        """Refuse a page that differs from its lock."""
        own = request.match.name
        return request.child.inventory.page_blocked_reason(own, result) if is_page(own) else None

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Rename the contents. A client that has read a page may call the tools of its child by their own names."""
        own = request.match.name
        if is_page(own):
            request.session.broker.issued.issue(request.session, request.child, IdKind.RESOURCE, own)
            result = clean_pages(result)
        return Raw(rename_contents(request.suite, request.inbound.text("uri"), own, result))


def rename_contents(suite: ChildSuite, requested: str, own: str, result: Raw) -> bytes:
    """Return a `resources/read` result with the host's URIs: the requested one, and those of nested resources."""
    members = _decode_or_empty(result)
    if requested == own or "contents" not in members:
        return bytes(result)
    contents: list[object] = []
    for raw in msgspec.json.decode(members["contents"], type=list[Raw]):
        content = _decode_or_empty(raw)
        uri = message_meta.decode_text(content.get("uri"))
        if uri is not None:
            content["uri"] = Raw(jsonrpc.encode(requested if uri == own else host_uri(suite, uri)))
        contents.append(content or raw)
    return jsonrpc.encode({**members, "contents": contents})


def _decode_or_empty(raw: Raw) -> dict[str, Raw]:
    try:
        return decode_members(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
