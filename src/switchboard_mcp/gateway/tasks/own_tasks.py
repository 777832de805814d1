"""Tasks that Switchboard runs itself: a call whose answer is kept until its owner fetches it.

So a host has tasks of children of another protocol version family, of the tools of a suite that run as tasks, and of
slow calls (`tasks.after`). To the rest of the gateway the call is one of a legacy host, with its own session
(`TaskSession`), whose channel (`TaskChannel`) keeps the answer and the client requests of the child. The owner answers
these with `tasks/update`, or while it awaits `tasks/result`.

A task belongs to the session that has started it, after its end to the principal. It ends with its time to live.
Everything is in memory: after a restart no task is known.
"""

from __future__ import annotations

import os
import time
from asyncio import TimerHandle
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS
from switchboard_mcp.gateway.client_requests.client_request import ClientRequests, OpenRequest
from switchboard_mcp.gateway.issued_ids import MAX_TASKS, TASK_ID_BYTES
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage, decode_members
from switchboard_mcp.protocol.message_meta import RELATED_TASK, Meta
from switchboard_mcp.protocol.result_ids import MAX_POLL_S, MIN_POLL_S
from switchboard_mcp.transport.rpc import UNREADABLE

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import Cancellable, ListenSubscription

# The only request of a task's session.
CALL_ID = b"1"
# Hosts are asked to poll this often, unless the child asks for something else.
POLL_MS = 1_000
MIN_POLL_MS, MAX_POLL_MS = round(MIN_POLL_S * 1000), round(MAX_POLL_S * 1000)
# Results of ended tasks that are kept for a principal; the oldest go first.
MAX_KEPT_BYTES = 64 * 1024 * 1024
# Questions of one task that wait for an answer. A child may ask more later.
MAX_QUESTIONS = 64
WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED = (
    "working",
    "input_required",
    "completed",
    "failed",
    "cancelled",
)
STATUS = "notifications/tasks/status"
UNKNOWN_TASK = jsonrpc.encode({"code": INVALID_PARAMS, "message": "Unknown or expired task."})
WAS_CANCELLED = jsonrpc.encode({"code": INTERNAL_ERROR, "message": "The task was cancelled."})
# This host never fetches the result of a failed task, so a failed tool has to be a completed task for it.
FETCHES_NO_FAILURE = "Visual Studio Code"


class ResultWaiter(OpenRequest, Protocol):
    """A legacy host's `tasks/result`."""

    @property
    def capabilities(self) -> bytes:
        """The host's client capabilities."""

    def finish(self, result: Raw | bytes) -> None:
        """Answer with a result."""

    def finish_with_error(self, body: Raw | bytes) -> None:
        """Answer with a JSON-RPC error."""


class _Error(Struct, rename="camel"):
    is_error: bool = False


class _Reported(Struct, rename="camel"):
    """The part of a child's report about its task that a host sees."""

    message: str | None = None  # of progress
    status_message: str | None = None
    poll_interval: float | None = None


_decode_error = msgspec.json.Decoder(_Error).decode
_decode_reported = msgspec.json.Decoder(_Reported).decode


class Question(Struct):
    """A client request of the child that waits for the owner's answer. `waiter` is the request it was sent on."""

    id: bytes
    method: str
    params: Raw | UnsetType
    waiter: ResultWaiter | None = None


class TaskSession(Session):
    """The session that makes the call of a task. Its channel is that of the task."""

    def __init__(self, task: OwnTask, holder: Session, capabilities: bytes, ttl_s: float) -> None:
        super().__init__(
            TaskChannel(task),
            holder.broker,
            holder.tools,
            holder.principal,
            viewer=holder.viewer,
            ephemeral=True,
        )
        self.profile, self.client, self.client_version = (
            holder.profile,
            holder.client,
            holder.client_version,
        )
        self.capabilities, self.log_level, self.initialized = capabilities, holder.log_level, True
        self.time_s = ttl_s
        self.on_behalf_of = holder
        self._owner = holder.process_owner

    @property
    def process_owner(self) -> object:
        """The owner of child processes that are not shared: that of the session that has started the task."""
        return self._owner


