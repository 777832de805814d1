"""Hosts that want to hear of changes: `subscriptions/listen` in the modern era, `resources/subscribe` before it."""

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
from switchboard_mcp.gateway.session import FollowedResource, ListenSubscription
from switchboard_mcp.gateway.suites.child_suite import ResolvedName
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway

# What a modern host may listen to, by its name in the request, and the notification it stands for.
CHANGES = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


class ListenParams(Struct, rename="camel"):
    """What a modern host wants to hear of."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []


_decode_wishes = msgspec.json.Decoder(ListenParams).decode


def listen(gateway: Gateway, inbound: IncomingRequest) -> None:
    """A modern host's subscription to changes; it stays open until the host cancels it or goes."""
    if "notifications" not in inbound.members:
        inbound.refuse(INVALID_PARAMS, "subscriptions/listen needs `notifications`.")
        return
    if inbound.under_way or inbound.id in inbound.session.listens:
        inbound.refuse(INVALID_REQUEST, "A request with this id is still under way.")
        return
    wishes = _decode_wishes(inbound.members["notifications"])
    wanted = (wishes.tools_list_changed, wishes.prompts_list_changed, wishes.resources_list_changed)
    kinds = [name for name, wish in zip(CHANGES, wanted, strict=True) if wish]
    subscription = ListenSubscription(
        id=inbound.id, route=inbound.route, kinds=frozenset(CHANGES[name] for name in kinds), followed={}
    )
    inbound.session.listens[inbound.id] = subscription
    told: dict[str, object] = dict.fromkeys(kinds, True)
    found = [
        (uri, prompts_resources.find_resource(inbound.session.view.suites.values(), uri))
        for uri in wishes.resource_subscriptions
    ]
    honoured = {uri: where for uri, where in found if where is not None}
    if honoured:
        told["resourceSubscriptions"] = list(honoured)
    subscription.tell(
        "notifications/subscriptions/acknowledged", {"notifications": Raw(jsonrpc.encode(told))}
    )
    for uri, where in honoured.items():
        where.suite.child.acquire(ListenWaiter(inbound, subscription, uri, where))


class ListenWaiter(DelegatedWaiter):
    """A resource that a modern host listens to, while its child is started for it."""

    __slots__ = ("found", "inbound", "listen", "uri")

    def __init__(
        self, inbound: IncomingRequest, listen: ListenSubscription, uri: str, found: ResolvedName
    ) -> None:
        super().__init__(inbound)
        self.inbound = inbound
        self.listen = listen
        self.uri = uri
        self.found = found

    def on_ready(self, child: Child) -> None:
        """The child is ready: follow, if the host still listens."""
        if (
            self.inbound.session.listens.get(self.listen.id) is self.listen
            and self.uri not in self.listen.followed
        ):
            self.listen.followed[self.uri] = FollowedResource(child, self.found.name)
            child.subscriptions.follow(self.found.name)

    def on_failed(self, problem: Failure) -> None:
        """A child that cannot be started changes nothing either."""


class Subscribe(ForwardedRequest):
    """`resources/subscribe` of a handshake-era host."""

    __slots__ = ("resource",)

    def __init__(self, inbound: IncomingRequest, found: ResolvedName) -> None:
        super().__init__(
            inbound,
            found.suite,
            "resources/subscribe",
            {**inbound.members, "uri": Raw(jsonrpc.encode(found.name))},
        )
        self.resource = FollowedResource(found.suite.child, found.name)

    def on_ready(self, child: Child) -> None:
        """A modern child is followed by listening to it, any other is asked."""
        self.resource = FollowedResource(child, self.resource.uri)
        if child.modern:
            child.subscriptions.follow(self.resource.uri, self._followed)
        else:
            super().on_ready(child)

    def answered(self, answer: RpcMessage) -> None:
        """Where the child agrees, it is followed."""
        if jsonrpc.error_in(answer) is None and self.wanted and self._note():
            self.child.subscriptions.follow(self.resource.uri, asked=True)
        super().answered(answer)

    def _followed(self, in_force: bool) -> None:
        if in_force and self.wanted and self._note():
            self.finish(b"{}")
            return
        self.child.subscriptions.unfollow(
            self.resource.uri
        )  # refused, unwanted, or followed by this host before
        if in_force:
            self.finish(b"{}")
        else:
            told = {"code": METHOD_NOT_FOUND, "message": f"Child '{self.child.name}' tells no changes."}
            self.finish_with_error(jsonrpc.encode(told))

    def _note(self) -> bool:
        """Note that the host follows it; False where it does already."""
        name = self.inbound.text("uri")
        if name in self.session.followed:
            return False
        self.session.followed[name] = self.resource
        return True


def unsubscribe(gateway: Gateway, inbound: IncomingRequest) -> None:
    """The host no longer follows a resource; the child hears of it when nobody does."""
    followed = inbound.session.followed.pop(inbound.text("uri"), None)
    if followed is not None:
        followed.child.subscriptions.unfollow(followed.uri)
    inbound.answer(b"{}")
