"""A modern child's `input_required`, played to a handshake-era host: each question a request, then the call again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.request_context import DelegatedWaiter
from switchboard_mcp.protocol import client_requests, jsonrpc
from switchboard_mcp.protocol.client_requests import ClientRequest
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.message_meta import InputRequired

if TYPE_CHECKING:
    from switchboard_mcp.gateway.request import HostRequest

# As many rounds as the SDKs' own clients allow.
MOST_ROUNDS = 10
# A child that asks nothing wants to be called again later; the wait doubles with each round.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0


class InputRound:
    """One round of one request."""

    def __init__(self, request: HostRequest, asked: InputRequired) -> None:
        self._request = request
        self._asked = asked
        self._answers: dict[str, Raw] = {}
        self._over = False

    def begin(self) -> None:
        """Ask the host everything there is to ask, or say why that cannot be."""
        request, child = self._request, self._request.child.name
        request.rounds = number = getattr(request, "rounds", 0) + 1
        if number > MOST_ROUNDS:
            request.on_failed(
                failure(
                    "child_error", f"Child '{child}' asked {MOST_ROUNDS} times and asks again.", child=child
                )
            )
            return
        asked = {key: client_requests.read_question(raw) for key, raw in self._asked.input_requests.items()}
        for question in asked.values():
            if client_requests.lacking(request.capabilities, question.method, question.params) is not None:
                self._refuse(f"it cannot be asked {question.method}")
                return
        for key, question in asked.items():
            self._ask(key, question)
        if not asked:
            wait_s = min(FIRST_WAIT_S * 2 ** (number - 1), LONGEST_WAIT_S)
            request.session.desk.loop.call_later(wait_s, self._again)

    def _ask(self, key: str, question: ClientRequest) -> None:
        request = self._request
        params = client_requests.pushed(question, f"{request.host_id.decode()}-{request.rounds}-{key}")
        request.session.desk.ask(request.session, request, question.method, params, partial(self._got, key))

    def _got(self, key: str, message: RpcMessage) -> None:
        if self._over:
            return
        error = jsonrpc.error_in(message)
        if error is not None:
            self._refuse(jsonrpc.parse_error(error).message or "no reason given")
            return
        self._answers[key] = message.result  # type: ignore[assignment]  # there is one, where there is no error
        if len(self._answers) == len(self._asked.input_requests):
            self._again()

    def _refuse(self, why: str) -> None:
        self._over = True
        request, child = self._request, self._request.child.name
        request.session.desk.over(request, "another question was not answered")
        request.on_failed(
            failure(
                "host_refused",
                f"The host did not answer what child '{child}' asks: {why}.",
                child=child,
            )
        )

    def _again(self) -> None:
        if self._request.wanted:
            extra = b',"inputResponses":' + jsonrpc.encode(self._answers) if self._answers else b""
            if self._asked.request_state is not UNSET:
                extra += b',"requestState":' + bytes(self._asked.request_state)
            self._request.suite.child.acquire(Retry(self._request, extra))


class Retry(DelegatedWaiter):
    """The same call once more, with the host's answers where it has given some."""

    __slots__ = ("extra", "request")

    def __init__(self, request: HostRequest, extra: bytes) -> None:
        super().__init__(request)
        self.request = request
        self.extra = extra

    @property
    def modern(self) -> bool:
        """Only a child of that era is called again."""
        return True

    def rebind(self, child: Child) -> None:
        """While the host thought about it, its own process may have gone."""
        self.request.rebind(child)

    def on_ready(self, child: Child) -> None:
        """The child is ready, as it mostly is."""
        if self.request.wanted:
            self.request.extra = self.extra
            self.request.on_ready(child)

    def on_failed(self, problem: Failure) -> None:
        """The child has gone meanwhile."""
        self.request.on_failed(problem)
