"""Changes of one child that we want to hear of: of its lists always, of a resource while somebody follows it.

A handshake-era child tells changes of its lists by itself, and of resources it was subscribed to. A modern one tells
only those who listen: one `subscriptions/listen` is kept open for all of it, opened anew when other resources are
followed or when it is lost. What may have been missed meanwhile counts as changed.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND, Failure
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import UNREADABLE, AwaitedRequest, Peer, PendingRequest, next_id

# What can be listened to, by the capability that says so, and the notification it stands for.
LISTS = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
# A listen request is never late.
FOR_GOOD_S = 10 * 365 * 24 * 3600.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
# Answers that say that listening is not for this child at all.
NEVER = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})

Tell = Callable[[str, bytes], None]
Then = Callable[[bool], None]  # whether it is in force


class _Capability(Struct, rename="camel"):
    list_changed: bool | None = None


class _Acknowledged(Struct):
    meta: dict[str, Raw] = msgspec.field(name="_meta", default={})


_decode_capability = msgspec.json.Decoder(_Capability).decode
_decode_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


class Listening(PendingRequest):
    """One `subscriptions/listen` under way."""

    __slots__ = ("acknowledged", "following", "then")
    is_subscription = True

    def __init__(self, following: ChildSubscriptions, params: bytes, then: list[Then]) -> None:
        id = next_id()
        super().__init__(id, jsonrpc.request(id, "subscriptions/listen", params), FOR_GOOD_S)
        self.following = following
        self.then = then
        self.acknowledged = False

    def answered(self, answer: RpcMessage) -> None:
        """The child has ended it, or will not have it."""
        error = jsonrpc.get_error(answer)
        code = jsonrpc.parse_error(error).code if error is not None else 0
        self.following.lost(self, for_good=code in NEVER)

    def failed(self, problem: Failure) -> None:
        """It was lost, perhaps with the child."""
        self.following.lost(self, for_good=False)

    def timed_out(self) -> None:
        """Nobody lives that long."""
        self.following.lost(self, for_good=False)


class ChildSubscriptions:
    """See the module. `uris` has the resources that are followed, with how many follow each."""

    def __init__(self, context: ChildContext, timeout_s: float, tell: Tell) -> None:
        """`tell` hears of what may have changed unseen, as if the child had said so."""
        self.uris: dict[str, int] = {}
        self._context = context
        self._timeout_s = timeout_s
        self._tell = tell
        self._peer: Peer | None = None
        self._stateless = False
        self._lists: dict[str, str] = {}
        self._listening: Listening | None = None
        self._earlier: Listening | None = None
        self._then: list[Then] = []
        self._opening: TimerHandle | None = None
        self._wait_s = FIRST_WAIT_S
        self._missed = False

    def begin(self, peer: Peer, capabilities: dict[str, Raw], *, stateless: bool) -> None:
        """The child is ready."""
        self._peer, self._stateless = peer, stateless
        self._wait_s, self._missed = FIRST_WAIT_S, False
        if stateless:
            self._lists = dict(LISTS[name] for name in LISTS if _tells(capabilities.get(name, UNSET)))
            self._open_soon(0)
        else:
            for uri in self.uris:
                self._subscribe("resources/subscribe", uri)

    def end(self) -> None:
        """The child is gone."""
        if self._listening is not None:
            self._then += self._listening.then
        self._peer = self._listening = self._earlier = None
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self._settle(in_force=False)

    def follow(self, uri: str, then: Then | None = None, *, asked: bool = False) -> None:
        """One more follows a resource; `asked` where the child knows already. `then` hears what became of it."""
        self.uris[uri] = self.uris.get(uri, 0) + 1
        if then is not None:
            self._then.append(then)
            self._context.loop.call_later(self._timeout_s, self._overdue, then)
        if self._peer is not None and self._stateless:
            self._open_soon(0)
            return
        if self._peer is not None and self.uris[uri] == 1 and not asked:
            self._subscribe("resources/subscribe", uri)
        self._settle(in_force=True)

    def unfollow(self, uri: str) -> None:
        """One fewer follows it."""
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
        """The child listens to us listening."""
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
        _run(listening.then, in_force=True)
        if self._missed:
            self._missed = False
            self._catch_up()

    def lost(self, listening: Listening, *, for_good: bool) -> None:
        """A listen request has ended."""
        if listening is self._earlier:
            self._earlier = None
        if listening is not self._listening:
            return
        self._listening = None
        if for_good or self._peer is None:
            _run(listening.then, in_force=False)
        else:
            self._missed = True
            self._then += listening.then
            self._open_soon(self._wait_s)
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)

    def _overdue(self, then: Then) -> None:
        """Whoever still waits has waited long enough."""
        for waiting in (self._then, self._listening.then if self._listening is not None else []):
            if then in waiting:
                waiting.remove(then)
                then(False)

    def _open_soon(self, wait_s: float) -> None:
        """What changes at once is asked for together."""
        if self._opening is not None:
            if wait_s:
                return
            self._opening.cancel()
        self._opening = self._context.loop.call_later(wait_s, self._open)

    def _open(self) -> None:
        self._opening = None
        if self._peer is None:
            return
        wanted: dict[str, object] = dict.fromkeys(self._lists, True)
        if self.uris:
            wanted["resourceSubscriptions"] = list(self.uris)
        then, self._then = self._then, []
        if not wanted and self._listening is None:
            _run(then, in_force=True)
            return
        meta = message_meta.child_meta(UNSET, b"", stateless=True)
        assert meta is not None
        params = jsonrpc.encode({"notifications": wanted, "_meta": Raw(meta)})
        self._replace_earlier()  # it never came to be
        if self._listening is not None:
            then = [*self._listening.then, *then]
            self._listening.then = []
        self._earlier, self._listening = self._listening, Listening(self, params, then)
        self._peer.send(self._listening)

    def _replace_earlier(self) -> None:
        """The new one is in force: the earlier is not needed any more. In this order nothing is missed."""
        earlier, self._earlier = self._earlier, None
        if earlier is not None and self._peer is not None:
            self._peer.cancel(earlier, "replaced")

    def _catch_up(self) -> None:
        for notification in self._lists.values():
            self._tell(notification, b"{}")
        for uri in list(self.uris):
            self._tell(UPDATED, jsonrpc.encode({"uri": uri}))

    def _subscribe(self, method: str, uri: str) -> None:
        assert self._peer is not None
        params = jsonrpc.encode({"uri": uri})
        self._peer.send(AwaitedRequest(self._context.loop, method, params, self._timeout_s))

    def _settle(self, *, in_force: bool) -> None:
        then, self._then = self._then, []
        _run(then, in_force=in_force)


def _run(then: list[Then], *, in_force: bool) -> None:
    """Tell all that wait, once."""
    waiting = list(then)
    then.clear()
    for tell in waiting:
        tell(in_force)


def _tells(capability: Raw | UnsetType) -> bool:
    """Whether a child says that it tells changes of a list."""
    try:
        return capability is not UNSET and _decode_capability(capability).list_changed is True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
