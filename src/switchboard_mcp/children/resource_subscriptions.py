"""Subscriptions to changes of one child: to its lists always, to a resource while a host is subscribed to it.

A legacy child reports list changes on its own, and changes of subscribed resources. A stateless one needs an open
`subscriptions/listen` request: one is kept for everything, and reopened when the set of resources changes or the
request is lost. Whatever may have been missed meanwhile is reported as changed.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND, Failure
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import UNREADABLE, AwaitedRequest, Peer, PendingRequest, next_id

# By capability: the member of a listen request, and the notification it enables.
LISTS = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
# A listen request never times out.
NO_TIMEOUT_S = 10 * 365 * 24 * 3600.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
# Error codes of a child that does not support listening.
UNSUPPORTED_CODES = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})

Replay = Callable[[str, bytes], None]
Callback = Callable[[bool], None]  # called with True once the subscription is active


class _Capability(Struct, rename="camel"):
    list_changed: bool | None = None
    subscribe: bool | None = None


class _Acknowledged(Struct):
    meta: dict[str, Raw] = msgspec.field(name="_meta", default={})


_decode_capability = msgspec.json.Decoder(_Capability).decode
_decode_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


class Listening(PendingRequest):
    """An open `subscriptions/listen` request."""

    __slots__ = ("acknowledged", "callbacks", "subscriptions")
    is_subscription = True

    def __init__(self, subscriptions: ChildSubscriptions, params: bytes, callbacks: list[Callback]) -> None:
        id = next_id()
        super().__init__(id, jsonrpc.request(id, "subscriptions/listen", params), NO_TIMEOUT_S)
        self.subscriptions = subscriptions
        self.callbacks = callbacks
        self.acknowledged = False

    def answered(self, answer: RpcMessage) -> None:
        """Handle the end or the refusal of the request."""
        error = jsonrpc.get_error(answer)
        code = jsonrpc.parse_error(error).code if error is not None else 0
        self.subscriptions.lost(self, unsupported=code in UNSUPPORTED_CODES)

    def failed(self, problem: Failure) -> None:
        """Handle a lost request; the child may have exited."""
        self.subscriptions.lost(self, unsupported=False)

    def timed_out(self) -> None:
        """Handle a timeout, which cannot happen in practice."""
        self.subscriptions.lost(self, unsupported=False)


class ChildSubscriptions:
    """The subscriptions of one child. `uris` maps each resource to its number of subscribers."""

    def __init__(self, context: ChildContext, timeout_s: float, replay: Replay) -> None:
        """`replay` receives a notification for everything that may have changed unseen."""
        self.uris: dict[str, int] = {}
        self._context = context
        self._timeout_s = timeout_s
        self._replay = replay
        self._peer: Peer | None = None
        self._stateless = False
        self._lists: dict[str, str] = {}
        self._listening: Listening | None = None
        self._earlier: Listening | None = None
        self._callbacks: list[Callback] = []
        self._opening: TimerHandle | None = None
        self._wait_s = FIRST_WAIT_S
        self._missed = False

    def begin(self, peer: Peer, capabilities: dict[str, Raw], *, stateless: bool) -> None:
        """Subscribe at a child that has just started."""
        self._peer, self._stateless = peer, stateless
        self._wait_s, self._missed = FIRST_WAIT_S, False
        if stateless:
            self._lists = dict(
                LISTS[name] for name in LISTS if _announces_changes(capabilities.get(name, UNSET))
            )
            self._open_soon(0)
        else:
            for uri in self.uris:
                self._subscribe("resources/subscribe", uri)

    def end(self) -> None:
        """Forget the connection of a child that has stopped."""
        if self._listening is not None:
            self._callbacks += self._listening.callbacks
        self._peer = self._listening = self._earlier = None
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self._settle(is_active=False)

    def subscribe(self, uri: str, callback: Callback | None = None, *, already_sent: bool = False) -> None:
        """Add a subscriber of a resource; `already_sent` if the child has been asked. `callback` gets the result."""
        self.uris[uri] = self.uris.get(uri, 0) + 1
        if callback is not None:
            self._callbacks.append(callback)
            self._context.loop.call_later(self._timeout_s, self._expire, callback)
        if self._peer is not None and self._stateless:
            self._open_soon(0)
            return
        if self._peer is not None and self.uris[uri] == 1 and not already_sent:
            self._subscribe("resources/subscribe", uri)
        self._settle(is_active=True)

    def unsubscribe(self, uri: str) -> None:
        """Remove a subscriber of a resource."""
        left = self.uris.get(uri, 0) - 1
        if left > 0:
            self.uris[uri] = left
        elif uri in self.uris:
            del self.uris[uri]
            if self._peer is not None and self._stateless:
                self._open_soon(0)
            elif self._peer is not None:
                self._subscribe("resources/unsubscribe", uri)

    def acknowledged(self, message: RpcMessage) -> None:
        """Mark the open listen request as active."""
        listening = self._listening
        if listening is None or message.params is UNSET:
            return
        try:
            named = _decode_acknowledged(message.params).meta.get(message_meta.SUBSCRIPTION)
        except UNREADABLE:
            return
        if named is None or bytes(named) != listening.id:
            return
        listening.acknowledged = True
        self._wait_s = FIRST_WAIT_S
        self._replace_earlier()
        _run(listening.callbacks, is_active=True)
        if self._missed:
            self._missed = False
            self._replay_missed()

    def lost(self, listening: Listening, *, unsupported: bool) -> None:
        """Reopen a listen request that has ended, unless listening is unsupported."""
        if listening is self._earlier:
            self._earlier = None
        if listening is not self._listening:
            return
        self._listening = None
        if unsupported or self._peer is None:
            _run(listening.callbacks, is_active=False)
        else:
            self._missed = True
            self._callbacks += listening.callbacks
            self._open_soon(self._wait_s)
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)

    def _expire(self, callback: Callback) -> None:
        """Report failure to a callback that has waited too long."""
        for waiting in (self._callbacks, self._listening.callbacks if self._listening is not None else []):
            if callback in waiting:
                waiting.remove(callback)
                callback(False)

    def _open_soon(self, wait_s: float) -> None:
        """Schedule a listen request. Changes made at once share one request."""
        if self._opening is not None:
            if wait_s:
                return
            self._opening.cancel()
        self._opening = self._context.loop.call_later(wait_s, self._open)

    def _open(self) -> None:
        self._opening = None
        if self._peer is None:
            return
        requested: dict[str, object] = dict.fromkeys(self._lists, True)
        if self.uris:
            requested["resourceSubscriptions"] = list(self.uris)
        callbacks, self._callbacks = self._callbacks, []
        if not requested and self._listening is None:
            _run(callbacks, is_active=True)
            return
        meta = message_meta.child_meta(UNSET, b"", stateless=True)
        assert meta is not None
        params = jsonrpc.encode({"notifications": requested, "_meta": Raw(meta)})
        self._replace_earlier()  # it was never acknowledged
        if self._listening is not None:
            callbacks = [*self._listening.callbacks, *callbacks]
            self._listening.callbacks = []
        self._earlier, self._listening = self._listening, Listening(self, params, callbacks)
        self._peer.send(self._listening)

    def _replace_earlier(self) -> None:
        """Cancel the earlier request once the new one is active. In this order nothing is missed."""
        earlier, self._earlier = self._earlier, None
        if earlier is not None and self._peer is not None:
            self._peer.cancel(earlier, "replaced")

    def _replay_missed(self) -> None:
        for notification in self._lists.values():
            self._replay(notification, b"{}")
        for uri in list(self.uris):
            self._replay(UPDATED, jsonrpc.encode({"uri": uri}))

    def _subscribe(self, method: str, uri: str) -> None:
        assert self._peer is not None
        params = jsonrpc.encode({"uri": uri})
        self._peer.send(AwaitedRequest(self._context.loop, method, params, self._timeout_s))

    def _settle(self, *, is_active: bool) -> None:
        callbacks, self._callbacks = self._callbacks, []
        _run(callbacks, is_active=is_active)


def _run(callbacks: list[Callback], *, is_active: bool) -> None:
    """Call all callbacks, once."""
    waiting = list(callbacks)
    callbacks.clear()
    for callback in waiting:
        callback(is_active)


def _announces_changes(capability: Raw | UnsetType) -> bool:
    """Return True if a capability announces list changes."""
    try:
        return capability is not UNSET and _decode_capability(capability).list_changed is True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def may_subscribe(snapshot: ServerSnapshot | None) -> bool:
    """Return True if a child has subscriptions to resources, or nothing is known of it."""
    try:
        declared = snapshot.capabilities.get("resources", UNSET) if snapshot is not None else UNSET
        return snapshot is None or (declared is not UNSET and _decode_capability(declared).subscribe is True)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