class TaskChannel:
    """Receives what a legacy host would receive for the call of a task."""

    def __init__(self, task: OwnTask) -> None:
        self._task = task

    def answer(self, message: bytes) -> None:
        """Keep the result or the error of the call."""
        self._task.end(jsonrpc.decode(message))

    def send(self, message: bytes) -> None:
        """Keep a client request, or take from a notification what a host that polls can use."""
        decoded = jsonrpc.decode(message)
        if decoded.id is not UNSET:
            self._task.ask(decoded)
        elif decoded.method == "notifications/cancelled" and decoded.params is not UNSET:
            self._task.withdraw(bytes(decode_members(decoded.params).get("requestId", Raw(b""))))
        else:
            self._task.report(str(decoded.method), decoded.params, message)


class OwnTask:
    """A task that Switchboard runs. `subtool` is the tool that its call is for."""

    def __init__(
        self,
        store: OwnTasks,
        holder: Session,
        child: str,
        subtool: str,
        capabilities: bytes,
        ttl_s: float,
    ) -> None:
        self.id = os.urandom(TASK_ID_BYTES).hex()
        self.child = child
        self.subtool = subtool
        self.principal = holder.principal
        self.holder: Session | None = None if holder.ephemeral else holder
        self.session = TaskSession(self, holder, capabilities, ttl_s)
        self.status = WORKING
        self.result: Raw | None = None
        self.kept_bytes = 0
        self.timer: TimerHandle | None = None
        self._error: Raw | bytes | None = None
        self._is_error = False
        self._store = store
        self._ttl_s = ttl_s
        self._message = ""
        self._poll_ms = POLL_MS
        self._created = self._updated = time.time()
        self._questions: dict[str, Question] = {}
        self._asked = 0
        self._waiters: list[ResultWaiter] = []
        self._listens: list[tuple[Session, ListenSubscription]] = []

    @property
    def has_ended(self) -> bool:
        """True if there is nothing more to wait for."""
        return self.status in (COMPLETED, FAILED, CANCELLED)

    @property
    def request(self) -> Cancellable | None:
        """The call, while it runs."""
        return self.session.in_flight.get(CALL_ID)

    def handle(self, *, stateless: bool, client: str = "") -> bytes:
        """Return the result that announces the task to a host."""
        if stateless:
            return jsonrpc.encode({"resultType": "task", **self._head(stateless=True)})
        return jsonrpc.encode({"task": self._head(stateless=False, client=client)})

    def describe(self, *, stateless: bool, client: str = "") -> dict[str, object]:
        """Return the task as `tasks/get` shows it: to a stateless host with its questions and its end."""
        body = self._head(stateless=stateless, client=client)
        if stateless and self._questions:
            body["inputRequests"] = {
                key: client_requests.to_input_request(question.method, question.params)
                for key, question in self._questions.items()
            }
        if stateless and self.result is not None:
            body["result"] = self.result
        if stateless and self.status == FAILED:
            body["error"] = Raw(self._error or b"null")
        return body

    def _head(self, *, stateless: bool, client: str = "") -> dict[str, object]:
        names = ("ttlMs", "pollIntervalMs") if stateless else ("ttl", "pollInterval")
        status = self.status
        if not stateless and self._is_error and not client.startswith(FETCHES_NO_FAILURE):
            status = FAILED
        return {
            "taskId": self.id,
            "status": status,
            **({"statusMessage": self._message} if self._message else {}),
            "createdAt": _timestamp(self._created),
            "lastUpdatedAt": _timestamp(self._updated),
            names[0]: round(self._ttl_s * 1000),
            names[1]: self._poll_ms,
        }

    def ask(self, message: RpcMessage) -> None:
        """Keep a client request until the owner answers it."""
        assert message.id is not UNSET
        if len(self._questions) >= MAX_QUESTIONS:
            text = jsonrpc.encode(
                {"code": INTERNAL_ERROR, "message": "Too many client requests are pending."}
            )
            self._resolve(bytes(message.id), RpcMessage(id=message.id, error=Raw(text)))
            return
        self._asked += 1
        question = Question(bytes(message.id), str(message.method), message.params)
        self._questions[f"q{self._asked}"] = question
        self._change(INPUT_REQUIRED)
        self._put_to_waiters()

    def withdraw(self, id: bytes) -> None:
        """Drop a client request that the child no longer needs."""
        for key, question in list(self._questions.items()):
            if question.id == id:
                self._drop(key)

    def report(self, method: str, params: Raw | UnsetType, message: bytes) -> None:
        """Take a status message from a notification; a legacy owner gets progress and logs as for any call."""
        holder = self.holder
        if method in ("notifications/progress", STATUS) and params is not UNSET:
            try:
                reported = _decode_reported(params)
            except UNREADABLE:
                return
            text = reported.status_message or reported.message or ""
            if reported.poll_interval:
                self._poll_ms = round(min(max(reported.poll_interval, MIN_POLL_MS), MAX_POLL_MS))
            if text and text != self._message and not self.has_ended:
                self._message = text
                self._change(self.status)
        if method != STATUS and holder is not None and holder.initialized:
            holder.channel.send(message)

    def update(self, answers: dict[str, Raw]) -> None:
        """Pass the owner's answers on to the child. Those to unknown or answered questions are ignored."""
        for key, answer in answers.items():
            question = self._drop(key)
            if question is not None:
                self._resolve(question.id, RpcMessage(id=Raw(question.id), result=answer))

    def wait(self, request: ResultWaiter) -> None:
        """Answer a legacy host's `tasks/result` when the task has ended; until then it gets the questions."""
        if self.has_ended:
            self._answer(request)
        else:
            self._waiters = [waiter for waiter in self._waiters if waiter.is_awaited]
            self._waiters.append(request)
            self._put_to_waiters()

    def listen(self, session: Session, subscription: ListenSubscription) -> None:
        """Report changes to a stateless host that listens."""
        self._forget_ended_listens()
        self._listens.append((session, subscription))

    def end(self, answer: RpcMessage) -> None:
        """Keep the end of the call."""
        if self.has_ended:
            return
        self.session.in_flight.clear()
        error = jsonrpc.get_error(answer)
        if error is not None:
            self._error = error
        else:
            body = _without_childs_task(answer.result)  # type: ignore[arg-type]  # set, since there is no error
            self.result = Raw(body)
            self.kept_bytes = len(body)
            try:
                self._is_error = b'"isError"' in body and _decode_error(body).is_error
            except UNREADABLE:
                self._is_error = False
        self._settle(COMPLETED if error is None else FAILED)
        self._store.trim(self.principal)

    def cancel(self, reason: str, error: bytes = WAS_CANCELLED) -> None:
        """Stop the call, if it still runs. Requests that await its result get the error."""
        if not self.has_ended:
            self._error = error
            self._settle(CANCELLED)
            self.session.cancel(Raw(CALL_ID), reason)

    def close(self) -> None:
        """Forget everything: the task has expired."""
        self.cancel("the task has expired", UNKNOWN_TASK)
        if self.timer is not None:
            self.timer.cancel()

    def _settle(self, status: str) -> None:
        self._questions.clear()
        self._change(status)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.is_awaited:
                self._answer(waiter)

    def _answer(self, request: ResultWaiter) -> None:
        if self.result is None:
            request.finish_with_error(self._error or WAS_CANCELLED)
            return
        request.finish(with_related_task(self.result, self.id))

    def _change(self, status: str) -> None:
        """Record a change, and notify the owner of it."""
        self.status, self._updated = status, time.time()
        self._forget_ended_listens()
        for _, subscription in self._listens:
            body = decode_members(jsonrpc.encode(self.describe(stateless=True)))
            subscription.notify("notifications/tasks", body)
        holder = self.holder
        if holder is not None and holder.initialized and holder.offers_tasks:
            body_for_holder = self._head(stateless=False, client=holder.client)
            holder.channel.send(jsonrpc.notification(STATUS, jsonrpc.encode(body_for_holder)))

    def _forget_ended_listens(self) -> None:
        self._listens = [
            (session, listen) for session, listen in self._listens if session.listens.get(listen.id) is listen
        ]

    def _drop(self, key: str) -> Question | None:
        question = self._questions.pop(key, None)
        if question is not None and not self._questions and self.status == INPUT_REQUIRED:
            self._change(WORKING)
        return question

    def _resolve(self, id: bytes, answer: RpcMessage) -> None:
        self._store.broker.on_host_response(self.session, answer)

    def _put_to_waiters(self) -> None:
        """Send the questions that no host has seen to one that awaits the result and can answer them."""
        for key, question in self._questions.items():
            if question.waiter is not None and question.waiter.is_awaited:
                continue
            for waiter in reversed(self._waiters):
                missing = client_requests.missing_capability(
                    waiter.capabilities, question.method, question.params
                )
                if waiter.is_awaited and missing is None:
                    question.waiter = waiter
                    params = with_related_task(question.params, self.id)
                    on_response = partial(self._on_response, key)
                    self._store.broker.send(waiter.session, waiter, question.method, params, on_response)
                    break

    def _on_response(self, key: str, answer: RpcMessage) -> None:
        """Pass a host's answer on. Without one, since the host has left, the question stays."""
        if answer.id is UNSET:
            if key in self._questions:
                self._questions[key].waiter = None
                self._store.broker.loop.call_soon(self._put_to_waiters)
            return
        question = self._drop(key)
        if question is not None:
            self._resolve(question.id, msgspec.structs.replace(answer, id=Raw(question.id)))


