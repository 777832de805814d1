"""What children say without being asked, on its way to the hosts it is for: logs, changes, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.resource_subscriptions import UPDATED
from switchboard_mcp.config.sections import USAGE_NOTIFICATION
from switchboard_mcp.gateway.attribution import MessageOwner, owner_of, requests_in_flight
from switchboard_mcp.gateway.session import ReplyChannel, Session, SubscribedResource, meets_level
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import UNREADABLE, Peer

if TYPE_CHECKING:
    from switchboard_mcp.gateway.client_request_broker import ClientRequestBroker
    from switchboard_mcp.gateway.gateway import Gateway

TOOLS_CHANGED = "notifications/tools/list_changed"
# Notifications that the modern era does not have.
LEGACY_ONLY = frozenset({"notifications/elicitation/complete", "notifications/tasks/status"})


class LogHead(Struct):
    """The part of a log message that decides whether a host wants it."""

    level: str = ""


_decode_log = msgspec.json.Decoder(LogHead).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class NotificationRouter:
    """See the module."""

    def __init__(self, gateway: Gateway, sessions: list[Session], broker: ClientRequestBroker) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._broker = broker

    def on_child_notification(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A notification of a child that is no progress and no change of a list."""
        try:
            self._dispatch(child, peer, message)
        except UNREADABLE:
            return

    def on_list_changed(self, child: str, method: str, *, first: bool) -> None:
        """A child offers something else now, or `first` what it offers is known at last."""
        suite = self._suite_of(child)
        if first and suite is not None and not suite.should_announce(tools=method == TOOLS_CHANGED):
            return
        for session in list(self._sessions):
            if session.view.shows(child):
                send_list_changed(session, method)

    def _suite_of(self, child: str) -> ChildSuite | None:
        return next((suite for suite in self._gateway.all_suites.values() if suite.source == child), None)

    def _is_direct(self, child: str) -> bool:
        """Whether a child is shown as it is."""
        suite = self._suite_of(child)
        return suite is not None and suite.direct

    def _dispatch(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        method, params = str(message.method), message.params
        if method == "notifications/cancelled":
            if params is not UNSET:
                self._broker.on_child_cancelled(peer, params)
        elif method == USAGE_NOTIFICATION and child.spec.wraps:
            if params is not UNSET:
                self._gateway.record_ask_usage(child.name, params)
        elif method == "notifications/message" and params is not UNSET:
            self._relay_log(child, peer, params)
        elif (
            method == UPDATED
            and params is not UNSET
            and (self._notify_subscribers(child, params) or not self._is_direct(child.name))
        ):
            return  # whoever follows it has delivered; elsewhere the name would mean nothing
        else:
            self._relay(owner_of(child, peer, self._sessions), method, params)

    def _relay(self, owner: MessageOwner | None, method: str, params: Raw | msgspec.UnsetType) -> None:
        modern = owner is not None and owner.request is not None and owner.request.is_stateless
        channel = owner.channel if owner is not None else None
        if channel is not None and not (modern and method in LEGACY_ONLY):
            channel.send(jsonrpc.notification(method, None if params is UNSET else params))

    def _relay_log(self, child: Child, peer: Peer, params: Raw) -> None:
        owner = owner_of(child, peer, self._sessions)
        channel = self._log_channel(owner, peer, _decode_log(params).level) if owner is not None else None
        if channel is None:
            return
        if not self._is_direct(child.name):
            members = _decode_object(params)
            logger = message_meta.decode_text(members.get("logger"))
            members["logger"] = Raw(jsonrpc.encode(f"{child.name}/{logger}" if logger else child.name))
            params = Raw(jsonrpc.encode(members))
        channel.send(jsonrpc.notification("notifications/message", params))

    def _log_channel(self, owner: MessageOwner, peer: Peer, level: str) -> ReplyChannel | None:
        """Where a log message goes: a modern host has it with a request that asked for such, or not at all."""
        if owner.request is None or not owner.request.is_stateless:
            return owner.channel if meets_level(level, owner.session.log_level) else None
        related = getattr(peer.transport, "related", b"")
        for request in (owner.request,) if related else reversed(list(requests_in_flight(peer))):
            minimum = request.log_level if request.session is owner.session and request.is_awaited else ""
            if minimum and meets_level(level, minimum):
                return request.channel
        return None

    def _notify_subscribers(self, child: Child, params: Raw) -> bool:
        """Tell whoever follows a resource that it has changed; False where nobody does."""
        members = _decode_object(params)
        updated = message_meta.decode_text(members.get("uri"))
        if updated is None:
            return False
        delivered = False
        for session in list(self._sessions):
            for uri in _affected(session.subscribed, child, updated):
                delivered = True
                told = jsonrpc.encode({**_without_subscription_meta(members), "uri": uri})
                session.channel.send(jsonrpc.notification(UPDATED, told))
            for listen in list(session.listens.values()):
                for uri in _affected(listen.subscribed, child, updated):
                    delivered = True
                    listen.notify(
                        UPDATED, {**_without_subscription_meta(members), "uri": Raw(jsonrpc.encode(uri))}
                    )
        return delivered


def send_list_changed(session: Session, method: str) -> None:
    """Tell one host that a list is another."""
    if session.initialized:
        session.channel.send(jsonrpc.notification(method))
    for listen in list(session.listens.values()):
        if method in listen.kinds:
            listen.notify(method, {})


def _affected(subscribed: Mapping[str, SubscribedResource], child: Child, updated: str) -> Iterable[str]:
    """The changed resource as a host calls it, for each way in which it follows it."""
    return [
        uri + updated[len(resource.uri) :]
        for uri, resource in subscribed.items()
        if resource.child is child and resource.covers(updated)
    ]


def _without_subscription_meta(members: dict[str, Raw]) -> dict[str, Raw]:
    """The members of a notification without what belongs to our own subscription."""
    meta = members.get("_meta")
    if meta is None or not message_meta.is_object(meta):
        return members
    kept = message_meta.strip_protocol_keys(_decode_object(meta))
    rest = {name: value for name, value in members.items() if name != "_meta"}
    return {**rest, "_meta": Raw(jsonrpc.encode(kept))} if kept else rest
