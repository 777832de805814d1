"""What children say without being asked, on its way to the hosts it is for: logs, changes, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.resource_subscriptions import UPDATED
from switchboard_mcp.config.sections import USED
from switchboard_mcp.gateway.attribution import MessageOwner, party, under_way
from switchboard_mcp.gateway.session import FollowedResource, ReplyChannel, Session, loud_enough
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import UNREADABLE, Peer

if TYPE_CHECKING:
    from switchboard_mcp.gateway.client_request_broker import ClientRequestBroker
    from switchboard_mcp.gateway.gateway import Gateway

TOOLS_CHANGED = "notifications/tools/list_changed"
# Notifications that the modern era does not have.
OF_THE_HANDSHAKE_ERA = frozenset({"notifications/elicitation/complete", "notifications/tasks/status"})


class LogHead(Struct):
    """The part of a log message that decides whether a host wants it."""

    level: str = ""


_decode_log = msgspec.json.Decoder(LogHead).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class NotificationRouter:
    """See the module."""

    def __init__(self, gateway: Gateway, sessions: list[Session], desk: ClientRequestBroker) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._desk = desk

    def child_said(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A notification of a child that is no progress and no change of a list."""
        try:
            self._hear(child, peer, message)
        except UNREADABLE:
            return

    def child_changed(self, child: str, method: str, *, first: bool) -> None:
        """A child offers something else now, or `first` what it offers is known at last."""
        suite = self._suite(child)
        if first and suite is not None and not suite.should_announce(tools=method == TOOLS_CHANGED):
            return
        for session in list(self._sessions):
            if session.view.shows(child):
                tell_change(session, method)

    def _suite(self, child: str) -> ChildSuite | None:
        return next((suite for suite in self._gateway.all.values() if suite.source == child), None)

    def _direct(self, child: str) -> bool:
        """Whether a child is shown as it is."""
        suite = self._suite(child)
        return suite is not None and suite.direct

    def _hear(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        method, params = str(message.method), message.params
        if method == "notifications/cancelled":
            if params is not UNSET:
                self._desk.child_withdrew(peer, params)
        elif method == USED and child.spec.wraps:
            if params is not UNSET:
                self._gateway.count_use(child.name, params)
        elif method == "notifications/message" and params is not UNSET:
            self._logged(child, peer, params)
        elif (
            method == UPDATED
            and params is not UNSET
            and (self._updated(child, params) or not self._direct(child.name))
        ):
            return  # whoever follows it has heard; elsewhere the name would mean nothing
        else:
            self._pass_on(party(child, peer, self._sessions), method, params)

    def _pass_on(self, whose: MessageOwner | None, method: str, params: Raw | msgspec.UnsetType) -> None:
        modern = whose is not None and whose.request is not None and whose.request.modern
        route = whose.route if whose is not None else None
        if route is not None and not (modern and method in OF_THE_HANDSHAKE_ERA):
            route.send(jsonrpc.notification(method, None if params is UNSET else params))

    def _logged(self, child: Child, peer: Peer, params: Raw) -> None:
        whose = party(child, peer, self._sessions)
        route = self._wants_log(whose, peer, _decode_log(params).level) if whose is not None else None
        if route is None:
            return
        if not self._direct(child.name):
            members = _decode_object(params)
            logger = message_meta.text_of(members.get("logger"))
            members["logger"] = Raw(jsonrpc.encode(f"{child.name}/{logger}" if logger else child.name))
            params = Raw(jsonrpc.encode(members))
        route.send(jsonrpc.notification("notifications/message", params))

    def _wants_log(self, whose: MessageOwner, peer: Peer, level: str) -> ReplyChannel | None:
        """Where a log message goes: a modern host has it with a request that asked for such, or not at all."""
        if whose.request is None or not whose.request.modern:
            return whose.route if loud_enough(level, whose.session.log_level) else None
        related = getattr(peer.link, "related", b"")
        for request in (whose.request,) if related else reversed(list(under_way(peer))):
            wanted = request.log_level if request.session is whose.session and request.wanted else ""
            if wanted and loud_enough(level, wanted):
                return request.route
        return None

    def _updated(self, child: Child, params: Raw) -> bool:
        """Tell whoever follows a resource that it has changed; False where nobody does."""
        members = _decode_object(params)
        updated = message_meta.text_of(members.get("uri"))
        if updated is None:
            return False
        heard = False
        for session in list(self._sessions):
            for uri in _affected(session.followed, child, updated):
                heard = True
                told = jsonrpc.encode({**_plain(members), "uri": uri})
                session.route.send(jsonrpc.notification(UPDATED, told))
            for listen in list(session.listens.values()):
                for uri in _affected(listen.followed, child, updated):
                    heard = True
                    listen.tell(UPDATED, {**_plain(members), "uri": Raw(jsonrpc.encode(uri))})
        return heard


def tell_change(session: Session, method: str) -> None:
    """Tell one host that a list is another."""
    if session.initialized:
        session.route.send(jsonrpc.notification(method))
    for listen in list(session.listens.values()):
        if method in listen.kinds:
            listen.tell(method, {})


def _affected(followed: Mapping[str, FollowedResource], child: Child, updated: str) -> Iterable[str]:
    """The changed resource as a host calls it, for each way in which it follows it."""
    return [
        uri + updated[len(resource.uri) :]
        for uri, resource in followed.items()
        if resource.child is child and resource.covers(updated)
    ]


def _plain(members: dict[str, Raw]) -> dict[str, Raw]:
    """The members of a notification without what belongs to our own subscription."""
    meta = members.get("_meta")
    if meta is None or not message_meta.is_object(meta):
        return members
    kept = message_meta.without_protocol(_decode_object(meta))
    rest = {name: value for name, value in members.items() if name != "_meta"}
    return {**rest, "_meta": Raw(jsonrpc.encode(kept))} if kept else rest