class OwnTasks:
    """The tasks that Switchboard runs for all hosts."""

    def __init__(self, broker: ClientRequests) -> None:
        self.broker = broker
        self._by_id: dict[str, OwnTask] = {}
        self._by_principal: dict[str, dict[str, OwnTask]] = {}  # the oldest first

    def create(
        self,
        holder: Session,
        child: str,
        subtool: str,
        capabilities: bytes,
        ttl_s: float,
        limit: int = MAX_TASKS,
    ) -> OwnTask | None:
        """Create a task that a session has; None if its principal has too many that run."""
        own = self._by_principal.setdefault(holder.principal, {})
        if len(own) >= limit:
            ended = next((task for task in own.values() if task.has_ended), None)
            if ended is None:
                return None
            self.forget(ended)
            own = self._by_principal.setdefault(holder.principal, {})
        task = OwnTask(self, holder, child, subtool, capabilities, ttl_s)
        self._by_id[task.id] = own[task.id] = task
        task.timer = self.broker.loop.call_later(ttl_s, self.forget, task)
        return task

    def find(self, session: Session, id: str) -> OwnTask | None:
        """Return a task that a session may use, or None."""
        task = self._by_id.get(id)
        if task is None or task.principal != session.principal or task.holder not in (None, session):
            return None
        return task

    def of(self, session: Session) -> list[OwnTask]:
        """Return the tasks that a session may use, the oldest first."""
        own = self._by_principal.get(session.principal, {})
        return [task for task in own.values() if task.holder in (None, session)]

    def session_closed(self, session: Session) -> None:
        """Leave the tasks of a session to its principal, if it has one."""
        for task in self._by_principal.get(session.principal, {}).values():
            if task.holder is session:
                if session.leaves_to is not None:
                    task.holder = None
                task.session.on_behalf_of = task.session

    def forget(self, task: OwnTask) -> None:
        """Forget a task, and stop its call if it still runs."""
        if self._by_id.pop(task.id, None) is not None:
            own = self._by_principal[task.principal]
            del own[task.id]
            if not own:
                del self._by_principal[task.principal]
            task.close()

    def trim(self, principal: str) -> None:
        """Forget the oldest ended tasks of a principal while their results are too large together."""
        own = list(self._by_principal.get(principal, {}).values())
        kept = sum(task.kept_bytes for task in own)
        for task in own[:-1]:
            if kept <= MAX_KEPT_BYTES:
                break
            if task.has_ended:
                kept -= task.kept_bytes
                self.forget(task)


