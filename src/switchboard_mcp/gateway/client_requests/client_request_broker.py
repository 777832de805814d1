"""Relays children's requests to their client: sampling, elicitation, roots, and unknown methods.

The route depends on the protocol versions of both ends:

| host | child | route |
| --- | --- | --- |
| legacy | legacy | the request goes to the host under our id, the response back under the child's |
| stateless | legacy | the host's request is *suspended*: answered with `input_required`, continued when resumed |
| legacy | stateless | each item of the child's `input_required` is sent to the host, then the child is called again |
| stateless | stateless | passes through unchanged; nothing to do here |

A client request belongs to the one session whose requests the child is working on. If that is ambiguous, the child gets
an error: no host is asked on behalf of another. The second route is in `suspended_requests`, the third in
`input_required`.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import INTERNAL_ERROR, METHOD_NOT_FOUND
from switchboard_mcp.gateway.attribution import MessageOwner, owner_of, owner_with_roots
from switchboard_mcp.gateway.client_requests.client_request import (
    ChildRequest,
    InputOrigin,
    KeptResults,
    OpenRequest,
    PendingClientRequest,
)
from switchboard_mcp.gateway.client_requests.suspended_requests import SUSPEND_TIMEOUT_S, SuspendedRequests
from switchboard_mcp.gateway.held_session import asking_request, hold
from switchboard_mcp.gateway.issued_ids import IdKind, IssuedIds
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import client_requests, jsonrpc, result_ids
from switchboard_mcp.protocol.jsonrpc import RpcMessage, decode_members
from switchboard_mcp.transport.rpc import Cancelled, Peer, ProgressTarget, next_id

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildHandle
    from switchboard_mcp.gateway.request import HostRequest

ROOTS = "roots/list"
ELICITATION = "elicitation/create"
# A person may have to answer; after this long they are not coming back.
ANSWER_TIMEOUT_S = 3600.0
# Upper bound on outstanding requests to one host.
MAX_PENDING = 256
# The client request expires before the call's deadline, so the child receives the reason.
GRACE_S = 60.0

_decode_cancelled = msgspec.json.Decoder(Cancelled).decode
_decode_progress = msgspec.json.Decoder(ProgressTarget).decode


class ClientRequestBroker:
    """Sends client requests to hosts and routes the responses back."""

    def __init__(self, loop: AbstractEventLoop, workspace: str, sessions: list[Session]) -> None:
        self.suspended = SuspendedRequests(loop)
        self.issued = IssuedIds()
        self.loop = loop
        self.results: KeptResults | None = None
        self._workspace = workspace
        self._sessions = sessions
        # Digits before the ids of requests to hosts, so that a response to an earlier process is not taken for one.
        self.id_prefix = b""
        # Called with a child, and the session it asks if there is one, if its request belongs to no single call.
        self.on_request_of_no_call: Callable[[ChildHandle, Session | None], None] | None = None
        # True if roots are declared to children also for hosts without them: the list of roots is then empty.
        self.declares_roots = False

    def on_child_request(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        """Handle a request from a child to its client."""
        assert message.id is not UNSET
        method = str(message.method)
        origin = _origin(child, peer, method, bytes(message.id))
        owner = owner_of(child, peer, self._sessions, self.issued, message.params)
        if owner is None and self.on_request_of_no_call is not None:
            user = child.sole_user()
            owner = (
                MessageOwner(user)
                if isinstance(user, Session) and user.initialized and not user.closed
                else None
            )
        if (
            self.on_request_of_no_call is not None
            and child.is_shared
            and (owner is None or owner.request is None)
            and method in client_requests.INPUT_REQUEST_METHODS
        ):
            self.on_request_of_no_call(child, None if owner is None else owner.session)
        owner = owner_with_roots(child, owner, method)
        if owner is None:
            self._answer_without_host(child, origin, method)
            return
        if owner.request is not None:
            asking = asking_request(owner.request)
            if asking is not owner.request and asking.is_stateless:
                self._ask_for_program(child, origin, method, message.params, owner.request, asking)
                return
        missing = client_requests.missing_capability(owner.capabilities, method, message.params)
        if len(owner.session.pending_client_requests) >= MAX_PENDING:
            origin.refuse(INTERNAL_ERROR, "Too many client requests are pending.")
        elif missing is not None:
            if owner.request is not None and method != ROOTS:  # those we know ourselves
                owner.request.add_missing_capability(missing)
            self._answer_without_host(child, origin, method)
        elif owner.request is not None and owner.request.is_stateless:
            if (
                method not in client_requests.INPUT_REQUEST_METHODS
            ):  # no result may have it, and one that has it cannot be read
                self._answer_without_host(child, origin, method)
                return
            self.suspended.suspend(owner.request, origin, method, message.params)
        else:
            params = b"{}" if message.params is UNSET else bytes(message.params)
            elicitation = result_ids.elicitation(message.params) if method == ELICITATION else ""
            if elicitation:
                self.issued.issue(owner.session, child, IdKind.ELICITATION, elicitation)
            self.send(owner.session, owner.request, method, params, partial(_relay_response, origin), origin)

    def _ask_for_program(
        self,
        child: ChildHandle,
        origin: ChildRequest,
        method: str,
        params: Raw | UnsetType,
        call: HostRequest,
        run: HostRequest,
    ) -> None:
        """Ask a stateless host for input that a child needs for the call of a program: in the answer to its `run`."""
        missing = client_requests.missing_capability(run.capabilities, method, params)
        is_open = run.is_awaited or getattr(run, "suspended", None) is not None
        if missing is not None or not is_open or method not in client_requests.INPUT_REQUEST_METHODS:
            if missing is not None and method != ROOTS:
                call.add_missing_capability(missing)
            self._answer_without_host(child, origin, method)
            return
        self.suspend_run(call, run, origin, method, params)

    def suspend_run(
        self, call: OpenRequest, run: OpenRequest, origin: InputOrigin, method: str, params: Raw | UnsetType
    ) -> None:
        """Request input for the call of a program in the answer to the request that runs it."""
        if run.is_awaited:
            hold(cast("HostRequest", run))
        call.extend_deadline(SUSPEND_TIMEOUT_S * 2)
        self.suspended.suspend(run, origin, method, params)

    def send(
        self,
        session: Session,
        request: OpenRequest | None,
        method: str,
        params: bytes,
        on_response: Callable[[RpcMessage], None],
        origin: ChildRequest | None = None,
    ) -> None:
        """Send a request to a legacy host, on the channel of the request it belongs to."""
        id = self.id_prefix + next_id()
        params, token = client_requests.replace_progress_token(params, id)
        timer = self.loop.call_later(ANSWER_TIMEOUT_S, self._expire, session, id)
        session.pending_client_requests[id] = PendingClientRequest(on_response, request, timer, origin, token)
        if request is not None:
            request.extend_deadline(ANSWER_TIMEOUT_S + GRACE_S)
        (request.channel if request is not None else session.channel).send(
            jsonrpc.request(id, method, params)
        )

    def on_host_response(self, session: Session, message: RpcMessage) -> None:
        """Handle a host's response to a client request."""
        pending = (
            session.pending_client_requests.pop(bytes(message.id), None) if message.id is not UNSET else None
        )
        if pending is not None:
            pending.timer.cancel()
            request = pending.request
            _restore_deadline(session, request)
            pending.on_response(message)

    def on_host_progress(self, session: Session, params: Raw) -> None:
        """Relay a host's progress on a client request to the child, under the child's own token."""
        token = _decode_progress(params).progress_token
        pending = session.pending_client_requests.get(bytes(token)) if token is not UNSET else None
        if pending is not None and pending.origin is not None and pending.token is not None:
            params_for_child = jsonrpc.encode({**decode_members(params), "progressToken": pending.token})
            pending.origin.link.send(jsonrpc.notification("notifications/progress", params_for_child))

    def on_child_cancelled(self, peer: Peer, params: Raw) -> None:
        """Cancel a client request that its child has withdrawn."""
        cancelled = _decode_cancelled(params)
        if cancelled.request_id is UNSET:
            return
        origin = ChildRequest(peer.transport, bytes(cancelled.request_id))
        self.suspended.cancel_input(origin)
        for session in self._sessions:
            for id, pending in list(session.pending_client_requests.items()):
                if pending.origin == origin:
                    self._cancel(session, id, cancelled.reason or "withdrawn by the server")

    def request_ended(self, request: OpenRequest, reason: str) -> None:
        """Cancel the client requests of a request that has ended."""
        session = request.session
        for id, pending in list(session.pending_client_requests.items()):
            if pending.request is request:
                self._cancel(session, id, reason)
                pending.on_response(_error_response(reason))
        self.suspended.drop_inputs(request, reason)

    def session_closed(self, session: Session) -> None:
        """Fail the client requests of a host that has disconnected."""
        pending, session.pending_client_requests = session.pending_client_requests, {}
        for client_request in pending.values():
            client_request.timer.cancel()
            client_request.on_response(_error_response("The host has disconnected."))
        self.suspended.session_closed(session)

    def _expire(self, session: Session, id: bytes) -> None:
        pending = session.pending_client_requests[id]
        self._cancel(session, id, "timeout")
        pending.on_response(_error_response("The host did not answer."))

    def _cancel(self, session: Session, id: bytes, reason: str) -> None:
        """Tell a host that its response is no longer needed."""
        pending = session.pending_client_requests.pop(id)
        pending.timer.cancel()
        request = pending.request
        channel = request.channel if request is not None and request.is_awaited else session.channel
        params = b'{"requestId":%b,"reason":%b}' % (id, jsonrpc.encode(reason))
        channel.send(jsonrpc.notification("notifications/cancelled", params))
        _restore_deadline(session, request)

    def _answer_without_host(self, child: ChildHandle, origin: ChildRequest, method: str) -> None:
        """Answer a client request that no host can answer; the roots are known without one."""
        if method == ROOTS:
            child.roots.has_fallback = True
            origin.answer(b'{"roots":[]}' if self.declares_roots else roots(self._workspace))
            return
        message = f"No host can answer {method}."
        if len(self._sessions) > 1 and child.is_shared:
            message += f' If several hosts are connected, set suites.{child.name}.isolation to "session".'
        origin.refuse(METHOD_NOT_FOUND, message)


def _origin(child: ChildHandle, peer: Peer, method: str, id: bytes) -> ChildRequest:
    return ChildRequest(child.roots.ask(peer.transport) if method == ROOTS else peer.transport, id)


def _restore_deadline(session: Session, request: OpenRequest | None) -> None:
    """Give a request its ordinary timeout again once the host has answered everything asked on its behalf."""
    if request is None:
        return
    if all(other.request is not request for other in session.pending_client_requests.values()):
        request.restore_deadline()


def roots(folder: str) -> bytes:
    """Return a `roots/list` result with the workspace as the only root."""
    from urllib.parse import quote

    return jsonrpc.encode({"roots": [{"uri": "file://" + quote(folder), "name": os.path.basename(folder)}]})


def _relay_response(origin: ChildRequest, message: RpcMessage) -> None:
    """Send the host's response to the child, under the child's own id."""
    error = jsonrpc.get_error(message)
    if error is None:
        origin.answer(message.result)  # type: ignore[arg-type]  # there is one, where there is no error
    else:
        origin.link.send(jsonrpc.error_body(origin.id, error))


def _error_response(message: str) -> RpcMessage:
    return RpcMessage(error=Raw(jsonrpc.encode({"code": INTERNAL_ERROR, "message": message})))
