"""Translates a stateless child's `input_required` result for a legacy host.

Each input request is sent to the host as a separate request; the call is then repeated with the host's answers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.held_session import asking_request
from switchboard_mcp.gateway.request_context import DelegatedWaiter
from switchboard_mcp.protocol import client_requests, jsonrpc
from switchboard_mcp.protocol.client_requests import ClientRequest
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.message_meta import InputRequired

if TYPE_CHECKING:
    from switchboard_mcp.gateway.request import HostRequest

# The limit of the SDKs' own clients.
MAX_ROUNDS = 10
# A child that requests no input wants to be called again later; the wait doubles with each round.
FIRST_WAIT_S, MAX_WAIT_S = 0.1, 5.0


class InputRound:
    """One `input_required` round of a request."""

    def __init__(self, request: HostRequest, result: InputRequired) -> None:
        self._request = request
        self._result = result
        self._answers: dict[str, Raw] = {}
        self._finished = False

    def begin(self) -> None:
        """Send every input request to the host, or answer with a failure if the host cannot handle one."""
        request, child = self._request, self._request.child.name
        asking = asking_request(request)
        request.rounds = number = getattr(request, "rounds", 0) + 1
        if number > MAX_ROUNDS:
            request.on_failed(
                failure(
                    "child_error",
                    f"Child '{child}' requested input more than {MAX_ROUNDS} times.",
                    child=child,
                )
            )
            return
        requests = {
            key: client_requests.decode_client_request(raw)
            for key, raw in self._result.input_requests.items()
        }
        for client_request in requests.values():
            if (
                client_requests.missing_capability(
                    asking.capabilities, client_request.method, client_request.params
                )
                is not None
            ):
                self._fail(f"it does not support {client_request.method}")
                return
        for key, client_request in requests.items():
            if asking is not request and asking.is_stateless:  # the call of a program of a stateless host
                method, params = client_request.method, client_request.params
                request.session.broker.suspend_run(request, asking, _RoundInput(self, key), method, params)
            else:
                self._ask(key, client_request)
        if not requests:
            wait_s = min(FIRST_WAIT_S * 2 ** (number - 1), MAX_WAIT_S)
            request.session.broker.loop.call_later(wait_s, self._retry)

    def _ask(self, key: str, client_request: ClientRequest) -> None:
        request = self._request
        params = client_requests.to_legacy_params(
            client_request, f"{request.host_id.decode()}-{request.rounds}-{key}"
        )
        request.session.broker.send(
            request.session, request, client_request.method, params, partial(self._on_response, key)
        )

    def _on_response(self, key: str, message: RpcMessage) -> None:
        if self._finished:
            return
        error = jsonrpc.get_error(message)
        if error is not None:
            self._fail(jsonrpc.parse_error(error).message or "no reason given")
            return
        self.add_answer(key, message.result)  # type: ignore[arg-type]  # set, since there is no error

    def add_answer(self, key: str, result: Raw | bytes) -> None:
        """Take one answer of the host, and call the child again after the last one."""
        if self._finished:
            return
        self._answers[key] = Raw(result)
        if len(self._answers) == len(self._result.input_requests):
            self._retry()

    def refuse(self, reason: str) -> None:
        """Fail the request: the host does not answer."""
        if not self._finished:
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._finished = True
        request, child = self._request, self._request.child.name
        request.session.broker.request_ended(request, "another client request was not answered")
        request.on_failed(
            failure(
                "host_refused",
                f"The host did not provide the input that child '{child}' requested: {reason}.",
                child=child,
            )
        )

    def _retry(self) -> None:
        if self._request.is_awaited:
            extra_params = b',"inputResponses":' + jsonrpc.encode(self._answers) if self._answers else b""
            if self._result.request_state is not UNSET:
                extra_params += b',"requestState":' + bytes(self._result.request_state)
            self._request.suite.child.acquire(RetryWaiter(self._request, extra_params))


class _RoundInput:
    """One input of a round, requested in the answer to another request. Implements `InputOrigin`."""

    def __init__(self, round: InputRound, key: str) -> None:
        self._round = round
        self._key = key

    def answer(self, result: Raw | bytes) -> None:
        """Pass the input on."""
        self._round.add_answer(self._key, result)

    def refuse(self, code: int, message: str) -> None:
        """Report that there is none."""
        self._round.refuse(message)


class RetryWaiter(DelegatedWaiter):
    """Repeats a call, with the host's answers if there are any."""

    __slots__ = ("extra_params", "request")

    def __init__(self, request: HostRequest, extra_params: bytes) -> None:
        super().__init__(request)
        self.request = request
        self.extra_params = extra_params

    @property
    def is_stateless(self) -> bool:
        """Only stateless children are called again."""
        return True

    def rebind(self, child: Child) -> None:
        """Use this process: the host's own may have been replaced while it answered."""
        self.request.rebind(child)

    def on_ready(self, child: Child) -> None:
        """Send the call again, unless the host has cancelled it."""
        if self.request.is_awaited:
            self.request.extra_params = self.extra_params
            self.request.on_ready(child)

    def on_failed(self, problem: Failure) -> None:
        """Answer the host: the child has exited meanwhile."""
        self.request.on_failed(problem)
