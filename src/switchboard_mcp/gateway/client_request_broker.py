"""The desk where children's questions to their client are passed on: sampling, elicitation, roots, and what is unknown.

Four ways, by the eras of both ends:

| host | child | way |
| --- | --- | --- |
| handshake | handshake | the question goes to the host with an id of ours, the answer back with the child's |
| modern | handshake | the request is *parked*: answered with `input_required`, it goes on when the host comes back |
| handshake | modern | the child's `input_required` is asked question by question, then the child is called again |
| modern | modern | passes untouched; nothing to do here |

A question belongs to the one session whose requests the child is working on. Where that cannot be told, the child gets
an error: nobody is asked on behalf of somebody else. The second way is in `parking`, the third in `rounds`.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.errors import INTERNAL_ERROR, METHOD_NOT_FOUND
from switchboard_mcp.gateway.attribution import party
from switchboard_mcp.gateway.request import HostRequest
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.gateway.suspended_requests import Origin, SuspendedRequests
from switchboard_mcp.protocol import client_requests, jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import Cancelled, Peer, ProgressHead, next_id

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child

ROOTS = "roots/list"
# A person may have to answer; longer than this nobody is there.
PATIENCE_S = 3600.0
# So many at once are no questions but a flood.
MOST_ASKED = 256
# The question expires first, so that the child hears why.
GRACE_S = 60.0

_decode_cancelled = msgspec.json.Decoder(Cancelled).decode
_decode_progress = msgspec.json.Decoder(ProgressHead).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class PendingClientRequest(Struct):
    """A question that a handshake-era host has not answered yet."""

    then: Callable[[RpcMessage], None]
    request: HostRequest | None
    timer: TimerHandle
    origin: Origin | None = None
    token: Raw | None = None  # the child's own, for progress


class ClientRequestBroker:
    """See the module."""

    def __init__(self, loop: AbstractEventLoop, workspace: str, sessions: list[Session]) -> None:
        self.lot = SuspendedRequests(loop)
        self.loop = loop
        self._workspace = workspace
        self._sessions = sessions

    def child_asked(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A child asks its client something."""
        assert message.id is not UNSET
        origin = Origin(peer.link, bytes(message.id))
        method = str(message.method)
        whose = party(child, peer, self._sessions)
        if whose is None:
            self._answer_alone(child, origin, method)
            return
        lacks = client_requests.lacking(whose.capabilities, method, message.params)
        if len(whose.session.asked) >= MOST_ASKED:
            origin.refuse(INTERNAL_ERROR, "Too many questions are open.")
        elif lacks is not None:
            if whose.request is not None and method != ROOTS:  # those we know ourselves
                whose.request.lack(lacks)
            self._answer_alone(child, origin, method)
        elif whose.request is not None and whose.request.modern:
            if (
                method not in client_requests.EMBEDDED
            ):  # no result may have it, and one that has it cannot be read
                self._answer_alone(child, origin, method)
                return
            self.lot.park(whose.request, origin, method, message.params)
        else:
            params = b"{}" if message.params is UNSET else bytes(message.params)
            self.ask(whose.session, whose.request, method, params, partial(_pass_on, origin), origin)

    def ask(
        self,
        session: Session,
        request: HostRequest | None,
        method: str,
        params: bytes,
        then: Callable[[RpcMessage], None],
        origin: Origin | None = None,
    ) -> None:
        """Ask a handshake-era host, on the route of the request the question belongs to."""
        id = next_id()
        params, token = client_requests.replace_token(params, id)
        timer = self.loop.call_later(PATIENCE_S, self._expire, session, id)
        session.asked[id] = PendingClientRequest(then, request, timer, origin, token)
        if request is not None:
            request.allow(PATIENCE_S + GRACE_S)
        (request.route if request is not None else session.route).send(jsonrpc.request(id, method, params))

    def answered(self, session: Session, message: RpcMessage) -> None:
        """A host answers a question of ours."""
        asked = session.asked.pop(bytes(message.id), None) if message.id is not UNSET else None
        if asked is not None:
            asked.timer.cancel()
            request = asked.request
            if request is not None and all(other.request is not request for other in session.asked.values()):
                request.allow(request.timeout)
            asked.then(message)

    def host_progressed(self, session: Session, params: Raw) -> None:
        """A host reports progress with a question: the child hears of it under its own token."""
        token = _decode_progress(params).progress_token
        asked = session.asked.get(bytes(token)) if token is not UNSET else None
        if asked is not None and asked.origin is not None and asked.token is not None:
            told = jsonrpc.encode({**_decode_object(params), "progressToken": asked.token})
            asked.origin.link.send(jsonrpc.notification("notifications/progress", told))

    def child_withdrew(self, peer: Peer, params: Raw) -> None:
        """A child no longer wants the answer to its question."""
        cancelled = _decode_cancelled(params)
        if cancelled.request_id is UNSET:
            return
        origin = Origin(peer.link, bytes(cancelled.request_id))
        self.lot.withdraw(origin)
        for session in self._sessions:
            for id, asked in list(session.asked.items()):
                if asked.origin == origin:
                    self._withdraw(session, id, cancelled.reason or "withdrawn by the server")

    def over(self, request: HostRequest, why: str) -> None:
        """A request has ended, and with it its questions."""
        session = request.session
        for id, asked in list(session.asked.items()):
            if asked.request is request:
                self._withdraw(session, id, why)
                asked.then(_trouble(why))
        self.lot.drop(request, why)

    def gone(self, session: Session) -> None:
        """A host has gone: whoever waits for its answers is told."""
        asked, session.asked = session.asked, {}
        for question in asked.values():
            question.timer.cancel()
            question.then(_trouble("The host has gone."))
        self.lot.gone(session)

    def _expire(self, session: Session, id: bytes) -> None:
        asked = session.asked[id]
        self._withdraw(session, id, "timeout")
        asked.then(_trouble("The host did not answer."))

    def _withdraw(self, session: Session, id: bytes, why: str) -> None:
        """Tell a host that its answer is no longer wanted."""
        asked = session.asked.pop(id)
        asked.timer.cancel()
        request = asked.request
        route = request.route if request is not None and request.wanted else session.route
        told = b'{"requestId":%b,"reason":%b}' % (id, jsonrpc.encode(why))
        route.send(jsonrpc.notification("notifications/cancelled", told))
        if request is not None and all(other.request is not request for other in session.asked.values()):
            request.allow(request.timeout)

    def _answer_alone(self, child: Child, origin: Origin, method: str) -> None:
        """Nobody can be asked; the workspace we know ourselves."""
        if method == ROOTS:
            origin.answer(roots(self._workspace))
            return
        told = f"No host can be asked: {method}."
        if len(self._sessions) > 1 and child.owner is None:
            told += f' With several hosts at once, set suites.{child.name}.isolation to "session".'
        origin.refuse(METHOD_NOT_FOUND, told)


def roots(folder: str) -> bytes:
    """The workspace as the only root."""
    from urllib.parse import quote

    return jsonrpc.encode({"roots": [{"uri": "file://" + quote(folder), "name": os.path.basename(folder)}]})


def _pass_on(origin: Origin, message: RpcMessage) -> None:
    """The host's answer, under the id the child gave its question."""
    error = jsonrpc.error_in(message)
    if error is None:
        origin.answer(message.result)  # type: ignore[arg-type]  # there is one, where there is no error
    else:
        origin.link.send(jsonrpc.error_body(origin.id, error))


def _trouble(what: str) -> RpcMessage:
    return RpcMessage(error=Raw(jsonrpc.encode({"code": INTERNAL_ERROR, "message": what})))
