"""Routes children's notifications to the hosts they are for: logs, list changes, resource updates, and unknown ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.children.context import ChildHandle
from switchboard_mcp.children.resource_subscriptions import UPDATED
from switchboard_mcp.config.sections import CHANNEL, USAGE_NOTIFICATION
from switchboard_mcp.gateway.attribution import MessageOwner, owner_of, requests_in_flight, session_owner
from switchboard_mcp.gateway.issued_ids import IdKind
from switchboard_mcp.gateway.session import ReplyChannel, Session, SubscribedResource, meets_level
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.hosts.traits import traits_of
from switchboard_mcp.protocol import jsonrpc, message_meta, result_ids
from switchboard_mcp.protocol.jsonrpc import RpcMessage, decode_members
from switchboard_mcp.transport.rpc import UNREADABLE, Peer

if TYPE_CHECKING:
    from switchboard_mcp.gateway.client_requests.client_request_broker import ClientRequestBroker
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.suites.views import View

TOOLS_CHANGED = "notifications/tools/list_changed"
ELICITED = "notifications/elicitation/complete"
# Notifications that do not exist in the stateless protocol.
LEGACY_ONLY = frozenset({ELICITED, "notifications/tasks/status", CHANNEL})


class LogHead(Struct):
    """The part of a log message that decides if a host wants it."""

    level: str = ""


_decode_log = msgspec.json.Decoder(LogHead).decode


def _lists_directly(view: View, child: str, session: Session) -> bool:
    """Return True if the host of a session sees the child's own tools, which others may not."""
    suite = view.suite_of(child)
    host = traits_of(session.client, session.client_version)
    return suite is not None and suite.name in view.tool_list.exposure_for(host).direct


