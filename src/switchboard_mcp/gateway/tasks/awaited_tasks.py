"""Tasks of children whose result the gateway awaits, so that the call they belong to is an ordinary one.

A legacy child sends the result in answer to `tasks/result`; a stateless child is polled with `tasks/get`. Client
requests of the task belong to the waiting request.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol import client_requests, jsonrpc, result_ids
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.transport.rpc import AwaitedRequest, PendingRequest, next_id

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.gateway.request import HostRequest
    from switchboard_mcp.protocol.result_ids import CreatedTask

# A task may run for a very long time; its host can cancel it.
TASK_TIMEOUT_S = 24 * 3600.0


class _Task(Struct, rename="camel"):
    task_id: str


class _Created(Struct):
    task: _Task | UnsetType = msgspec.UNSET


class _Polled(Struct, rename="camel"):
    """A task as a stateless child reports it."""

    status: str = ""
    input_requests: dict[str, Raw] | None = None
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_created = msgspec.json.Decoder(_Created).decode
_decode_polled = msgspec.json.Decoder(_Polled).decode


def await_task(request: HostRequest, result: Raw) -> bool:
    """If a result only announces a task, wait for the task's own result; return False if it is the result itself."""
    if getattr(request, "task", None) is not None or b'"taskId"' not in bytes(result):
        return False
    created = _decode_created(result).task
    peer = request.child.peer
    if isinstance(created, UnsetType) or peer is None:
        return False
    request.task = created.task_id
    id = next_id()
    params = jsonrpc.encode({"taskId": created.task_id})
    request.dispatch(request.child, id, jsonrpc.request(id, "tasks/result", params), TASK_TIMEOUT_S)
    return True


def note_task(child: Child, task: CreatedTask, now: float) -> None:
    """Keep a child running while a task runs that a host may poll."""
    child.note_task(task.id, now + min(task.ttl_s, TASK_TIMEOUT_S), ended=task.has_ended)


def cancel_task(request: HostRequest) -> None:
    """Cancel the child's task of a request that the host no longer awaits."""
    task: str | None = getattr(request, "task", None)
    peer = request.child.peer
    if task is not None and peer is not None:
        params = jsonrpc.encode({"taskId": task})
        peer.send(
            AwaitedRequest(request.session.broker.loop, "tasks/cancel", params, request.child.call_timeout_s)
        )


class TaskPoll:
    """Polls the task with which a stateless child has answered the call of a legacy host."""

    def __init__(self, request: HostRequest, task: CreatedTask) -> None:
        self._request = request
        self._task = task
        self._asked: set[str] = set()
        self._timer: TimerHandle | None = None

    def begin(self, result: Raw) -> None:
        """Wait for the end of the task. `result` is the one that announced it."""
        request = self._request
        request.task, request.poll = self._task.id, self
        note_task(request.child, self._task, request.session.broker.loop.time())
        self._wait(result)

    def cancel(self) -> None:
        """Stop polling, and cancel the task."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._note_end()
        if self._request.child.peer is not None:
            self._send("tasks/cancel", {}, lambda message: None)

    def _wait(self, reported: Raw) -> None:
        loop = self._request.session.broker.loop
        self._timer = loop.call_later(result_ids.poll_interval_s(bytes(reported)), self._poll)

    def _poll(self) -> None:
        self._timer = None
        if self._request.is_awaited:
            self._send("tasks/get", {}, self._on_polled)

    def _send(self, method: str, members: dict[str, object], then: Callable[[RpcMessage], None]) -> None:
        request, child = self._request, self._request.child
        peer = child.peer
        if peer is None:
            request.failed(child.unavailable_reason())
            return
        id = next_id()
        meta = Raw(request.meta_for_child(child, id) or b"{}")
        params = jsonrpc.encode({"taskId": self._task.id, **members, "_meta": meta})
        peer.send(FollowUp(id, jsonrpc.request(id, method, params), child.call_timeout_s, request, then))

    def _on_polled(self, message: RpcMessage) -> None:
        request = self._request
        if not request.is_awaited:
            return
        if jsonrpc.get_error(message) is not None:
            self._note_end()
            request.answered(message)
            return
        body: Raw = message.result  # type: ignore[assignment]  # set, since there is no error
        polled = _decode_polled(body)
        if polled.status == "completed" and polled.result is not UNSET:
            self._note_end()
            request.handle_result(polled.result)
        elif polled.status == "failed" and polled.error is not UNSET:
            self._note_end()
            request.answered(RpcMessage(error=polled.error))
        elif polled.status in ("working", "input_required"):
            for key, raw in (polled.input_requests or {}).items():
                if key not in self._asked and request.is_awaited:
                    self._ask(key, client_requests.decode_client_request(raw))
            if request.is_awaited:
                self._wait(body)
        else:
            self._note_end()
            name = request.child.name
            text = f"Child '{name}' reported the task of the call as {polled.status or 'unknown'}."
            request.on_failed(failure("child_error", text, child=name))

    def _ask(self, key: str, wanted: client_requests.ClientRequest) -> None:
        """Ask the host for the input that the task needs."""
        request = self._request
        self._asked.add(key)
        missing = client_requests.missing_capability(request.capabilities, wanted.method, wanted.params)
        if missing is not None:
            self._refuse(f"it does not support {wanted.method}")
            return
        params = client_requests.to_legacy_params(wanted, f"{self._task.id}-{key}")
        request.session.broker.send(
            request.session, request, wanted.method, params, partial(self._on_response, key)
        )

    def _on_response(self, key: str, message: RpcMessage) -> None:
        if not self._request.is_awaited:
            return
        error = jsonrpc.get_error(message)
        if error is not None:
            self._refuse(jsonrpc.parse_error(error).message or "no reason given")
        else:
            self._send("tasks/update", {"inputResponses": {key: message.result}}, lambda message: None)

    def _refuse(self, reason: str) -> None:
        request, name = self._request, self._request.child.name
        self.cancel()
        text = f"The host did not provide the input that child '{name}' requested: {reason}."
        request.failed(failure("host_refused", text, child=name))

    def _note_end(self) -> None:
        self._request.child.note_task(self._task.id, 0.0, ended=True)


class FollowUp(PendingRequest):
    """A request about the task of a call; its failure is that of the call."""

    __slots__ = ("_call", "_then")

    def __init__(
        self,
        id: bytes,
        message: bytes,
        timeout_s: float,
        call: HostRequest,
        then: Callable[[RpcMessage], None],
    ) -> None:
        super().__init__(id, message, timeout_s)
        self._call = call
        self._then = then

    def answered(self, response: RpcMessage) -> None:
        """Continue with the response."""
        self._then(response)

    def failed(self, problem: Failure) -> None:
        """Fail the call."""
        if self._call.is_awaited:
            self._call.failed(problem)

    def timed_out(self) -> None:
        """Fail the call."""
        if self._call.is_awaited:
            self._call.timed_out()
