"""Attributes messages that a child sends on its own to the one host they belong to.

A message that names a task belongs to the client that holds the task. Otherwise a child on stdio does not say which
request a log message or client request belongs to. It is attributed to the request in flight if all requests in flight
come from one host. If several hosts use the child, the message reaches none of them: it might belong to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.context import ChildHandle
from switchboard_mcp.gateway.issued_ids import IdKind, IssuedIds
from switchboard_mcp.gateway.request import HostRequest
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.protocol import result_ids
from switchboard_mcp.protocol.client_requests import has_roots
from switchboard_mcp.transport.rpc import Peer


class MessageOwner(Struct, frozen=True):
    """A host and, if known, its request that a message belongs to."""

    session: Session
    request: HostRequest | None = None

    @property
    def channel(self) -> ReplyChannel | None:
        """The channel to reply on: the request's own while it is open; None while the request is suspended."""
        if self.request is None:
            return self.session.channel if self.session.initialized else None
        return self.request.channel if self.request.is_awaited else None

    @property
    def capabilities(self) -> bytes:
        """The host's client capabilities."""
        return self.session.capabilities if self.request is None else self.request.capabilities


def owner_of(
    child: ChildHandle,
    peer: Peer,
    sessions: Sequence[Session],
    issued: IssuedIds,
    params: Raw | UnsetType = UNSET,
) -> MessageOwner | None:
    """Return the owner of a message that the child sends now; None if it is ambiguous."""
    task = result_ids.task_concerned(params)
    if task:
        return _owner_of_task(child, peer, issued, task)
    related: bytes = getattr(peer.transport, "related", b"")  # transports with a reply channel per request
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
    # A suspended request waits for its host and usually sends nothing meanwhile, so only its principal must match.
    if any(request.session.principal != latest.session.principal for request in requests):
        return None
    return MessageOwner(latest.session, latest)


def owner_with_roots(child: ChildHandle, owner: MessageOwner | None, method: str) -> MessageOwner | None:
    """Return the owner of a question: of one for roots that belongs to no call, the first call that waits for it."""
    if method != "roots/list" or (owner is not None and owner.request is not None):
        return owner
    for waiter in child.waiters():
        if isinstance(waiter, HostRequest) and waiter.is_awaited and has_roots(waiter.capabilities):
            return MessageOwner(waiter.session, waiter)
    return owner


def _owner_of_task(child: ChildHandle, peer: Peer, issued: IssuedIds, task: str) -> MessageOwner | None:
    """Return the host that a task belongs to: that of the request which awaits it, or the session that holds it."""
    for request in requests_in_flight(peer):
        if getattr(request, "task", None) == task:
            return MessageOwner(request.session, request)
    session = issued.session_of(child, IdKind.TASK, task)
    return session_owner(session, peer)


def session_owner(session: object, peer: Peer) -> MessageOwner | None:
    """Return a session as an owner, with its latest request that the child works on; None if it is not connected."""
    if not isinstance(session, Session):
        return None
    own = [
        request for request in requests_in_flight(peer) if request.session is session and request.is_awaited
    ]
    return MessageOwner(session, own[-1] if own else None)


def requests_in_flight(peer: Peer) -> Iterator[HostRequest]:
    """Yield the host requests that a child is working on, oldest first."""
    for call in peer.pending.values():
        if isinstance(call, HostRequest) and not peer.is_waiting(call):
            yield call


def _owner_when_idle(child: ChildHandle, sessions: Sequence[Session]) -> MessageOwner | None:
    """Return the host an idle child may address: the one it is kept for, or the only one connected.

    None if a different host used the child last: its late messages are not for later hosts.
    """
    if isinstance(child.owner, Session):
        return MessageOwner(child.owner)
    if len(sessions) != 1 or not child.is_shared or child.last_session not in (None, sessions[0]):
        return None
    return MessageOwner(sessions[0]) if sessions[0].initialized else None