def tasks_of(session: Session) -> OwnTasks:
    """Return the tasks that are run for the hosts of the gateway that a session belongs to."""
    store = session.broker.tasks
    assert isinstance(store, OwnTasks)
    return store


def with_related_task(body: Raw | UnsetType, task: str) -> bytes:
    """Return a result or params that name the task they belong to."""
    try:
        members = {} if body is UNSET else decode_members(body)
        meta = decode_members(members["_meta"]) if "_meta" in members else {}
    except UNREADABLE:
        return b"{}" if body is UNSET else bytes(body)
    related = {**meta, RELATED_TASK: {"taskId": task}}
    return jsonrpc.encode({**members, "_meta": related})


def _without_childs_task(result: Raw) -> bytes:
    """Return a result that does not name the task of the child."""
    body = bytes(result)
    if RELATED_TASK.encode() not in body:
        return body
    try:
        members = decode_members(result)
        meta = decode_members(members.get("_meta", Raw(b"{}")))
    except UNREADABLE:
        return body
    if meta.pop(RELATED_TASK, None) is None:
        return body
    members.pop("_meta")
    return jsonrpc.encode({**members, "_meta": meta} if meta else members)


def task_meta(meta: Meta | UnsetType) -> Meta:
    """Return the `_meta` of a host's call for the call of a task."""
    return {} if meta is UNSET else message_meta.strip_protocol_keys(meta)


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"
