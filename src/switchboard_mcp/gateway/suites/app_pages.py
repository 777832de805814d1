"""MCP Apps behind suites: tools with a page, the tools that pages call, and the pages.

A host finds an app by the tool that names its page, so such tools are listed directly to hosts that show apps
(`tool_list`). A page calls tools by the names its author knew, without saying which child it belongs to: those names
are listed for pages alone, and a name that several children have belongs to the child whose page the client has read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from msgspec import Raw

from switchboard_mcp.gateway.issued_ids import IdKind
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.gateway.suites.child_suite import RESOURCES, ChildSuite, ResolvedName
from switchboard_mcp.protocol import apps, kept_schemes
from switchboard_mcp.protocol.apps import SCHEME, rename_ui


def tools_with_page(suite: ChildSuite) -> list[str]:
    """Return the names of the tools that have a page and that a model may call."""
    return [name for name, ui in suite.ui_tools().items() if ui.uri and ui.for_model]


def tools_of_pages(suites: Iterable[ChildSuite]) -> dict[str, list[ResolvedName]]:
    """Return the tools that pages may call, by the names that their children use."""
    tools: dict[str, list[ResolvedName]] = {}
    for suite in suites:
        declared = suite.ui_tools()
        if not any(ui.uri for ui in declared.values()):
            continue
        for tool in suite.child.inventory.known_tools():
            # A tool that says nothing about it is for models and for pages.
            if suite.access.permits(tool.name) and declared.get(tool.name, apps.NO_UI).for_app:
                tools.setdefault(tool.name, []).append(ResolvedName(suite, tool.name, by_page=True))
    return tools


def page_tool(tool: Raw, match: ResolvedName, suites: Iterable[ChildSuite]) -> Raw:
    """Return the descriptor of a tool with the URI that hosts use for its page."""
    suite = match.suite
    declared = suite.child.inventory.ui_tools().get(match.name, apps.NO_UI)
    ui = suite.ui_tools().get(match.name, apps.NO_UI)
    if declared.uri and not ui.uri:
        return apps.without_page(tool)
    if not ui.uri or keeps_own_uri(suite, ui.uri, suites):
        return tool
    return rename_ui(tool, partial(kept_schemes.host_uri, match.suite.child.name))


def keeps_own_uri(suite: ChildSuite, uri: str, suites: Iterable[ChildSuite]) -> bool:
    """Return True if hosts use the child's own URI of a page: it is direct, and no direct child before it has it."""
    owners = (other for other in suites if other.direct and other.child.inventory.offers_resource(uri))
    return suite.direct and next(owners, suite) is suite


def find_page(suites: Iterable[ChildSuite], uri: str) -> ResolvedName | None:
    """Return the child that has a page or a skill's file, by the URI that hosts use, or by its own if one has it."""
    candidates = list(suites)
    prefixed = [
        ResolvedName(suite, own, RESOURCES)
        for suite in candidates
        if (own := kept_schemes.child_uri(suite.child.name, uri)) is not None
    ]
    named = [match.suite for match in prefixed]
    # An address with the name of a child belongs to that child, also if another one offers it as its own.
    owners = [
        suite
        for suite in candidates
        if suite.child.inventory.offers_resource(uri) and (not named or suite in named)
    ]
    direct = [suite for suite in owners if suite.direct]
    if direct:
        return ResolvedName(direct[0], uri, RESOURCES)
    offered = [match for match in prefixed if match.suite.child.inventory.offers_resource(match.name)]
    if offered:
        return offered[0]
    if len(owners) == 1:
        return ResolvedName(owners[0], uri, RESOURCES)
    return prefixed[0] if prefixed else None


def resolve_page_call(owners: list[ResolvedName], session: Session) -> ResolvedName | list[str]:
    """Return the tool that a page calls, or the children it may belong to if that is uncertain."""
    if len(owners) == 1:
        return owners[0]
    shown = [match for match in owners if _has_read_page(match.suite, session)]
    return shown[0] if len(shown) == 1 else [match.suite.child.name for match in owners]


def _has_read_page(suite: ChildSuite, session: Session) -> bool:
    issued = session.broker.issued
    return any(
        issued.find(session, child, IdKind.RESOURCE, uri) is not None
        for child in suite.child.processes(session.process_owner)
        for uri in suite.child.inventory.ui_uris
    )


def clean_pages(result: Raw) -> Raw:
    """Return a `resources/read` result without the origins that servers chose for their pages."""
    try:
        members = msgspec.json.decode(result, type=dict[str, Raw])
        contents = msgspec.json.decode(members["contents"], type=list[dict[str, Raw]])
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return result
    return Raw(msgspec.json.encode({**members, "contents": apps.without_domain(contents)}))


def is_page(uri: str) -> bool:
    """Return True for the URI of a page."""
    return uri.startswith(SCHEME)
