"""Hosts that stay while children come and go: what they see is another, what they follow goes on, and they are told."""

from __future__ import annotations

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway import prompts_resources
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.notifications import TOOLS_CHANGED, tell_change
from switchboard_mcp.gateway.session import FollowedResource, Session
from switchboard_mcp.gateway.suites.views import View

LISTS = {
    "notifications/prompts/list_changed": (prompts_resources.PROMPTS,),
    "notifications/resources/list_changed": (prompts_resources.RESOURCES, prompts_resources.TEMPLATES),
}


def move_in(gateway: Gateway, changed: frozenset[str]) -> None:
    """Give every host its new view, and tell those who see something else now."""
    news: dict[tuple[int, int], list[str]] = {}
    for session in list(gateway.sessions):
        old, session.view = session.view, gateway.view_of(session.principal)
        key = (id(old), id(session.view))
        if key not in news:
            news[key] = _news(old, session.view, changed)
        for method in news[key]:
            tell_change(session, method)
        for followed in (session.followed, *(listen.followed for listen in session.listens.values())):
            _move(session, followed, changed)
    gateway.spread_log_level()


def _news(old: View, new: View, changed: frozenset[str]) -> list[str]:
    """Which lists are others now. One that is not known yet may be another too."""
    seen = any(old.shows(child) or new.shows(child) for child in changed)
    modern = (False, True)
    other = any(old.tool_list.tools(modern=era) != new.tool_list.tools(modern=era) for era in modern)
    told = [TOOLS_CHANGED] if seen or other else []
    for notification, methods in LISTS.items():
        if any(_listed(old, method) != _listed(new, method) for method in methods):
            told.append(notification)
    return told


def _listed(view: View, method: str) -> bytes:
    return prompts_resources.listed(view.suites.values(), prompts_resources.KINDS[method], {})


def _move(session: Session, followed: dict[str, FollowedResource], changed: frozenset[str]) -> None:
    """Follow at the new child what was followed at the old one; where there is none, nobody follows."""
    for uri, resource in list(followed.items()):
        suites = {suite.source: suite for suite in session.view.suites.values()}
        suite = suites.get(resource.child.name)
        if resource.child.name in changed or suite is None:
            del followed[uri]
            resource.child.subscriptions.unfollow(resource.uri)
            if suite is not None and suite.access.permits(resource.uri):
                suite.child.acquire(ResubscribeWaiter(session, followed, uri, resource.uri))


class ResubscribeWaiter(ReadyWaiter):
    """A resource that is followed, on its way to the child that has it now."""

    __slots__ = ("_followed", "_own", "_session", "_uri")

    def __init__(self, session: Session, followed: dict[str, FollowedResource], uri: str, own: str) -> None:
        self._session = session
        self._followed = followed
        self._uri = uri
        self._own = own

    @property
    def owner(self) -> object:
        """The host's own."""
        return self._session.home

    def on_ready(self, child: Child) -> None:
        """The child is ready: follow, unless the host does so by itself again."""
        if self._uri not in self._followed:
            self._followed[self._uri] = FollowedResource(child, self._own)
            child.subscriptions.follow(self._own)

    def on_failed(self, problem: Failure) -> None:
        """A child that cannot be started changes nothing either."""
