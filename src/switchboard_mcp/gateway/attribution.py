"""Whose a child's unasked message is: the one host it belongs to, or nobody's.

A child on a pipe does not say for which request it asks or logs. It is taken to be for the request it works on, as long
as all it works on is of one host; where several hosts are at work with it, nobody hears what may be another's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.gateway.request import HostRequest
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.transport.rpc import Peer


class MessageOwner(Struct, frozen=True):
    """A host, and the request of it that a message belongs to, where there is one."""

    session: Session
    request: HostRequest | None = None

    @property
    def channel(self) -> ReplyChannel | None:
        """Where it is told: on the road of the request while that is open, and not at all while it is parked."""
        if self.request is None:
            return self.session.channel if self.session.initialized else None
        return self.request.channel if self.request.is_awaited else None

    @property
    def capabilities(self) -> bytes:
        """What the host can do for a child that asks."""
        return self.session.capabilities if self.request is None else self.request.capabilities


def owner_of(child: Child, peer: Peer, sessions: Sequence[Session]) -> MessageOwner | None:
    """Whose a message is that comes from the child now."""
    related: bytes = getattr(peer.transport, "related", b"")  # where each request has a way back of its own
    if related:
        call = peer.pending.get(related)
        if isinstance(call, HostRequest):
            return MessageOwner(call.session, call)
        return None if call is None else _owner_when_idle(child, sessions)
    requests = list(requests_in_flight(peer))
    if not requests:
        return _owner_when_idle(child, sessions)
    waiting = [request for request in requests if request.is_awaited]
    latest = (waiting or requests)[-1]
    if any(request.session is not latest.session for request in waiting):
        return None
    # One that is parked waits for its host, and asks nothing meanwhile as a rule: its own host is not in doubt then.
    if any(request.session.principal != latest.session.principal for request in requests):
        return None
    return MessageOwner(latest.session, latest)


def requests_in_flight(peer: Peer) -> Iterator[HostRequest]:
    """The requests of hosts that a child works on, oldest first."""
    for call in peer.pending.values():
        if isinstance(call, HostRequest):
            yield call


def _owner_when_idle(child: Child, sessions: Sequence[Session]) -> MessageOwner | None:
    """Whom a child may mean that works on nothing: the host it is kept for, or the only one there is.

    But not where it was another that used it last: what that one has left behind is not for those who came after.
    """
    if isinstance(child.owner, Session):
        return MessageOwner(child.owner)
    if len(sessions) != 1 or child.owner is not None or child.last_session not in (None, sessions[0]):
        return None
    return MessageOwner(sessions[0]) if sessions[0].initialized else None