class NotificationRouter:
    """Routes notifications from children to hosts."""

    def __init__(self, gateway: Gateway, sessions: list[Session], broker: ClientRequestBroker) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._broker = broker

    def on_child_notification(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        """Route a child's notification other than progress and list changes."""
        try:
            self._dispatch(child, peer, message)
        except UNREADABLE:
            return

    def on_list_changed(self, child: str, method: str, *, first: bool) -> None:
        """Announce a changed list, or `first` a list that is known for the first time."""
        suite, tools = self._suite_of(child), method == TOOLS_CHANGED
        announced = not first or suite is None or suite.should_announce(tools=tools)
        for session in list(self._sessions):
            view = self._gateway.view_of(session.viewer)
            if view.shows(child) and (announced or (tools and _lists_directly(view, child, session))):
                send_list_changed(session, method)

    def _suite_of(self, child: str) -> ChildSuite | None:
        return next((suite for suite in self._gateway.all_suites.values() if suite.source == child), None)

    def _may_see(self, owner: MessageOwner | None, child: ChildHandle, params: Raw) -> bool:
        """Return True if a host sees a child's own URIs, and this one is not denied to it."""
        uri = message_meta.decode_text(decode_members(params).get("uri"))
        if owner is None or uri is None:
            return False
        suite = self._gateway.view_of(owner.session.viewer).suite_of(child.name)
        return suite is not None and suite.direct and suite.access.permits_uri(uri)

    def _may_open_turns(self, child: ChildHandle) -> bool:
        """Return True for a child whose text may start a turn of the host.

        If mail does so, a host that was started for it must not take the same from any other child.
        """
        if any(suite.child.spec.channel for suite in self._gateway.all_suites.values()):
            return child.spec.channel
        return self._is_direct(child.name)

    def _is_direct(self, child: str) -> bool:
        """Return True if a child is exposed directly."""
        suite = self._suite_of(child)
        return suite is not None and suite.direct

    def _dispatch(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        method, params = str(message.method), message.params
        if method == "notifications/cancelled":
            if params is not UNSET:
                self._broker.on_child_cancelled(peer, params)
        elif method == USAGE_NOTIFICATION and child.spec.wraps:
            if params is not UNSET:
                self._gateway.record_ask_usage(child.name, params)
        elif method == "notifications/message" and params is not UNSET:
            self._relay_log(child, peer, params)
        elif method == UPDATED and params is not UNSET:
            owner = owner_of(child, peer, self._sessions, self._broker.issued)
            # To hosts that have not subscribed the URI means nothing, unless the child is direct.
            if not self._notify_subscribers(child, peer, params) and self._may_see(owner, child, params):
                self._relay(owner, method, params, peer)
        elif method == CHANNEL and not self._may_open_turns(child):
            return
        elif method == ELICITED:
            session = self._broker.issued.session_of(
                child, IdKind.ELICITATION, result_ids.elicitation(params)
            )
            self._relay(session_owner(session, peer), method, params, peer)
        else:
            owner = owner_of(child, peer, self._sessions, self._broker.issued, params)
            self._relay(owner, method, self._with_own_task(child, params), peer)

    def _with_own_task(self, child: ChildHandle, params: Raw | msgspec.UnsetType) -> Raw | msgspec.UnsetType:
        """Return params with our id of a task that a suite has started, which the host knows by that alone."""
        task = result_ids.task_concerned(params)
        alias = self._broker.issued.task_alias(child, task) if task else ""
        return result_ids.with_task_id(params, alias) if alias and params is not UNSET else params

    def _relay(
        self, owner: MessageOwner | None, method: str, params: Raw | msgspec.UnsetType, peer: Peer
    ) -> None:
        stateless = owner is not None and owner.request is not None and owner.request.is_stateless
        channel = owner.channel if owner is not None else None
        if owner is not None and channel is not None and not (stateless and method in LEGACY_ONLY):
            message = jsonrpc.notification(method, None if params is UNSET else params)
            if method == ELICITED:
                channel.send(message)
            else:
                owner.session.notification_flow.offer(owner.session, channel, message, peer.transport)

    def _relay_log(self, child: ChildHandle, peer: Peer, params: Raw) -> None:
        owner = owner_of(child, peer, self._sessions, self._broker.issued, params)
        channel = self._log_channel(owner, peer, _decode_log(params).level) if owner is not None else None
        if channel is None or owner is None:
            return
        if not self._is_direct(child.name):
            members = decode_members(params)
            logger = message_meta.decode_text(members.get("logger"))
            members["logger"] = Raw(jsonrpc.encode(f"{child.name}/{logger}" if logger else child.name))
            params = Raw(jsonrpc.encode(members))
        message = jsonrpc.notification("notifications/message", params)
        owner.session.notification_flow.offer(owner.session, channel, message, peer.transport)

    def _log_channel(self, owner: MessageOwner, peer: Peer, level: str) -> ReplyChannel | None:
        """Return the channel for a log message, or None. A stateless host gets it with a request that wants logs."""
        if owner.request is None or not owner.request.is_stateless:
            return owner.channel if meets_level(level, owner.session.log_level) else None
        related = getattr(peer.transport, "related", b"")
        for request in (owner.request,) if related else reversed(list(requests_in_flight(peer))):
            minimum = request.log_level if request.session is owner.session and request.is_awaited else ""
            if minimum and meets_level(level, minimum):
                return request.channel
        return None

    def _notify_subscribers(self, child: ChildHandle, peer: Peer, params: Raw) -> bool:
        """Notify the subscribers of a changed resource; return False if there are none."""
        members = decode_members(params)
        updated = message_meta.decode_text(members.get("uri"))
        if updated is None:
            return False
        delivered = False
        for session in list(self._sessions):
            if not _affected_any(session, child, updated):
                continue
            suite = self._gateway.view_of(session.viewer).suite_of(child.name)
            if suite is None or not suite.access.permits_uri(updated):
                continue
            self._broker.issued.issue(session, child, IdKind.RESOURCE, updated)
            for uri in _affected(session.subscribed, child, updated):
                delivered = True
                params_for_host = jsonrpc.encode({**_without_subscription_meta(members), "uri": uri})
                message = jsonrpc.notification(UPDATED, params_for_host)
                flow = session.notification_flow
                flow.offer(session, session.channel, message, peer.transport, is_update=True)
            for listen in list(session.listens.values()):
                for uri in _affected(listen.subscribed, child, updated):
                    delivered = True
                    updated_members = {**_without_subscription_meta(members), "uri": Raw(jsonrpc.encode(uri))}
                    message = listen.notification(UPDATED, updated_members)
                    flow = session.notification_flow
                    flow.offer(session, listen.channel, message, peer.transport, is_update=True)
        return delivered


def send_list_changed(session: Session, method: str) -> None:
    """Tell one host that a list has changed."""
    if session.initialized:
        session.channel.send(jsonrpc.notification(method))
    for listen in list(session.listens.values()):
        if method in listen.kinds:
            listen.notify(method, {})


def _affected(
    subscribed: Mapping[str, SubscribedResource], child: ChildHandle, updated: str
) -> Iterable[str]:
    """Return the changed resource under each URI the host has subscribed to it by."""
    return [
        uri + updated[len(resource.uri) :]
        for uri, resource in subscribed.items()
        if resource.child is child and resource.covers(updated)
    ]


def _affected_any(session: Session, child: ChildHandle, updated: str) -> bool:
    """Return True if a host has subscribed to the changed resource in any way."""
    subscribed = [session.subscribed, *(listen.subscribed for listen in session.listens.values())]
    return any(_affected(uri, child, updated) for uri in subscribed)


def _without_subscription_meta(members: dict[str, Raw]) -> dict[str, Raw]:
    """Return the members of a notification without the `_meta` of our own subscription."""
    meta = members.get("_meta")
    if meta is None or not message_meta.is_object(meta):
        return members
    kept = message_meta.strip_protocol_keys(decode_members(meta))
    rest = {name: value for name, value in members.items() if name != "_meta"}
    return {**rest, "_meta": Raw(jsonrpc.encode(kept))} if kept else rest
