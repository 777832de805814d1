"""The desk where children's questions to their client are passed on: sampling, elicitation, roots, and what is unknown.

Four ways, by the eras of both ends:

| host | child | way |
| --- | --- | --- |
| handshake | handshake | the question goes to the host with an id of ours, the answer back with the child's |
| modern | handshake | the request is *parked*: answered with `input_required`, it goes on when the host comes back |
| handshake | modern | the child's `input_required` is asked question by question, then the child is called again |
| modern | modern | passes untouched; nothing to do here |

A question belongs to the one session whose requests the child is working on. Where that cannot be told, the child gets
an error: nobody is asked on behalf of somebody else.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.core import envelope, jsonrpc
from switchboard_mcp.core.envelope import InputRequired
from switchboard_mcp.core.jsonrpc import Message
from switchboard_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, failure
from switchboard_mcp.gateway.request import Encode, HostRequest
from switchboard_mcp.gateway.session import Route, Session
from switchboard_mcp.transport.link import Link
from switchboard_mcp.transport.peer import Peer, next_id

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child

# What a host must have declared to be asked this.
NEEDS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
# A person may have to answer; longer than this nobody is there.
PATIENCE_S = 3600.0
# A modern host that does not come back for its parked request within this time has given up.
PARKED_S = 600.0
# As many rounds as the SDKs' own clients allow.
MOST_ROUNDS = 10
STATE_PREFIX = "switchboard:"
# What a child asks at once comes in a few pieces; a round trip to the host costs more than waiting for the rest.
BREATH_S = 0.02
# Members of questions that only the handshake era knows.
LEGACY_MEMBERS = ("elicitationId", "task")

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class Question(Struct, rename="camel"):
    """One entry of `inputRequests`."""

    method: str
    params: Raw | UnsetType = UNSET


_decode_question = msgspec.json.Decoder(Question).decode


class Parked(Struct):
    """A modern host's request that waits for the host's input."""

    state: str
    request: HostRequest
    principal: str
    fingerprint: bytes
    questions: dict[str, tuple[Link, bytes, Message]] = {}
    outcome: tuple[Encode, Raw | bytes] | None = None


class Desk:
    """See the module."""

    def __init__(self, loop: AbstractEventLoop, workspace: str, sessions: list[Session]) -> None:
        self._loop = loop
        self._workspace = workspace
        self._sessions = sessions
        self._parked: dict[str, Parked] = {}

    def child_asked(self, child: Child, peer: Peer, message: Message) -> None:
        """A child asks its client something."""
        assert message.id is not UNSET
        link, child_id, method = peer.link, bytes(message.id), str(message.method)
        request = owner(peer)
        session = request.session if request is not None else self._only_session()
        capabilities = request.capabilities if request else session.capabilities if session else b"{}"
        if session is None or not may(capabilities, NEEDS.get(method)):
            if request is not None and request.modern and method in NEEDS:
                request.lacking = NEEDS[method]
            self._answer_alone(link, child_id, method)
        elif request is not None and request.modern:
            self._park(request, link, child_id, message)
        else:
            params = b"{}" if message.params is UNSET else bytes(message.params)
            self.ask(session, request, method, params, partial(_pass_on, link, child_id))

    def ask(
        self,
        session: Session,
        request: HostRequest | None,
        method: str,
        params: bytes,
        then: Callable[[Message], None],
    ) -> None:
        """Ask a handshake-era host, on the route of the request the question belongs to."""
        id = next_id()

        def answered(message: Message) -> None:
            if request is not None:
                request.deadline = self._loop.time() + request.timeout
            then(message)

        session.asked[id] = answered
        if request is not None:
            request.deadline = self._loop.time() + PATIENCE_S
        (request.route if request is not None else session.route).send(jsonrpc.request(id, method, params))

    def child_withdrew(self, peer: Peer, message: Message) -> None:
        """A child no longer wants the answer to its question: it is answered with nothing, and the host told."""
        # The host may go on; its late answer finds nobody. Ids of questions are ours, so nothing can be crossed.

    def answered(self, session: Session, message: Message) -> None:
        """A host answers a question of ours."""
        then = session.asked.pop(bytes(message.id), None) if message.id is not UNSET else None
        if then is not None:
            then(message)

    def gone(self, session: Session) -> None:
        """A host has gone: whoever waits for its answers is told."""
        asked, session.asked = session.asked, {}
        for then in asked.values():
            then(
                Message(error=Raw(jsonrpc.encode({"code": INTERNAL_ERROR, "message": "The host has gone."})))
            )

    def resume(
        self,
        session: Session,
        route: Route,
        id: bytes,
        state: str,
        fingerprint: bytes,
        responses: dict[str, Raw],
    ) -> bool:
        """A modern host comes back with input for a parked request; False where the state is not one of ours."""
        if not state.startswith(STATE_PREFIX):
            return False
        parked = self._parked.get(state)
        if parked is None or parked.principal != session.principal or parked.fingerprint != fingerprint:
            session.refuse(route, id, INVALID_PARAMS, "Unknown or expired requestState.")
            return True
        del self._parked[state]
        if parked.outcome is not None:
            encode, body = parked.outcome
            route.answer(encode(id, body))
            return True
        request = parked.request
        request.session, request.route, request.host_id = session, route, id
        session.under_way[id] = request
        for key, response in responses.items():
            question = parked.questions.pop(key, None)
            if question is not None:
                link, child_id, _ = question
                link.send(jsonrpc.result(child_id, response))
        if parked.questions:
            self._answer_parked(parked)
        else:
            request.deadline = self._loop.time() + request.timeout
        return True

    def run_round(self, request: HostRequest, asked: InputRequired, rounds: int = 1) -> None:
        """A modern child wants input; ask a handshake-era host question by question, then call the child again."""
        if rounds > MOST_ROUNDS:
            request.refused(
                failure(
                    "child_error", f"Child '{request.child.name}' keeps asking.", child=request.child.name
                )
            )
            return
        answers: dict[str, Raw] = {}
        missing = set(asked.input_requests)

        def again() -> None:
            extra = b',"inputResponses":' + jsonrpc.encode(answers) if asked.input_requests else b""
            if asked.request_state is not UNSET:
                extra += b',"requestState":' + bytes(asked.request_state)
            id = next_id()
            request.dispatch(request.child, id, request.build(request.child, id, extra))

        def got(key: str, message: Message) -> None:
            if message.result is UNSET:
                error = (
                    jsonrpc.parse_error(message.error) if message.error is not UNSET else jsonrpc.RpcError()
                )
                request.refused(
                    failure(
                        "host_refused",
                        f"The host did not answer the child's question: {error.message}",
                        child=request.child.name,
                    )
                )
                missing.clear()
            elif key in missing:
                answers[key] = message.result
                missing.discard(key)
                if not missing:
                    again()

        if not missing:
            again()
        for key, raw in asked.input_requests.items():
            question = _decode_question(raw)
            if not may(request.capabilities, NEEDS.get(question.method)):
                refusal = {"code": METHOD_NOT_FOUND, "message": f"it cannot be asked {question.method}"}
                got(key, Message(error=Raw(jsonrpc.encode(refusal))))
                return
            params = b"{}" if question.params is UNSET else bytes(question.params)
            self.ask(request.session, request, question.method, params, partial(got, key))

    def _park(self, request: HostRequest, link: Link, child_id: bytes, message: Message) -> None:
        parked: Parked | None = getattr(request, "parked", None)
        if parked is None:
            parked = Parked("", request, request.session.principal, request.fingerprint())
            request.parked = parked
        if not parked.questions:
            # What a child asks in one breath is asked together.
            self._loop.call_later(BREATH_S, self._answer_parked, parked)
        parked.questions[f"q{child_id.decode().strip(chr(34))}"] = (link, child_id, message)

    def _answer_parked(self, parked: Parked) -> None:
        request = parked.request
        if not request.wanted:
            return
        from secrets import token_urlsafe

        # Each round has a state of its own, which is good for one return.
        parked.state = STATE_PREFIX + token_urlsafe(24)
        self._parked[parked.state] = parked
        self._loop.call_later(PARKED_S, self._forget, parked.state)
        request.deadline = self._loop.time() + PARKED_S
        questions = {key: _embedded(message) for key, (_link, _id, message) in parked.questions.items()}
        del request.session.under_way[request.host_id]
        request.route.answer(jsonrpc.result(request.host_id, envelope.ask_for_input(questions, parked.state)))

    def _forget(self, state: str) -> None:
        parked = self._parked.pop(state, None)
        if parked is not None and parked.outcome is None:
            parked.request.cancel("the host did not come back")

    def _only_session(self) -> Session | None:
        ready = [session for session in self._sessions if session.initialized]
        return ready[0] if len(ready) == 1 else None

    def _answer_alone(self, link: Link, child_id: bytes, method: str) -> None:
        """Nobody can be asked; the workspace we know ourselves."""
        if method == "roots/list":
            link.send(jsonrpc.result(child_id, roots(self._workspace)))
        else:
            link.send(jsonrpc.error(child_id, METHOD_NOT_FOUND, f"No host can be asked: {method}"))


def owner(peer: Peer) -> HostRequest | None:
    """The request a child's unasked message belongs to: the latest, where all open ones are of one session."""
    requests = [call for call in peer.pending.values() if isinstance(call, HostRequest)]
    # One that is parked waits for its host, and asks nothing meanwhile.
    requests = [request for request in requests if request.wanted] or requests
    if not requests or any(request.session is not requests[0].session for request in requests):
        return None
    return requests[-1] if len(requests) == 1 or not requests[-1].modern else None


def may(capabilities: bytes, needed: str | None) -> bool:
    """Whether a host that declared these can be asked."""
    return needed is None or needed in _decode_object(capabilities)


def roots(folder: str) -> bytes:
    """The workspace as the only root."""
    from urllib.parse import quote

    return jsonrpc.encode({"roots": [{"uri": "file://" + quote(folder), "name": os.path.basename(folder)}]})


def _pass_on(link: Link, child_id: bytes, message: Message) -> None:
    """The host's answer, under the id the child gave its question."""
    if message.result is not UNSET:
        link.send(jsonrpc.result(child_id, message.result))
    else:
        error = (
            message.error if message.error is not UNSET else Raw(b'{"code":-32603,"message":"No answer."}')
        )
        link.send(jsonrpc.error_body(child_id, error))


def _embedded(message: Message) -> dict[str, object]:
    """A handshake-era question as a modern host reads it."""
    question: dict[str, object] = {"method": message.method}
    if message.params is not UNSET:
        members = _decode_object(message.params)
        question["params"] = {name: value for name, value in members.items() if name not in LEGACY_MEMBERS}
    return question
