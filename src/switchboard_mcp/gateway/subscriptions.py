"""Hosts' subscriptions to changes: `subscriptions/listen` of stateless hosts, `resources/subscribe` of legacy ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.resource_subscriptions import may_subscribe
from switchboard_mcp.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from switchboard_mcp.gateway import prompts_resources
from switchboard_mcp.gateway.call_path import send_without_answer
from switchboard_mcp.gateway.forward import ForwardedRequest, Relay
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.request import missing_capability_error
from switchboard_mcp.gateway.session import ListenSubscription, SubscribedResource
from switchboard_mcp.gateway.tasks.task_methods import listen_to_tasks
from switchboard_mcp.protocol import client_requests, jsonrpc

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway

# List changes a stateless host may subscribe to: the name in the request, and the notification.
LIST_CHANGED = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


class ListenParams(Struct, rename="camel"):
    """Changes a stateless host subscribes to."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []


_decode_listen_params = msgspec.json.Decoder(ListenParams).decode


def listen(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Open a stateless host's subscription; it stays open until the host cancels it or disconnects."""
    if "notifications" not in inbound.members:
        inbound.refuse(INVALID_PARAMS, "subscriptions/listen needs `notifications`.")
        return
    if inbound.is_duplicate or inbound.id in inbound.session.listens:
        inbound.refuse(INVALID_REQUEST, "A request with this id is still in progress.")
        return
    params = _decode_listen_params(inbound.members["notifications"])
    if params.task_ids and not client_requests.declares_tasks(inbound.capabilities):
        missing = missing_capability_error({"extensions": {client_requests.TASKS: {}}})
        inbound.channel.answer(jsonrpc.error_body(inbound.id, missing))
        return
    wanted = (params.tools_list_changed, params.prompts_list_changed, params.resources_list_changed)
    kinds = [name for name, enabled in zip(LIST_CHANGED, wanted, strict=True) if enabled]
    subscription = ListenSubscription(
        id=inbound.id,
        channel=inbound.channel,
        kinds=frozenset(LIST_CHANGED[name] for name in kinds),
        subscribed={},
    )
    inbound.session.listens[inbound.id] = subscription
    acknowledged: dict[str, object] = dict.fromkeys(kinds, True)
    suites = gateway.view_of(inbound.session.viewer).suites.values()
    resolved = [(uri, prompts_resources.find_resource(suites, uri)) for uri in params.resource_subscriptions]
    honoured = {
        uri: match
        for uri, match in resolved
        if match is not None
        and match.is_permitted
        and may_subscribe(match.suite.child.snapshot)
        and prompts_resources.may_offer(match)
    }
    if honoured:
        acknowledged["resourceSubscriptions"] = list(honoured)
    tasks = listen_to_tasks(gateway, inbound, subscription, params.task_ids)
    if tasks:
        acknowledged["taskIds"] = list(tasks)
    subscription.notify(
        "notifications/subscriptions/acknowledged", {"notifications": Raw(jsonrpc.encode(acknowledged))}
    )
    for begin in tasks.values():
        begin()
    for uri, match in honoured.items():
        members = {"uri": Raw(jsonrpc.encode(match.name))}
        relay = ListenRelay(subscription, uri)
        send_without_answer(inbound.session, inbound.method, match, relay, members, like=inbound)


class ListenRelay(Relay):
    """Subscribes a stateless host to a resource, as a part of its listen request."""

    def __init__(self, listen: ListenSubscription, uri: str) -> None:
        self._listen = listen
        self._uri = uri

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Subscribe, if the host still listens."""
        listen = self._listen
        if request.session.listens.get(listen.id) is listen and self._uri not in listen.subscribed:
            listen.subscribed[self._uri] = SubscribedResource(child, request.match.name)
            child.subscriptions.subscribe(request.match.name)
        request.finish(b"{}")
        return True


class SubscribeRelay(Relay):
    """`resources/subscribe` of a legacy host: by listening to a stateless child, as it is to any other."""

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Subscribe by listening, if the child is stateless."""
        if child.is_stateless:
            child.subscriptions.subscribe(request.match.name, partial(self._on_subscribed, request))
        return child.is_stateless

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Record the subscription: the child has accepted it."""
        if request.is_awaited and self._record(request):
            request.child.subscriptions.subscribe(request.match.name, already_sent=True)
        return result

    def _on_subscribed(self, request: ForwardedRequest, in_force: bool) -> None:
        child = request.child
        if in_force and request.is_awaited and self._record(request):
            request.finish(b"{}")
            return
        # Refused, cancelled, or already subscribed by this host.
        child.subscriptions.unsubscribe(request.match.name)
        if in_force:
            request.finish(b"{}")
        else:
            message = f"Child '{child.name}' does not support subscriptions."
            request.finish_with_error(jsonrpc.encode({"code": METHOD_NOT_FOUND, "message": message}))

    def _record(self, request: ForwardedRequest) -> bool:
        """Record the subscription; return False if the host already has it."""
        uri = request.inbound.text("uri")
        if uri in request.session.subscribed:
            return False
        request.session.subscribed[uri] = SubscribedResource(request.child, request.match.name)
        return True


def unsubscribe(gateway: Gateway, inbound: IncomingRequest) -> None:
    """End a host's own subscription; never refused, but recorded. The child is notified when no host is left."""
    followed = inbound.session.subscribed.pop(inbound.text("uri"), None)
    if followed is not None:
        followed.child.subscriptions.unsubscribe(followed.uri)
        suite = gateway.view_of(inbound.session.viewer).suite_of(followed.child.name)
        if suite is not None and suite.pipeline is not None:
            suite.pipeline.record_decision(inbound.method, inbound.session, followed.uri, "ok")
    inbound.answer(b"{}")
