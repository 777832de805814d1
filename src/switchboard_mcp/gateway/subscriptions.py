"""Hosts' subscriptions to changes: `subscriptions/listen` of stateless hosts, `resources/subscribe` of legacy ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Failure
from switchboard_mcp.gateway import prompts_resources
from switchboard_mcp.gateway.forward import ForwardedRequest
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.request_context import DelegatedWaiter
from switchboard_mcp.gateway.session import ListenSubscription, SubscribedResource
from switchboard_mcp.gateway.suites.child_suite import ResolvedName
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage

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
    suites = gateway.view_of(inbound.session.principal).suites.values()
    resolved = [(uri, prompts_resources.find_resource(suites, uri)) for uri in params.resource_subscriptions]
    honoured = {uri: match for uri, match in resolved if match is not None}
    if honoured:
        acknowledged["resourceSubscriptions"] = list(honoured)
    subscription.notify(
        "notifications/subscriptions/acknowledged", {"notifications": Raw(jsonrpc.encode(acknowledged))}
    )
    for uri, match in honoured.items():
        match.suite.child.acquire(ListenWaiter(inbound, subscription, uri, match))


class ListenWaiter(DelegatedWaiter):
    """Subscribes a stateless host to a resource, once its child is ready."""

    __slots__ = ("inbound", "listen", "match", "uri")

    def __init__(
        self, inbound: IncomingRequest, listen: ListenSubscription, uri: str, match: ResolvedName
    ) -> None:
        super().__init__(inbound)
        self.inbound = inbound
        self.listen = listen
        self.uri = uri
        self.match = match

    def on_ready(self, child: Child) -> None:
        """Subscribe, if the host still listens."""
        if (
            self.inbound.session.listens.get(self.listen.id) is self.listen
            and self.uri not in self.listen.subscribed
        ):
            self.listen.subscribed[self.uri] = SubscribedResource(child, self.match.name)
            child.subscriptions.subscribe(self.match.name)

    def on_failed(self, problem: Failure) -> None:
        """Ignore it: a child that cannot be started sends no updates either."""


class SubscribeRequest(ForwardedRequest):
    """`resources/subscribe` of a legacy host."""

    __slots__ = ("resource",)

    def __init__(self, inbound: IncomingRequest, match: ResolvedName) -> None:
        super().__init__(
            inbound,
            match.suite,
            "resources/subscribe",
            {**inbound.members, "uri": Raw(jsonrpc.encode(match.name))},
        )
        self.resource = SubscribedResource(match.suite.child, match.name)

    def on_ready(self, child: Child) -> None:
        """Subscribe: by listening to a stateless child, with `resources/subscribe` to any other."""
        self.resource = SubscribedResource(child, self.resource.uri)
        if child.is_stateless:
            child.subscriptions.subscribe(self.resource.uri, self._on_subscribed)
        else:
            super().on_ready(child)

    def answered(self, answer: RpcMessage) -> None:
        """Record the subscription if the child has accepted it."""
        if jsonrpc.get_error(answer) is None and self.is_awaited and self._record():
            self.child.subscriptions.subscribe(self.resource.uri, already_sent=True)
        super().answered(answer)

    def _on_subscribed(self, in_force: bool) -> None:
        if in_force and self.is_awaited and self._record():
            self.finish(b"{}")
            return
        self.child.subscriptions.unsubscribe(
            self.resource.uri
        )  # refused, cancelled, or already subscribed by this host
        if in_force:
            self.finish(b"{}")
        else:
            error = {
                "code": METHOD_NOT_FOUND,
                "message": f"Child '{self.child.name}' does not support subscriptions.",
            }
            self.finish_with_error(jsonrpc.encode(error))

    def _record(self) -> bool:
        """Record the subscription; return False if the host already has it."""
        name = self.inbound.text("uri")
        if name in self.session.subscribed:
            return False
        self.session.subscribed[name] = self.resource
        return True


def unsubscribe(gateway: Gateway, inbound: IncomingRequest) -> None:
    """End a host's subscription; the child is told when no host is left."""
    followed = inbound.session.subscribed.pop(inbound.text("uri"), None)
    if followed is not None:
        followed.child.subscriptions.unsubscribe(followed.uri)
    inbound.answer(b"{}")
